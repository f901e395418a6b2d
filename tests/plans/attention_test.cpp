// cuDNN has engines for attention and both forms of its adjoint on every architecture with bf16,
// within the workspace cap. Runs with the stand-in for the driver, without which cuDNN's heuristics
// propose none. A support check, not a measurement: compiling each plan takes 1 to 4 s.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <iostream>

#include "kernels/attention/attention_graph.cuda.h"
#include "kernels/cuda/assumed_devices.h"

namespace warpstep::cuda {
namespace {

AttentionShape shape_of(std::int64_t sequences, std::int64_t length, std::int64_t heads,
                        std::int64_t features) {
  return {.sequences = sequences,
          .heads = heads,
          .length = length,
          .features = features,
          .qkv_pitch = 3 * heads * features,
          .o_pitch = heads * features};
}

struct Planned {
  std::string implementation;
  std::size_t workspace_bytes;
};

Planned expect_plan(const std::string& device, const dnn::Graph& graph) {
  const Settings settings = assume_device(device);
  const auto [plan, why_not] = dnn::open_library(settings)->plan(graph);
  EXPECT_NE(plan, nullptr) << device << " " << graph.name << ": " << why_not;
  if (!plan) return {};
  EXPECT_TRUE(plan->implementation().starts_with("cudnn engine"))
      << plan->implementation() << ": the stand-in for the driver is not loaded";
  EXPECT_LE(plan->workspace_bytes(), settings.workspace_cap) << graph.name;
  EXPECT_LE(plan->workspace_bytes(), dnn::attention_workspace(graph, settings.compute_capability))
      << device << " " << graph.name;
  std::cout << fmt::format("{} {}: {}, {:.1f} MiB\n", device, graph.name, plan->implementation(),
                           static_cast<double>(plan->workspace_bytes()) / (1 << 20));
  return {plan->implementation(), plan->workspace_bytes()};
}

class AttentionPlans : public testing::TestWithParam<std::tuple<std::string, DType>> {};

TEST_P(AttentionPlans, ExistInEveryForm) {
  const auto& [device, dtype] = GetParam();
  const AttentionShape gpt2 = shape_of(8, 1024, 12, 64);
  expect_plan(device, attention_graph("forward", gpt2, dtype));
  const Planned fast = expect_plan(device, attention_gradient_graph("adjoint", gpt2, dtype, false));
  const Planned fixed =
      expect_plan(device, attention_gradient_graph("adjoint in a fixed order", gpt2, dtype, true));
  // What the order costs: a 16-bit number per pair of positions and head, in place of atomics.
  const std::size_t pairs = std::size_t{8} * 12 * 1024 * 1024;
  EXPECT_GE(fixed.workspace_bytes, 2 * pairs);
  EXPECT_LT(fast.workspace_bytes, pairs);
}

INSTANTIATE_TEST_SUITE_P(, AttentionPlans,
                         testing::Combine(testing::Values("sm_80", "sm_89", "sm_90", "sm_100",
                                                          "sm_120"),
                                          testing::Values(DType::bf16, DType::f16)),
                         [](const auto& tested) {
                           return fmt::format("{}_{}", std::get<0>(tested.param),
                                              name(std::get<1>(tested.param)));
                         });

// At 64 sequences a fixed order takes 1.5 GiB: the batch is computed in pieces.
TEST(AttentionPlan, ExistsForPiecesOfABatch) {
  Settings settings = assume_device("sm_90");
  AttentionShape gpt2 = shape_of(64, 1024, 12, 64);
  EXPECT_EQ(attention_piece(gpt2, DType::bf16, settings), 64);
  settings.deterministic = true;
  gpt2.sequences = attention_piece(gpt2, DType::bf16, settings);
  EXPECT_EQ(gpt2.sequences, 8);
  const auto planned = dnn::open_library(settings)->plan(
      attention_gradient_graph("a piece", gpt2, DType::bf16, true));
  EXPECT_NE(planned.plan, nullptr) << planned.why_not;
  EXPECT_EQ(attention_piece(shape_of(61, 1024, 12, 64), DType::bf16, settings),
            9);  // 7, the last 7
  EXPECT_EQ(attention_piece(shape_of(5, 4096, 12, 64), DType::bf16, settings), 0);
}

// Adding in any order is a property of the graph, which none of cuDNN's engines reports.
TEST(AttentionPlan, OfAFixedOrderIsTheOnlyOneWithDeterministic) {
  Settings settings = assume_device("sm_90");
  settings.deterministic = true;
  const auto library = dnn::open_library(settings);
  const AttentionShape small = shape_of(2, 64, 2, 64);
  const dnn::Graph fast = attention_gradient_graph("fast", small, DType::bf16, false);
  EXPECT_EQ(library->plan(fast).plan, nullptr);
  EXPECT_NE(fast.key(), attention_gradient_graph("fixed", small, DType::bf16, true).key());
}

TEST(AttentionPlan, ExistsForASmallModel) {
  const AttentionShape small = shape_of(12, 64, 4, 32);
  expect_plan("sm_90", attention_graph("small forward", small, DType::bf16));
  expect_plan("sm_90", attention_gradient_graph("small adjoint", small, DType::bf16, false));
}

TEST(AttentionPlan, ExistsForTheWidestHeadsOfHopper) {
  const AttentionShape wide = shape_of(1, 1024, 2, 256);
  expect_plan("sm_90", attention_graph("wide forward", wide, DType::bf16));
  expect_plan("sm_90", attention_gradient_graph("wide adjoint", wide, DType::bf16, false));
}

TEST(AttentionPlan, ExistsWhereEveryPositionSeesAll) {
  AttentionShape all = shape_of(2, 37, 2, 40);
  all.causal = false;
  expect_plan("sm_90", attention_graph("forward of all", all, DType::bf16));
  expect_plan("sm_90", attention_gradient_graph("adjoint of all", all, DType::bf16, true));
  expect_plan("sm_120", attention_gradient_graph("adjoint of all", all, DType::bf16, false));
}

// The backend computes these by kernels of its own; kernels/attention/attention.cuda.cpp.
TEST(AttentionPlan, DoesNotExistForOddHeadsOrInF32) {
  const auto library = dnn::open_library(assume_device("sm_90"));
  const AttentionShape odd = shape_of(2, 64, 2, 65), even = shape_of(2, 64, 2, 64);
  EXPECT_EQ(library->plan(attention_graph("odd", odd, DType::bf16)).plan, nullptr);
  EXPECT_EQ(library->plan(attention_gradient_graph("f32", even, DType::f32, true)).plan, nullptr);
}

}  // namespace
}  // namespace warpstep::cuda
