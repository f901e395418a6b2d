// Every model of the zoo as a whole training step on assumed devices, in every precision: each of
// its convolutions has a plan within the workspace cap, none needs the backend's fallback for
// fusions that cuDNN lacks, and --deterministic finds plans that give the same bits every time.
#include <gtest/gtest.h>

#include <iostream>

#include "engine/passes/compile.h"
#include "engine/run/program.h"
#include "models/build.h"

namespace warpstep {
namespace {

constexpr std::int64_t batch = 128;

class ZooPlans : public testing::TestWithParam<std::tuple<const char*, Precision>> {};

TEST_P(ZooPlans, CoverEveryConvolution) {
  const auto& [device, precision] = GetParam();
  BackendOptions options;
  options.assumed_device = device;
  options.tf32 = precision == Precision::tf32;
  const auto backend = open_backend("cuda", options);
  for (const models::Model& model : models::zoo()) {
    if (model.is_text()) continue;  // no convolutions
    const StepOptions step = options_for(*backend, {.precision = precision});
    const Program program(compile_step(models::build(model, {.batch = batch}), step), backend);
    for (const Call& call : program.calls()) {
      const Node& node = program.graph().nodes[idx(call.node)];
      if (!std::holds_alternative<Conv>(node.op) &&
          !std::holds_alternative<ConvDataGrad>(node.op) &&
          !std::holds_alternative<ConvWeightGrad>(node.op))
        continue;
      const std::string how = call.kernel->implementation();
      EXPECT_TRUE(how.starts_with("cudnn engine") || how.starts_with("narrow") ||
                  how.starts_with("stem"))
          << model.name << " " << call.title << ": " << how;
      EXPECT_LE(call.kernel->workspace_bytes(), options.workspace_cap) << call.title;
      if (how.find(" + bias_relu") != std::string::npos)
        std::cout << model.name << " " << call.title << ": not fused by cuDNN: " << how << "\n";
    }
  }
}

// Calls of every model whose plan does not give the same bits every time.
int undetermined(const char* device, Precision precision, bool deterministic) {
  BackendOptions options;
  options.assumed_device = device;
  options.tf32 = precision == Precision::tf32;
  options.deterministic = deterministic;
  options.workspace_cap = 0;  // then cuDNN's first choice often adds with atomics
  const auto backend = open_backend("cuda", options);
  int calls = 0;
  for (const models::Model& model : models::zoo()) {
    if (model.is_text()) continue;  // no convolutions
    const StepOptions step = options_for(*backend, {.precision = precision});
    const Program program(compile_step(models::build(model, {.batch = batch}), step), backend);
    for (const Call& call : program.calls())
      calls += call.kernel->implementation().find("not deterministic") != std::string::npos ? 1 : 0;
  }
  return calls;
}

TEST_P(ZooPlans, AreDeterministicOnRequest) {
  const auto& [device, precision] = GetParam();
  EXPECT_EQ(undetermined(device, precision, true), 0);
  if (precision == Precision::fp32) {
    EXPECT_GT(undetermined(device, precision, false), 0) << "this test proves nothing any more";
  }
}

INSTANTIATE_TEST_SUITE_P(Assumed, ZooPlans,
                         testing::Combine(testing::Values("sm_80", "sm_90", "sm_100"),
                                          testing::Values(Precision::fp32, Precision::tf32,
                                                          Precision::bf16, Precision::fp16)),
                         [](const auto& tested) {
                           return fmt::format("{}_{}", std::get<0>(tested.param),
                                              name(std::get<1>(tested.param)));
                         });

}  // namespace
}  // namespace warpstep
