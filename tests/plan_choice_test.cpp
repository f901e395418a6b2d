// Measured algorithms (--autotune) compute the same as the others, and a second backend reads them
// from the folder of the first (--plan-cache) and computes the same bits.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <map>

#include "engine/core/error.h"
#include "engine/passes/precision.h"
#include "tests/tested_backend.h"
#include "tests/tolerance.h"
#include "tests/trial.h"

namespace warpstep {
namespace {

namespace fs = std::filesystem;
using testing_support::relative_difference;
using testing_support::Result;
using testing_support::tolerance;
using testing_support::Trial;

// A few of each kind: every candidate of every plan is built and measured.
std::vector<cases::Case> tuned_cases() {
  std::vector<cases::Case> all;
  for (const cases::Case& c : cases::all())
    for (const char* wanted : {"conv/cifar10cnn conv3", "conv/1x1 stride 2", "conv/dilation 2",
                               "linear/1000 classes", "linear/17 outputs relu"})
      if (c.name == wanted) all.push_back(cases::with_adjoint(c));
  for (std::size_t i = 0, count = all.size(); i < count; ++i) {
    all.push_back(all[i]);
    all.back().name += " in fp16";
    all.back().graph = apply_precision(all[i].graph, Precision::fp16);
  }
  return all;
}

using Files = std::map<std::string, std::pair<std::uintmax_t, fs::file_time_type>>;

Files files_in(const fs::path& folder) {
  Files files;
  for (const auto& entry : fs::directory_iterator(folder))
    files[entry.path().filename()] = {entry.file_size(), entry.last_write_time()};
  return files;
}

class PlanChoice : public testing::TestWithParam<cases::Case> {
 protected:
  void SetUp() override {
    const std::string name = testing_support::tested_backend();
    if (name != "cuda") GTEST_SKIP() << "only cuDNN and cublasLt have algorithms to choose from";
    std::string pattern = fs::temp_directory_path() / "warpstep-plans-XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    options_ = {.deterministic = true, .autotune = true, .plan_cache = pattern};
    try {
      first_ = testing_support::open_tested_backend(name, options_);
      second_ = testing_support::open_tested_backend(name, options_);
    } catch (const DeviceError& error) {
      GTEST_SKIP() << error.what();
    }
  }

  void TearDown() override {
    std::error_code ignored;
    if (!options_.plan_cache.empty()) fs::remove_all(options_.plan_cache, ignored);
  }

  BackendOptions options_;
  std::shared_ptr<Backend> first_, second_;
};

TEST_P(PlanChoice, IsStoredAndReused) {
  const std::vector<Result> measured = Trial(GetParam(), first_).run();
  const std::vector<Result> expected = Trial(GetParam(), open_backend("ref")).run_beside(measured);
  ASSERT_EQ(measured.size(), expected.size());
  for (std::size_t i = 0; i < measured.size(); ++i)
    EXPECT_LE(relative_difference(measured[i].floats, expected[i].floats),
              tolerance(measured[i].dtype, measured[i].depth, measured[i].between))
        << measured[i].what;
  const Files kept = files_in(options_.plan_cache);
  EXPECT_FALSE(kept.empty());
  EXPECT_EQ(measured, Trial(GetParam(), second_).run());
  EXPECT_EQ(kept, files_in(options_.plan_cache)) << "the second backend chose again";
}

INSTANTIATE_TEST_SUITE_P(Cases, PlanChoice, testing::ValuesIn(tuned_cases()),
                         testing_support::test_name);

}  // namespace
}  // namespace warpstep
