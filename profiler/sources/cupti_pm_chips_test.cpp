// The real library's answers for given chips: its host side needs no device.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "profiler/sources/cupti_pm_host.h"

namespace warpstep::profiler {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class CuptiPmChips : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (const std::string why = why_no_library(cupti); !why.empty()) GTEST_SKIP() << why;
    if (!pm.why.empty()) GTEST_SKIP() << pm.why;
  }

  const CuptiApi cupti = load_cupti_api();
  const CuptiPmApi pm = load_cupti_pm_api();
};

// A100, RTX 30, RTX 40, H100 and H200, B200, RTX 50.
INSTANTIATE_TEST_SUITE_P(, CuptiPmChips,
                         ::testing::Values("GA100", "GA102", "AD102", "GH100", "GB100", "GB202"),
                         [](const auto& chip) { return std::string(chip.param); });

// All metrics exist and fit into the single pass of PM sampling.
TEST_P(CuptiPmChips, CountAllMetricsInOnePass) {
  PmHost host(cupti, pm, GetParam());
  EXPECT_THAT(host.lacking(), IsEmpty());
  EXPECT_THAT(host.shown(), ElementsAre("SM active %", "tensor pipe %", "DRAM %"));
  EXPECT_THAT(host.names(), Not(::testing::Contains(HasSubstr("sm__pipe_tensor_cycles_active."))));
  EXPECT_GT(host.config_image().size(), 100U);
}

// Without the tensor pipe's "realtime" counter two passes would be needed on data-centre GPUs.
TEST_F(CuptiPmChips, TuringCannotCountTheTensorPipeInTheSamePass) {
  PmHost host(cupti, pm, "TU102");
  EXPECT_THAT(host.shown(), ::testing::Contains("SM active %"));
  EXPECT_THAT(host.lacking(),
              ::testing::Contains("DRAM %: TU102 cannot count it in one pass with the others"));
}

TEST_F(CuptiPmChips, AnUnknownChip) {
  try {
    const PmHost host(cupti, pm, "XX100");
    FAIL();
  } catch (const PmFailure& failure) {
    EXPECT_THAT(failure.what(), HasSubstr("the chip XX100 is not supported: "
                                          "cuptiProfilerHostInitialize gave "
                                          "CUPTI_ERROR_INVALID_CHIP_NAME (46)"));
  }
}

}  // namespace
}  // namespace warpstep::profiler
