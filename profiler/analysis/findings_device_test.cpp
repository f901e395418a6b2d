#include <fmt/format.h>
#include <gmock/gmock.h>

#include "profiler/analysis/testing_findings.h"

namespace warpstep::profiler {
namespace {

using ::testing::AllOf;
using testing::Case;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using testing::SessionBuilder;

TEST(DeviceFindings, NoneForAStepThatIsAllKernels) {
  EXPECT_THAT(Case().findings(), IsEmpty());
}

TEST(DeviceFindings, ExposedCopies) {
  Case c;
  c.part(Category::copy) = 50'000;
  EXPECT_FALSE(c.finding("copies-exposed"));
  c.part(Category::copy) = 50'001;
  ASSERT_TRUE(c.finding("copies-exposed"));
  EXPECT_EQ(c.finding("copies-exposed")->flag, "--tier resident");
  EXPECT_THAT(c.finding("copies-exposed")->evidence,
              HasSubstr("50.0 us of 1.00 ms per step (5.0 %)"));
  EXPECT_DOUBLE_EQ(c.finding("copies-exposed")->gain_ns, 50'001);
  c.options()["normalize"] = "cpu";
  EXPECT_EQ(c.finding("copies-exposed")->flag, "--normalize device");
  EXPECT_DOUBLE_EQ(c.finding("copies-exposed")->gain_ns, 0.75 * 50'001);
  c.options()["normalize"] = "device";
  c.builder.raw().loader["tier"] = "resident";  // is so already
  EXPECT_EQ(c.finding("copies-exposed")->flag, "");
  c.builder.raw().loader = {{"tier", "mapped"}, {"encoding", "tokens"}};  // has no such tier
  EXPECT_EQ(c.finding("copies-exposed")->flag, "");
}

void add_copies(SessionBuilder& builder, double us, std::uint8_t kind, std::uint8_t from,
                std::uint8_t to) {
  for (int i = 0; i < 10; ++i) {
    builder.launch(1000 * i, 1000 * i + 1, What::copy, "copy", 1000 * i + 1, 1000 * i + 1 + us);
    builder.last_activity().copy_kind = kind;
    builder.last_activity().source_memory = from;
    builder.last_activity().target_memory = to;
  }
}

TEST(DeviceFindings, PageableCopies) {
  Case at, above, down, pinned;
  add_copies(at.builder, 10, 1, 1, 3);
  EXPECT_FALSE(at.finding("pageable-copies"));
  add_copies(above.builder, 10.1, 1, 1, 3);
  ASSERT_TRUE(above.finding("pageable-copies"));
  EXPECT_DOUBLE_EQ(above.finding("pageable-copies")->gain_ns, 5050);
  EXPECT_THAT(above.finding("pageable-copies")->evidence, HasSubstr("in 10 copies"));
  add_copies(down.builder, 10.1, 2, 3, 1);
  EXPECT_TRUE(down.finding("pageable-copies"));
  add_copies(pinned.builder, 500, 1, 2, 3);
  EXPECT_FALSE(pinned.finding("pageable-copies"));
}

// Steps of 300 us: a kernel of so many blocks for 50 us, alone or beside another one.
std::optional<Finding> found_with(std::uint32_t blocks, bool alone, const char* op = "conv.wgrad",
                                  bool autotune = false, const char* kernel = "small") {
  Case c;
  SessionBuilder builder;
  builder.gpu();  // 132 multiprocessors
  builder.raw().program = {
      {"calls",
       {{{"title", "conv2"}, {"op", "conv"}}, {{"title", "conv1/conv.wgrad"}, {"op", op}}}}};
  for (int i = 0; i < 10; ++i) {
    const double at = 300.0 * i;
    builder.step(static_cast<std::uint64_t>(i + 1), at, at + 300, 290);
    builder.launch(at, at + 1, What::kernel, "large", at + 2, at + (alone ? 200 : 299));
    builder.last_activity().grid = {200, 1, 1};
    builder.last_activity().external = 1;
    builder.launch(at, at + 1, What::kernel, kernel, at + 210, at + 260);
    builder.last_activity().grid = {1, 1, blocks};
    builder.last_activity().external = 2;
  }
  builder.window(1, 10, 0, 3000, true);
  c.builder = builder;
  c.options() = {{"batch", 128}, {"precision", "bf16"}, {"autotune", autotune}};
  c.analysis.breakdown.step_ns = 300e3;
  c.analysis.fill = device_fill(c.builder.build());
  return c.finding("few-blocks");
}

TEST(DeviceFindings, FewBlocks) {
  EXPECT_FALSE(found_with(66, true)) << "half of the multiprocessors";
  EXPECT_FALSE(found_with(31, false)) << "another kernel fills the device meanwhile";
  const std::optional<Finding> found = found_with(31, true);
  ASSERT_TRUE(found);
  EXPECT_THAT(
      found->evidence,
      HasSubstr("50.0 us of 300 us per step (16.7 %) with thread blocks for fewer than half "
                "of 132: conv1/conv.wgrad 50.0 us on 31"));
  EXPECT_EQ(found->flag, "--autotune");
  EXPECT_NEAR(found->gain_most_ns, 50e3 * (1 - 31.0 / 132), 1);
  EXPECT_EQ(found->gain_least_ns, 0);
  EXPECT_EQ(found_with(31, true, "conv.wgrad", true)->flag, "--batch 256");
  EXPECT_EQ(found_with(31, true, "softmax_xent")->flag, "--batch 256");
  EXPECT_FALSE(
      found_with(24, true, "conv.wgrad", false, "ncclDevKernel_AllReduce_Sum_f32_RING_LL"));
}

TEST(DeviceFindings, CopiesBetweenStepsAreNotOfSteps) {
  const auto found = [](double pause_us) {
    SessionBuilder builder;
    builder.gpu()
        .step(1, 0, 1000)
        .step(2, 1000 + pause_us, 2000 + pause_us)
        .window(1, 2, 0, 2000 + pause_us, true);
    add_copies(builder, 100, 2, 3, 1);  // in each ms
    Case c;
    c.builder = builder;
    return c.finding("pageable-copies");
  };
  ASSERT_TRUE(found(0));
  EXPECT_THAT(found(0)->evidence, HasSubstr("in 2 copies"));
  ASSERT_TRUE(found(5000));  // a checkpoint is written meanwhile
  EXPECT_THAT(found(5000)->evidence, HasSubstr("in 2 copies"));
}

TEST(DeviceFindings, LaunchBound) {
  Case c;
  c.analysis.devices[0].launch_gap_ns = 1'000'000;  // 10 steps: 100 us each
  EXPECT_FALSE(c.finding("launch-bound"));
  c.analysis.devices[0].launch_gap_ns = 1'000'100;
  ASSERT_TRUE(c.finding("launch-bound"));
  EXPECT_EQ(c.finding("launch-bound")->flag, "--batch 256");
  EXPECT_DOUBLE_EQ(c.finding("launch-bound")->gain_ns, 50'005);
  Case full = c;
  const double all = static_cast<double>(full.builder.raw().devices.at(0).total_memory);
  full.builder.raw().program["memory"] = {{"total_bytes", 0.5 * all}, {"arena_bytes", 0.44 * all}};
  EXPECT_EQ(full.finding("launch-bound")->flag, "--batch 256");
  full.builder.raw().program["memory"]["arena_bytes"] = 0.46 * all;
  EXPECT_EQ(full.finding("launch-bound")->flag, "");
  EXPECT_THAT(full.finding("launch-bound")->advice, HasSubstr("does not fit"));
  c.options()["no_graph"] = true;
  EXPECT_EQ(c.finding("launch-bound")->flag, "");
  EXPECT_EQ(c.finding("launch-bound")->advice,
            "leave out --no-graph: each step is then one launch");
  EXPECT_DOUBLE_EQ(c.finding("launch-bound")->gain_ns, 100'010);
}

TEST(DeviceFindings, SyncBoundNamesTheRange) {
  Case c;
  c.part(Category::sync) = 50'000;
  EXPECT_FALSE(c.finding("sync-bound"));
  c.part(Category::sync) = 60'000;
  ASSERT_TRUE(c.finding("sync-bound"));
  EXPECT_THAT(c.finding("sync-bound")->text, HasSubstr("in each step"));
  EXPECT_EQ(c.finding("sync-bound")->flag, "");
  c.builder.span(Kind::range, "step", 0, 1000)
      .span(Kind::range, "observers", 800, 900)
      .span(Kind::sync, "cudaStreamSynchronize", 820, 865)
      .span(Kind::sync, "cudaStreamSynchronize", 10, 25);
  const Finding finding = *c.finding("sync-bound");
  EXPECT_THAT(finding.text, HasSubstr("\"observers\""));
  EXPECT_THAT(finding.evidence, HasSubstr("75.0 % of it there"));
  EXPECT_EQ(finding.flag, "--log-every 100");
  EXPECT_DOUBLE_EQ(finding.gain_ns, 45'000);
  c.options()["log_every"] = 1000;  // is seldom enough
  EXPECT_EQ(c.finding("sync-bound")->flag, "");
}

TEST(DeviceFindings, SyncBoundCountsNoWaitThatNoStepNeeds) {
  Case c;
  c.part(Category::sync) = 60'000;
  c.builder.thread(99, "copier");
  c.builder.span(Kind::range, "observers", 800, 900).span(Kind::sync, "wait", 820, 850);
  // Another thread's, and one while kernels run.
  c.builder.span(Kind::sync, "wait for a buffer", 0, 700, 1).span(Kind::sync, "wait", 300, 700);
  c.builder.launch(200, 205, What::kernel, "k", 210, 790);
  const Finding finding = *c.finding("sync-bound");
  EXPECT_THAT(finding.text, HasSubstr("\"observers\""));
  EXPECT_THAT(finding.evidence, HasSubstr("100.0 % of it there"));
}

TEST(DeviceFindings, SyncBoundFromTheDriversRecords) {
  Case c;
  c.part(Category::sync) = 60'000;
  c.builder.span(Kind::range, "read back", 100, 200)
      .activity({.start_ns = SessionBuilder::at(120),
                 .end_ns = SessionBuilder::at(180),
                 .stream = 4242,
                 .what = What::sync},
                Kind::host_api, "cudaEventSynchronize");
  EXPECT_THAT(c.finding("sync-bound")->text, HasSubstr("\"read back\""));
}

TEST(DeviceFindings, TinyBatch) {
  Case c;
  c.part(Category::runtime) = 200'000;
  c.part(Category::cpu) = 200'000;
  c.part(Category::other) = 99'999;
  EXPECT_FALSE(c.finding("tiny-batch"));
  c.part(Category::other) = 100'000;
  ASSERT_TRUE(c.finding("tiny-batch"));
  EXPECT_EQ(c.finding("tiny-batch")->flag, "--batch 256");
  c.builder.raw().loader["samples"] = 200;
  EXPECT_EQ(c.finding("tiny-batch")->flag, "");
  EXPECT_THAT(c.finding("tiny-batch")->advice, HasSubstr("too few samples"));
  c.builder.raw().loader["samples"] = 256;
  EXPECT_DOUBLE_EQ(c.finding("tiny-batch")->gain_ns, 250'000);
  c.analysis.devices[0].launch_gap_ns = 2'000'000;  // reported once
  EXPECT_FALSE(c.finding("tiny-batch"));
  EXPECT_TRUE(c.finding("launch-bound"));
}

TEST(DeviceFindings, LowUtilization) {
  Case c;
  c.analysis.devices[0].utilization = 0.5;
  EXPECT_FALSE(c.finding("low-utilization"));
  c.analysis.devices[0].utilization = 0.499;
  ASSERT_TRUE(c.finding("low-utilization"));
  EXPECT_EQ(c.finding("low-utilization")->flag, "--batch 256");
  c.options()["accumulate"] = 4;
  EXPECT_EQ(c.finding("low-utilization")->flag, "--batch 256 --accumulate 2");
  c.options()["accumulate"] = 3;
  EXPECT_EQ(c.finding("low-utilization")->flag, "--batch 256");
  c.part(Category::data) = 400'000;
  EXPECT_EQ(c.finding("low-utilization")->flag, "");
  EXPECT_THAT(c.finding("low-utilization")->advice, HasSubstr("loader"));
  c.analysis.devices[0].utilization = 0;  // no kernel was recorded
  EXPECT_FALSE(c.finding("low-utilization"));
}

TEST(DeviceFindings, Communication) {
  Case c;
  c.part(Category::communication) = 100'000;
  EXPECT_FALSE(c.finding("communication"));
  c.part(Category::communication) = 100'001;
  const auto finding = c.finding("communication");
  ASSERT_TRUE(finding);
  EXPECT_EQ(finding->flag, "--batch 256");
  EXPECT_THAT(finding->advice, AllOf(HasSubstr("warpstep ranks"), HasSubstr("docs/distributed.md"),
                                     HasSubstr("WARPSTEP_BUCKET_MIB")));
  c.options()["accumulate"] = 4;  // an update has one exchange
  EXPECT_EQ(c.finding("communication")->flag, "--accumulate 8");
  c.options()["accumulate"] = 1;
  c.options()["global_batch"] = 512;
  EXPECT_EQ(c.finding("communication")->flag, "--global-batch 1024");
  testing::Case host(false);
  host.part(Category::communication) = 200'000;
  EXPECT_THAT(host.finding("communication")->text, HasSubstr("Ranks wait"));
  EXPECT_THAT(host.finding("communication")->advice, Not(HasSubstr("BUCKET")));
}

TEST(Findings, WaitingForASlowRankIsNoCostOfTheExchange) {
  Case c(false);
  c.part(Category::communication) = 300'000;
  c.builder.raw().stamp["rank"] = 0;
  EXPECT_DOUBLE_EQ(c.finding("communication")->gain_ns, 150'000);
  EXPECT_FALSE(c.finding("slow-rank"));
  c.analysis.slow_rank = SlowRank{.rank = 1,
                                  .host = "node1",
                                  .own_ns = 900'000,
                                  .excess_ns = 180'000,
                                  .above = 9,
                                  .compared = 9,
                                  .part = Category::kernel};
  EXPECT_DOUBLE_EQ(c.finding("communication")->gain_ns, 60'000);
  EXPECT_THAT(c.finding("communication")->evidence, HasSubstr("without 180 us"));
  EXPECT_THAT(c.finding("slow-rank")->text, HasSubstr("wait for rank 1 (node1)"));
  EXPECT_THAT(c.finding("slow-rank")->advice, HasSubstr("RUN/ranks/1;"));
  EXPECT_DOUBLE_EQ(c.finding("slow-rank")->gain_ns, 180'000);
  c.builder.raw().stamp["rank"] = 1;  // its own report
  EXPECT_DOUBLE_EQ(c.finding("communication")->gain_ns, 150'000);
  EXPECT_THAT(c.finding("slow-rank")->text, HasSubstr("this one, rank 1"));
}

TEST(DeviceFindings, GainNothingWhileTheStepWaitsForData) {
  Case c;
  c.part(Category::copy) = 60'000;
  c.analysis.devices[0].launch_gap_ns = 2'000'000;
  c.analysis.stall.is_stalled = true;
  for (const Finding& finding : c.findings()) EXPECT_EQ(finding.gain_ns, 0) << finding.key;
}

TEST(DeviceFindings, GainAtMostUntilTheLoaderIsTheSlowerOne) {
  Case c;
  c.analysis.devices[0].launch_gap_ns = 4'000'000;  // 400 us per step, of which half is gained
  c.analysis.stall.is_stalled = true;
  c.analysis.loader.workers = 2;
  c.analysis.loader.work_ns = 1.8e6;  // a batch each 900 us, in steps of 1 ms
  EXPECT_DOUBLE_EQ(c.finding("launch-bound")->gain_ns, 100'000);
  c.analysis.loader.work_ns = 1.2e6;
  EXPECT_DOUBLE_EQ(c.finding("launch-bound")->gain_ns, 200'000);
  c.analysis.loader.work_ns = 2.2e6;
  EXPECT_EQ(c.finding("launch-bound")->gain_ns, 0);
}

TEST(DeviceFindings, AreOfDevicesAlone) {
  Case c(false);
  c.part(Category::copy) = c.part(Category::sync) = 600'000;
  c.analysis.devices[0].utilization = 0.1;
  c.analysis.devices[0].launch_gap_ns = 2'000'000;
  EXPECT_THAT(c.findings(), IsEmpty());
}

using testing::Case;
using ::testing::HasSubstr;

TEST(DeviceFindings, ALoopOfCalls) {
  const auto looped = [](std::uint64_t calls, double ns) {
    Case c(false);
    for (std::uint64_t i = 0; i < calls; ++i)
      c.analysis.work.calls.push_back({.layer = "loss",
                                       .op = i % 2 == 0 ? "token_loss.dgrad" : "add",
                                       .count = 10,
                                       .total_ns = i % 2 == 0 ? 20'000U : 10'000U,
                                       .bytes = 1 << 20});
    c.analysis.work.layers = {{.layer = "loss", .calls = calls, .ns = ns}};
    return c.finding("many-calls");
  };
  EXPECT_FALSE(looped(99, 500'000));
  EXPECT_FALSE(looped(200, 49'000));
  const auto finding = looped(200, 51'000);
  ASSERT_TRUE(finding);
  EXPECT_EQ(finding->text, "Layer loss is 200 calls per step.");
  EXPECT_THAT(
      finding->evidence,
      HasSubstr("(5.1 %): 100 token_loss.dgrad (200 us, 100 MiB), 100 add (100 us, 100 MiB)"));
}

// A convolution and an addition; the convolution takes `share` of the calls' time.
Case with_convolution(double share, const std::string& precision) {
  Case c;
  c.options()["precision"] = precision;
  c.analysis.devices[0].tensor_core_share = 0;
  c.analysis.work.calls = {
      {.call = 0, .title = "conv1/conv", .op = "conv", .phase = "forward", .ns = 1e6 * share},
      {.call = 1, .title = "add", .op = "add", .phase = "forward", .ns = 1e6 * (1 - share)}};
  return c;
}

TEST(KernelFindings, IdleTensorCores) {
  EXPECT_FALSE(with_convolution(0.099, "fp32").finding("tensor-cores"));
  Case c = with_convolution(0.101, "fp32");
  ASSERT_TRUE(c.finding("tensor-cores"));
  EXPECT_EQ(c.finding("tensor-cores")->flag, "--precision bf16");
  EXPECT_NEAR(c.finding("tensor-cores")->gain_ns, 50'500, 1);
  c.builder.raw().devices[0].compute_major = 7;
  EXPECT_EQ(c.finding("tensor-cores")->flag, "--precision fp16");
  c.builder.raw().devices[0].compute_major = 6;
  EXPECT_FALSE(c.finding("tensor-cores"));
}

TEST(KernelFindings, DoNotAdvisePrecisionThatIsSet) {
  for (const char* const precision : {"bf16", "fp16"}) {
    Case c = with_convolution(0.9, precision);
    EXPECT_FALSE(c.finding("tensor-cores")) << precision;
    EXPECT_FALSE(c.finding("half-precision")) << precision;
  }
}

TEST(KernelFindings, HalfPrecisionWhereTensorCoresRun) {
  Case c = with_convolution(0.8, "tf32");
  c.analysis.devices[0].tensor_core_share = 0.05;
  EXPECT_FALSE(c.finding("tensor-cores"));
  ASSERT_TRUE(c.finding("half-precision"));
  EXPECT_NEAR(c.finding("half-precision")->gain_ns, 200'000, 1);
  c.analysis.devices[0].tensor_core_share = 0.049;
  EXPECT_TRUE(c.finding("tensor-cores"));
}

TEST(KernelFindings, UnalignedChannels) {
  Case c;
  const auto call = [&](double ns) {
    c.analysis.work.calls = {{.title = "conv1/conv",
                              .op = "conv",
                              .phase = "forward",
                              .ns = ns,
                              .tensor_cores = "no: channels are not multiples of 8"}};
  };
  call(50'000);
  EXPECT_FALSE(c.finding("unaligned-channels"));
  call(50'001);
  ASSERT_TRUE(c.finding("unaligned-channels"));
  EXPECT_THAT(c.finding("unaligned-channels")->evidence,
              HasSubstr("conv1/conv forward (channels are not multiples of 8)"));
  c.analysis.work.calls[0].tensor_cores = "yes";
  EXPECT_FALSE(c.finding("unaligned-channels"));
}

TEST(KernelFindings, LayoutTransposes) {
  Case c;
  c.analysis.work.kernels = {{.kernel = "void cudnn::nchwToNhwcKernel<...>", .count = 10},
                             {.kernel = "gemm", .count = 10, .total_ns = 9'000'000}};
  c.analysis.work.kernels[0].total_ns = 500'000;  // of ten steps
  EXPECT_FALSE(c.finding("layout-transposes"));
  c.analysis.work.kernels[0].total_ns = 500'010;
  ASSERT_TRUE(c.finding("layout-transposes"));
  EXPECT_EQ(c.finding("layout-transposes")->flag, "--autotune");
  EXPECT_DOUBLE_EQ(c.finding("layout-transposes")->gain_ns, 50'001);
  c.options()["autotune"] = true;
  EXPECT_EQ(c.finding("layout-transposes")->flag, "");
  Case host(false);
  host.analysis.work.calls = {{.title = "conv1/reorder", .op = "reorder", .ns = 60'000}};
  ASSERT_TRUE(host.finding("layout-transposes"));
  EXPECT_THAT(host.finding("layout-transposes")->evidence, HasSubstr("conv1/reorder"));
}

TEST(KernelFindings, StormOfSmallKernels) {
  Case c;
  const auto kernels = [&](std::uint64_t count, double mean_us) {
    c.analysis.work.kernels = {
        {.kernel = "k",
         .count = 10 * count,
         .total_ns = static_cast<std::uint64_t>(10'000 * mean_us * static_cast<double>(count))}};
    return c.finding("small-kernels").has_value();
  };
  EXPECT_TRUE(kernels(100, 4.9));
  EXPECT_FALSE(kernels(99, 4.9));
  EXPECT_FALSE(kernels(100, 5));
  EXPECT_FALSE(kernels(100, 0.99));  // too little of the step
  EXPECT_TRUE(kernels(100, 1.01));
  EXPECT_TRUE(kernels(120, 4));
  EXPECT_EQ(c.finding("small-kernels")->flag, "--batch 256");
  EXPECT_DOUBLE_EQ(c.finding("small-kernels")->gain_ns, 120'000);
  EXPECT_EQ(c.finding("small-kernels")->evidence, "120 kernels per step of 4.00 us on average");
  c.options()["no_fuse"] = {"bias"};
  EXPECT_EQ(c.finding("small-kernels")->flag, "");
  EXPECT_EQ(c.finding("small-kernels")->advice,
            "leave out --no-fuse: fused calls are fewer kernels");
}

TEST(KernelFindings, SlowLayerIsToldWithoutAFlag) {
  for (const bool gpu : {true, false}) {
    Case c(gpu);
    const auto layer = [&](double ns, double of_peak, const char* name = "fc") {
      c.analysis.work.layers = {{.layer = name, .ns = ns, .of_peak = of_peak}};
      return c.finding("slow-layer");
    };
    EXPECT_FALSE(layer(200'000, 0.1, ""));  // updates and exchanges
    EXPECT_FALSE(layer(199'999, 0.1));
    EXPECT_FALSE(layer(200'000, 0.2));
    EXPECT_FALSE(layer(200'000, 0));  // not known
    ASSERT_TRUE(layer(200'000, 0.199));
    EXPECT_EQ(layer(200'000, 0.1)->flag, "");
    EXPECT_EQ(layer(200'000, 0.1)->gain_ns, 0);
    c.analysis.contention.affinity_cores = 2;
    c.analysis.contention.others_share = 0.4;
    EXPECT_EQ(layer(200'000, 0.1).has_value(), gpu) << "it waits for a core";
  }
}

// Each is small, all together are not.
TEST(KernelFindings, SlowOpsOfEveryBlockAreAddedUp) {
  Case c(false);
  const auto blocks = [&](int count, double ns, double of_peak) {
    c.analysis.work.calls.clear();
    for (int i = 0; i < count; ++i)
      for (const char* op : {"layer_norm", "layer_norm.dgrad", "linear"})
        c.analysis.work.calls.push_back({.layer = fmt::format("h.{}.ln_1", i),
                                         .op = op,
                                         .ns = op[1] == 'a' ? ns / 2 : 1e4,
                                         .of_peak = op[1] == 'a' ? of_peak : 0.9});
    return c.finding("slow-blocks");
  };
  const auto finding = blocks(12, 11'667, 0.05);
  ASSERT_TRUE(finding);
  EXPECT_EQ(finding->text,
            "layer_norm in 12 blocks: 14.0 % of a step, far below this machine's peak.");
  EXPECT_THAT(finding->evidence, HasSubstr("140 us of 1.00 ms per step (14.0 %)"));
  EXPECT_EQ(finding->flag, "");
  EXPECT_FALSE(blocks(12, 8'300, 0.05));  // below 10 % of a step
  EXPECT_FALSE(blocks(12, 11'667, 0.2));
  EXPECT_FALSE(blocks(12, 11'667, 0));     // not known
  EXPECT_FALSE(blocks(2, 100'000, 0.05));  // no repeated block
  EXPECT_TRUE(blocks(3, 50'000, 0.05));
  EXPECT_FALSE(blocks(12, 40'000, 0.05)) << "short calls of a tiny batch";
  EXPECT_TRUE(c.finding("tiny-batch"));
  EXPECT_TRUE(blocks(3, 50'000, 0.05));
  for (CallRow& call : c.analysis.work.calls) call.layer = "ln_1";
  EXPECT_FALSE(c.finding("slow-blocks"));
}

}  // namespace
}  // namespace warpstep::profiler
