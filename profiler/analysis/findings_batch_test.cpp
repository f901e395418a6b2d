#include <gmock/gmock.h>

#include "profiler/analysis/testing_findings.h"

namespace warpstep::profiler {
namespace {

using testing::Case;
using ::testing::HasSubstr;

// Weights are read for each batch of an update.
TEST(BatchFindings, SmallBatchesOfAnUpdateOnTheHost) {
  Case c(false);
  c.options()["accumulate"] = 8;
  const auto add = [&](const char* op, const char* phase, const char* inputs, double ns) {
    c.analysis.work.calls.push_back({.layer = "fc",
                                     .op = op,
                                     .phase = phase,
                                     .inputs = inputs,
                                     .ns = ns,
                                     .bytes = 2.0 * 4 * 512 * 512,
                                     .of_peak = 1,
                                     .bound = "memory"});
  };
  add("linear", "forward", "f32 2x512, f32 512x512, f32 512", 4e5);
  add("linear.wgrad", "weight_grad", "f32 2x512, f32 2x512", 4e5);
  add("relu.dgrad", "data_grad", "f32 2x512, f32 2x512", 1e5);
  add("accumulate", "update", "u8 88, f32 512x512", 1e5);
  const auto finding = c.finding("tiny-batch");  // half of the products' bytes are weights
  ASSERT_TRUE(finding);
  EXPECT_EQ(finding->flag, "--batch 256 --accumulate 4");
  EXPECT_THAT(finding->evidence, HasSubstr("500 us of 1.00 ms per step (50.0 %), 400 us of it"));
  EXPECT_DOUBLE_EQ(finding->gain_least_ns, 5e4);
  EXPECT_DOUBLE_EQ(finding->gain_most_ns, 25e4);
  CallRow &forward = c.analysis.work.calls[0], &gradient = c.analysis.work.calls[1];
  forward.op = "conv";  // whose weights have as many bytes
  forward.inputs = "bf16 2x8x8x128, bf16 128x8x4x128";
  gradient.op = "conv.wgrad";
  EXPECT_DOUBLE_EQ(c.finding("tiny-batch")->gain_most_ns, 25e4);
  gradient.layer = "other";  // whose forward call, and thus its weights, are not known
  EXPECT_FALSE(c.finding("tiny-batch"));
  forward.bytes /= 4;  // fewer than the weights
  EXPECT_DOUBLE_EQ(c.finding("tiny-batch")->gain_most_ns, 25e4);
  const CallRow before = forward;
  const auto is_found_with = [&](const CallRow& call) {
    forward = call;
    const bool is_found = c.finding("tiny-batch").has_value();
    forward = before;
    return is_found;
  };
  CallRow none = forward, loss = forward, other = forward, nowhere = forward;
  none.bytes = 0, loss.op = "loss", other.phase = "data_grad", nowhere.layer.clear();
  for (const CallRow& without : {none, loss, other, nowhere}) EXPECT_FALSE(is_found_with(without));
  gradient.layer = forward.layer;
  gradient.op = "linear.wgrad";  // of another op of this layer
  EXPECT_DOUBLE_EQ(c.finding("tiny-batch")->gain_most_ns, 25e4);
  forward.bound = gradient.bound = "compute";
  EXPECT_FALSE(c.finding("tiny-batch"));
}

// Its weights are read for 400 us of 1 ms of calls; an update takes 100 us.
Case small_batches() {
  Case c(false);
  c.options()["accumulate"] = 8;
  const CallRow forward{.layer = "fc",
                        .op = "linear",
                        .phase = "forward",
                        .inputs = "f32 2x512, f32 512x512",
                        .ns = 8e5,
                        .bytes = 2.0 * 4 * 512 * 512,
                        .of_peak = 1,
                        .bound = "memory"};
  c.analysis.work.calls = {forward,
                           {.op = "accumulate", .phase = "update", .ns = 1e5},
                           {.op = "relu", .ns = 1e5, .of_peak = 1}};
  return c;
}

TEST(BatchFindings, SmallBatchesHaveNoWaitForACore) {
  Case c = small_batches();
  ASSERT_TRUE(c.finding("tiny-batch"));
  c.part(Category::kernel) = 790'000;  // of which 395 us
  EXPECT_FALSE(c.finding("tiny-batch"));
  c.part(Category::core_wait) = 210'000;
  ASSERT_TRUE(c.finding("tiny-batch"));
  EXPECT_DOUBLE_EQ(c.finding("tiny-batch")->gain_least_ns, 39'500);
  EXPECT_DOUBLE_EQ(c.finding("tiny-batch")->gain_most_ns, 197'500);
}

TEST(BatchFindings, SmallBatchesGainNoMoreThanTheLoaderAllows) {
  Case c = small_batches();
  c.analysis.stall.is_stalled = true;
  c.analysis.loader.workers = 1;
  c.analysis.loader.work_ns = 980'000;
  const auto finding = c.finding("tiny-batch");
  ASSERT_TRUE(finding);
  EXPECT_DOUBLE_EQ(finding->gain_ns, 20'000);
}

// On the host it is what does not shrink with the batch: the optimiser, and the host between calls.
TEST(BatchFindings, TinyBatchOnTheHost) {
  Case at(false), above(false), update(false);
  at.part(Category::cpu) = 390'000;
  EXPECT_FALSE(at.finding("tiny-batch"));
  above.part(Category::cpu) = 410'000;
  ASSERT_TRUE(above.finding("tiny-batch"));
  EXPECT_DOUBLE_EQ(above.finding("tiny-batch")->gain_ns, 205'000);
  above.options()["global_batch"] = 512;  // beside it --batch is refused
  EXPECT_EQ(above.finding("tiny-batch")->flag, "--global-batch 1024");
  for (int i = 0; i < 10; ++i)  // a slow terminal
    above.builder.span(Kind::range, "observers", 1000 * i, 1000 * i + 20);
  EXPECT_FALSE(above.finding("tiny-batch"));
  update.analysis.work.calls.push_back({.title = "update_all", .phase = "update", .ns = 410'000});
  EXPECT_TRUE(update.finding("tiny-batch"));
  update.analysis.work.calls.back().op = "all_reduce";  // which waits for other ranks
  EXPECT_FALSE(update.finding("tiny-batch"));
}

// As an mlp beside four other programs: its calls waited for a core for half of their time.
TEST(BatchFindings, TinyBatchHasNoWaitForACore) {
  Case c(false);
  c.part(Category::kernel) = c.part(Category::core_wait) = 500'000;
  c.analysis.work.calls = {{.title = "update_all", .phase = "update", .ns = 390'000},
                           {.title = "fc1", .op = "linear", .ns = 610'000}};
  EXPECT_FALSE(c.finding("tiny-batch"));
  c.analysis.work.calls[0].ns = 410'000;
  c.analysis.work.calls[1].ns = 590'000;
  ASSERT_TRUE(c.finding("tiny-batch"));
  EXPECT_DOUBLE_EQ(c.finding("tiny-batch")->gain_ns, 102'500);
  EXPECT_THAT(c.finding("tiny-batch")->evidence, HasSubstr("205 us of 1.00 ms per step"));
  Case ranks(false);  // whose exchange is no kernel of theirs
  ranks.part(Category::kernel) = ranks.part(Category::communication) = 500'000;
  ranks.analysis.work.calls = {{.title = "update_all", .phase = "update", .ns = 500'000},
                               {.title = "fc1", .op = "all_reduce", .ns = 500'000}};
  ASSERT_TRUE(ranks.finding("tiny-batch"));
  EXPECT_DOUBLE_EQ(ranks.finding("tiny-batch")->gain_ns, 250'000);
}

// A text model on few tokens: each of many calls is mostly its overhead.
TEST(BatchFindings, TinyBatchOfManyShortCalls) {
  Case c(false);
  const auto with = [&](double ns, double of_peak) {
    c.analysis.work.calls.assign(20, {.op = "linear", .ns = ns, .of_peak = of_peak});
    return c.finding("tiny-batch");
  };
  const auto finding = with(25'000, 0.1);
  ASSERT_TRUE(finding);
  EXPECT_EQ(finding->flag, "--batch 256");
  EXPECT_DOUBLE_EQ(finding->gain_ns, 225'000);
  EXPECT_THAT(finding->evidence, HasSubstr("mostly overhead: 450 us of 1.00 ms per step (45.0 %)"));
  EXPECT_FALSE(with(25'000, 0.3));  // 350 us
  c.part(Category::core_wait) = 200'000;
  EXPECT_TRUE(with(25'000, 0.3)) << "of 800 us that the step computes";
  c.part(Category::core_wait) = 0;
  EXPECT_FALSE(with(25'000, 0));    // not known
  EXPECT_FALSE(with(50'000, 0.1));  // long enough to be work
}

}  // namespace
}  // namespace warpstep::profiler
