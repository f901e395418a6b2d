// What the CUDA backend refuses with a message of its own, where the runtime or a library would say
// less, later, or nothing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/core/error.h"
#include "engine/run/step_memory.h"
#include "tests/stepping.h"
#include "tests/tested_backend.h"

namespace warpstep {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;
using testing_support::model_step;
using testing_support::open_tested_backend;

constexpr const char* refusing_backend = "cuda_emulated";

void plan_for(const std::string& device, Precision precision, DType moments = DType::f32) {
  const auto backend = open_tested_backend(
      refusing_backend, {.tf32 = precision == Precision::tf32, .assumed_device = device});
  StepOptions options{.precision = precision};
  options.optimizer.moment_dtype = moments;
  plan_step(model_step("mlp", 2, options_for(*backend, options)), *backend);
}

TEST(CudaPrecision, IsRefusedOnDevicesWithoutIt) {
  for (const Precision precision : {Precision::bf16, Precision::tf32}) {
    EXPECT_THAT([&] { plan_for("sm_75", precision); },
                ThrowsMessage<DeviceError>(AllOf(HasSubstr("Tesla T4 (sm_75) does not compute in "),
                                                 HasSubstr(std::string(name(precision))),
                                                 HasSubstr("--precision fp16 or fp32"))));
    EXPECT_NO_THROW(plan_for("sm_80", precision));
  }
  for (const Precision precision : {Precision::fp32, Precision::fp16})
    EXPECT_NO_THROW(plan_for("sm_75", precision));
  EXPECT_NO_THROW(plan_for("sm_75", Precision::fp16, DType::bf16));
}

}  // namespace
}  // namespace warpstep
