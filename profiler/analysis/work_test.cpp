#include "profiler/analysis/work.h"

#include <gtest/gtest.h>

#include <numeric>

#include "profiler/analysis/breakdown.h"
#include "profiler/analysis/modules.h"
#include "profiler/analysis/testing_goldens.h"
#include "profiler/session/testing_builder.h"

namespace warpstep::profiler {
namespace {

using testing::SessionBuilder;

Json value(const std::string& dtype, std::vector<int> shape) {
  return {{"name", "x"}, {"dtype", dtype}, {"shape", std::move(shape)}};
}

Json call(const std::string& layer, const std::string& op, const std::string& phase, double flops,
          double bytes, int channels = 8) {
  return {{"title", layer + " " + op},
          {"op", op},
          {"layer", layer},
          {"phase", phase},
          {"in", {value("f32", {128, 32, 32, channels}), value("u8", {3})}},
          {"out", {value("f32", {128, 32, 32, 16})}},
          {"flops", flops},
          {"bytes", bytes},
          {"implementation", "kernel of " + op}};
}

// conv1 forward and weight gradient, relu, update.
Json four_calls() {
  return {
      {"calls",
       {call("conv1", "conv", "forward", 4e6, 1e3), call("conv1", "conv.wgrad", "wgrad", 8e6, 2e3),
        call("relu1", "relu", "forward", 0, 4e3, 3), call("", "update", "update", 100, 8e3)}}};
}

SessionBuilder on_host() {
  SessionBuilder builder;
  builder.step(1, 0, 100).step(2, 100, 200).window(1, 2, 0, 200);
  for (const double s : {0.0, 100.0})
    builder.span(Kind::call, "conv1 conv", s, s + 20, 0, 0)
        .span(Kind::call, "relu1 relu", s + 20, s + 30, 0, 2)
        .span(Kind::call, "conv1 conv.wgrad", s + 30, s + (s > 0 ? 70 : 50), 0, 1)
        .span(Kind::call, "update", s + 80, s + 85, 0, 3);
  builder.raw().program = four_calls();
  builder.raw().peaks = {{"flops_per_second", {{"fp32", 1e12}, {"bf16", 4e12}}},
                         {"bytes_per_second", 1e9}};
  return builder;
}

TEST(Work, KnowsTheCallsOfAHost) {
  const Work work = find_work(on_host().build());
  ASSERT_EQ(work.calls.size(), 4U);
  const CallRow& conv = work.calls[0];
  EXPECT_EQ(conv.title, "conv1 conv");
  EXPECT_EQ(conv.inputs, "f32 128x32x32x8, u8 3");
  EXPECT_EQ(conv.count, 2U);
  EXPECT_EQ(conv.total_ns, 40'000U);
  EXPECT_DOUBLE_EQ(conv.ns, 20e3);
  EXPECT_DOUBLE_EQ(conv.share, 0.2);
  EXPECT_EQ(conv.host_ns, 0U);
  EXPECT_DOUBLE_EQ(conv.flops_per_second, 4e6 / 20e-6);
  EXPECT_DOUBLE_EQ(conv.of_peak, 0.2);  // 4000 FLOP per byte: 4 us at the peak
  EXPECT_EQ(conv.bound, "compute");
  EXPECT_EQ(conv.tensor_cores, "");
  const CallRow& weights = work.calls[1];
  EXPECT_EQ(weights.phase, "weight_grad");
  EXPECT_DOUBLE_EQ(weights.ns, 30e3);
  EXPECT_DOUBLE_EQ(weights.p95_ns, 39e3);
  const CallRow& relu = work.calls[2];
  EXPECT_DOUBLE_EQ(relu.of_peak, 0.4);  // 4 us by its bytes
  EXPECT_EQ(relu.bound, "memory");
  EXPECT_DOUBLE_EQ(work.attributed, 1);
  EXPECT_EQ(work.peaks.flops_per_second, 1e12);
}

// With --accumulate 4 an update is in every fourth step.
TEST(Work, ACallThatFewStepsRunHasItsShareOfThem) {
  SessionBuilder builder;
  for (std::uint64_t s = 1; s <= 8; ++s) {
    const double at = 100.0 * static_cast<double>(s - 1);
    builder.step(s, at, at + 100).span(Kind::call, "conv1 conv", at, at + 20, 0, 0);
    if (s % 4 == 0) builder.span(Kind::call, "update", at + 40, at + 80, 0, 3);
  }
  builder.window(1, 8, 0, 800).raw().program = four_calls();
  const Work work = find_work(builder.build());
  ASSERT_EQ(work.calls.size(), 4U);
  EXPECT_DOUBLE_EQ(work.calls[0].ns, 20e3);
  EXPECT_DOUBLE_EQ(work.calls[1].ns, 0) << "never ran";
  const CallRow& update = work.calls[3];
  EXPECT_DOUBLE_EQ(update.ns, 10e3);
  EXPECT_DOUBLE_EQ(update.median_ns, 40e3) << "of its own two runs, as the percentile";
  EXPECT_DOUBLE_EQ(update.p95_ns, 40e3);
}

// In the other steps the optimiser's call returns at once, which is no update; a sum of gradients
// is made in each.
TEST(Work, AnUpdateRunsInTheLastOfItsStepsAlone) {
  for (const bool gpu : {false, true}) {
    SessionBuilder builder;
    if (gpu) builder.gpu();
    const auto run = [&](double from, double to, std::uint32_t call) {
      if (gpu)
        builder.launch(from - 20, from - 19, What::kernel, "k", from, to, 7, call + 1);
      else
        builder.span(Kind::call, "call", from, to, 0, call);
    };
    for (std::uint64_t s = 1; s <= 8; ++s) {
      const double at = 100.0 * static_cast<double>(s);
      builder.step(s, at, at + 100);
      run(at + 30, at + 40, 2);
      run(at + 40, at + (s % 4 == 0 ? 80 : 42), 3);
    }
    builder.window(1, 8, 100, 900).raw().program = four_calls();
    builder.raw().program["calls"][2] = call("", "accumulate", "update", 10, 4e3);
    builder.raw().stamp["options"]["accumulate"] = 4;
    const Work work = find_work(builder.build());
    ASSERT_EQ(work.calls.size(), 4U);
    EXPECT_EQ(work.calls[2].count, 8U);
    const CallRow& update = work.calls[3];
    EXPECT_EQ(update.count, 2U);
    EXPECT_EQ(update.total_ns, 80'000U);
    EXPECT_DOUBLE_EQ(update.ns, 10e3) << "per step";
    EXPECT_DOUBLE_EQ(update.flops_per_second, 100 / 40e-6);
    if (gpu) continue;  // where such launches take their time, too
    std::uint64_t runs = 0, total_ns = 0;
    for (const KernelRow& kernel : work.kernels) runs += kernel.count, total_ns += kernel.total_ns;
    EXPECT_EQ(runs, 10U);
    EXPECT_EQ(total_ns, work.calls[2].total_ns + update.total_ns);
  }
}

TEST(Work, ACallOfEverySecondStepHasHalfOfItsTimeInAnyWindow) {
  for (const std::uint64_t steps : {4U, 5U}) {  // the window begins with an update
    SessionBuilder builder;
    for (std::uint64_t s = 1; s <= steps; ++s) {
      const double at = 100.0 * static_cast<double>(s - 1);
      builder.step(s, at, at + 100).span(Kind::call, "conv1 conv", at, at + 20, 0, 0);
      if (s % 2 == 1) builder.span(Kind::call, "update", at + 40, at + 80, 0, 3);
    }
    const double end = 100.0 * static_cast<double>(steps);
    builder.window(1, steps, 0, end).raw().program = four_calls();
    const Work work = find_work(builder.build());
    EXPECT_NEAR(work.calls[3].ns, 20e3, 4e3 + 1) << steps;
  }
}

// A slow run in some steps would make the mean say another rate than the time that is shown.
TEST(Work, RatesAreThoseOfTheMedian) {
  SessionBuilder builder;
  for (int s = 0; s < 5; ++s) {
    const double at = 1000.0 * s;
    builder.step(static_cast<std::uint64_t>(s) + 1, at, at + 1000);
    builder.span(Kind::call, "conv1 conv", at, at + (s == 2 ? 500 : 20), 0, 0);
    if (s > 0)  // of one step it was lost
      builder.span(Kind::call, "conv1 conv.wgrad", at + 600, at + 640, 0, 1);
    if (s % 4 == 0) builder.span(Kind::call, "update", at + 700, at + 750, 0, 3);
  }
  builder.window(1, 5, 0, 5000).raw().program = four_calls();
  builder.raw().peaks = {{"flops_per_second", {{"fp32", 1e12}}}, {"bytes_per_second", 1e9}};
  const Work work = find_work(builder.build());
  const CallRow& conv = work.calls[0];
  EXPECT_DOUBLE_EQ(conv.ns, 20e3);
  EXPECT_DOUBLE_EQ(conv.flops_per_second * conv.ns * 1e-9, conv.flops);
  EXPECT_DOUBLE_EQ(conv.bytes_per_second * conv.ns * 1e-9, conv.bytes);
  EXPECT_DOUBLE_EQ(conv.of_peak, 4.0 / 20);
  EXPECT_DOUBLE_EQ(work.calls[1].flops_per_second, 8e6 / 40e-6);
  EXPECT_DOUBLE_EQ(work.calls[3].ns, 20e3) << "per step";
  EXPECT_DOUBLE_EQ(work.calls[3].flops_per_second, 100 / 50e-6);
}

TEST(Work, SumsLayersOpsAndImplementations) {
  const Work work = find_work(on_host().build());
  ASSERT_EQ(work.layers.size(), 3U);
  EXPECT_EQ(work.layers[0].layer, "conv1");
  EXPECT_EQ(work.layers[0].calls, 2U);
  EXPECT_DOUBLE_EQ(work.layers[0].forward_ns, 20e3);
  EXPECT_DOUBLE_EQ(work.layers[0].weight_grad_ns, 30e3);
  EXPECT_DOUBLE_EQ(work.layers[0].ns, 50e3);
  EXPECT_DOUBLE_EQ(work.layers[0].flops, 12e6);
  EXPECT_DOUBLE_EQ(work.layers[0].of_peak, 12.0 / 50);
  EXPECT_EQ(work.layers[2].layer, "");
  EXPECT_DOUBLE_EQ(work.layers[2].update_ns, 5e3);
  ASSERT_EQ(work.ops.size(), 4U);
  EXPECT_EQ(work.ops[0].op, "conv.wgrad");
  EXPECT_DOUBLE_EQ(work.ops[0].share, 0.3);
  EXPECT_EQ(work.ops[0].count, 2U);
  ASSERT_EQ(work.kernels.size(), 4U);
  EXPECT_EQ(work.kernels[0].kernel, "kernel of conv.wgrad");
  EXPECT_EQ(work.kernels[0].min_ns, 20'000U);
  EXPECT_EQ(work.kernels[0].max_ns, 40'000U);
  EXPECT_DOUBLE_EQ(work.kernels[0].mean_ns, 30e3);
  EXPECT_DOUBLE_EQ(work.kernels[0].share, 60.0 / 130);
}

TEST(Work, TakesThePeakOfTheRunsPrecision) {
  SessionBuilder builder = on_host();
  builder.raw().stamp = {{"options", {{"precision", "bf16"}}}};
  EXPECT_EQ(find_work(builder.build()).peaks.flops_per_second, 4e12);
  builder.raw().stamp["options"]["precision"] = "fp16";
  const Work unknown = find_work(builder.build());
  EXPECT_EQ(unknown.peaks.flops_per_second, 0);
  EXPECT_EQ(unknown.calls[0].of_peak, 0);
  EXPECT_EQ(unknown.calls[0].bound, "");
  EXPECT_DOUBLE_EQ(unknown.calls[2].of_peak, 0.4);  // bytes alone
}

TEST(Work, AttributesWhatADeviceDid) {
  SessionBuilder builder;
  builder.gpu().step(1, 0, 100).window(1, 1, 0, 100, true);
  builder.raw().program = four_calls();
  builder.launch(0, 1, What::kernel, "sm90_xmma_fprop", 10, 20, 7, 1);
  builder.launch(1, 2, What::kernel, "wgrad_simt", 20, 40, 7, 2);
  builder.launch(2, 3, What::kernel, "relu_kernel", 40, 45, 7, 3);
  builder.launch(3, 4, What::kernel, "stray", 50, 60);
  builder.launch(3, 4, What::set, "Memset (Device)", 60, 64, 7, 4);
  builder.launch(3, 4, What::kernel, "after the step", 100, 160, 7, 1);
  builder.span(Kind::call, "conv1 conv", 0, 2, 0, 0);
  const Work work = find_work(builder.build());
  ASSERT_EQ(work.calls.size(), 5U);
  EXPECT_EQ(work.calls[0].total_ns, 10'000U);
  EXPECT_EQ(work.calls[0].host_ns, 2'000U);
  EXPECT_EQ(work.calls[0].count, 1U);
  EXPECT_EQ(work.calls[0].tensor_cores, "yes");
  EXPECT_EQ(work.calls[1].total_ns, 20'000U);
  EXPECT_EQ(work.calls[1].count, 1U);
  EXPECT_EQ(work.calls[1].tensor_cores, "no: computed in fp32");
  EXPECT_EQ(work.calls[2].total_ns, 5'000U);
  EXPECT_EQ(work.calls[2].tensor_cores, "");
  EXPECT_EQ(work.calls[3].total_ns, 4'000U);
  EXPECT_EQ(work.calls[4].call, -1);
  EXPECT_EQ(work.calls[4].title, "(not of a call)");
  EXPECT_EQ(work.calls[4].total_ns, 10'000U);
  EXPECT_DOUBLE_EQ(work.attributed, 35.0 / 45);
  double layers = 0;
  for (const LayerRow& layer : work.layers) layers += layer.ns;
  EXPECT_DOUBLE_EQ(layers, 49e3);  // nothing is lost
  ASSERT_EQ(work.kernels.size(), 4U);
  EXPECT_EQ(work.kernels[0].kernel, "wgrad_simt");
}

// Each has its own time, and the step what is left when each moment is counted once.
TEST(Work, DividesWhatRanAtOnceAmongTheShares) {
  SessionBuilder builder;
  builder.gpu().step(1, 0, 100).window(1, 1, 0, 100, true);
  builder.raw().program = four_calls();
  builder.launch(0, 1, What::kernel, "conv", 10, 60, 7, 1);
  builder.launch(1, 2, What::kernel, "wgrad", 40, 80, 8, 2);
  builder.launch(2, 3, What::copy, "HtoD", 50, 90, 13);
  const Session session = builder.build();
  const Work work = find_work(session);
  EXPECT_EQ(work.calls[0].total_ns, 50'000U);
  EXPECT_EQ(work.calls[1].total_ns, 40'000U);
  EXPECT_DOUBLE_EQ(work.calls[0].share, 0.4);
  EXPECT_DOUBLE_EQ(work.calls[1].share, 0.3);
  EXPECT_DOUBLE_EQ(work.calls[4].share, 0.1) << "the copy after the kernels";
  EXPECT_TRUE(work.has_overlaps);
  const Breakdown breakdown = break_down(session);
  const std::vector<ModuleRow> modules = find_modules(work);
  ASSERT_FALSE(modules.empty());
  EXPECT_NEAR(modules[0].share,
              (breakdown.mean[static_cast<std::size_t>(Category::kernel)] +
               breakdown.mean[static_cast<std::size_t>(Category::copy)]) /
                  breakdown.step_ns,
              1e-9);
  EXPECT_FALSE(find_work(on_host().build()).has_overlaps);
}

TEST(Work, SaysWhyTensorCoresAreNotUsed) {
  SessionBuilder builder;
  builder.gpu().step(1, 0, 100).window(1, 1, 0, 100, true);
  builder.raw().program = {
      {"calls",
       {call("a", "conv", "forward", 1, 1, 8), call("b", "linear", "forward", 1, 1, 12),
        call("c", "relu", "forward", 1, 1, 3)}}};
  for (std::uint32_t i = 1; i <= 3; ++i)
    builder.launch(0, 1, What::kernel, "simt_sgemm", 10 * i, 10 * i + 5, 7, i);
  const auto reasons = [&](const char* precision) {
    builder.raw().stamp = {{"options", {{"precision", precision}}}};
    std::vector<std::string> texts;
    for (const CallRow& row : find_work(builder.build()).calls) texts.push_back(row.tensor_cores);
    return texts;
  };
  using Texts = std::vector<std::string>;
  EXPECT_EQ(reasons("bf16"), (Texts{"no", "no: channels are not multiples of 8", ""}));
  EXPECT_EQ(reasons("tf32"), (Texts{"no", "no", ""}));
  EXPECT_EQ(reasons("fp32"), (Texts{"no: computed in fp32", "no: computed in fp32", ""}));
  for (Json& value : builder.raw().program["calls"][1]["in"]) value["layout"] = "8x16";
  for (Json& value : builder.raw().program["calls"][1]["out"]) value["layout"] = "8x16";
  EXPECT_EQ(reasons("bf16"), (Texts{"no", "no", ""})) << "stored with more channels";
  builder.raw().program["calls"][1]["implementation"] = "few outputs";
  EXPECT_EQ(reasons("bf16"), (Texts{"no", "no: few outputs", ""}));
}

// A graph of the call 1 with two kernels, launched at `at`, that run in these two spans of time.
void replay(SessionBuilder& builder, double at, Interval first, Interval second) {
  builder.launch(at, at + 5, What::kernel, "a", static_cast<double>(first.begin_ns),
                 static_cast<double>(first.end_ns), 7, 1);
  builder.last_activity().graph_node = 5;
  const std::uint32_t launch = builder.last_activity().correlation;
  builder.launch(at, at + 5, What::kernel, "b", static_cast<double>(second.begin_ns),
                 static_cast<double>(second.end_ns), 7, 1);
  builder.last_activity().graph_node = 6;
  builder.last_activity().correlation = launch;
}

TEST(Work, CountsReplaysOfAGraphOnce) {
  SessionBuilder builder;
  builder.gpu().step(1, 0, 100).step(2, 100, 200).window(1, 2, 0, 200, true);
  builder.raw().program = four_calls();
  replay(builder, 0, {10, 20}, {20, 50});
  replay(builder, 100, {110, 120}, {120, 150});
  const Work work = find_work(builder.build());
  EXPECT_EQ(work.calls[0].count, 2U);
  EXPECT_DOUBLE_EQ(work.calls[0].ns, 40e3);
}

TEST(Work, CountsAReplayOnceWhereAStepEndsWithinACall) {
  SessionBuilder builder;
  builder.gpu().step(1, 0, 100).step(2, 100, 200).window(1, 2, 0, 200, true);
  builder.raw().program = four_calls();
  replay(builder, 0, {10, 20}, {20, 50});
  replay(builder, 60, {90, 98}, {101, 120});
  EXPECT_EQ(find_work(builder.build()).calls[0].count, 2U);
}

TEST(Work, CountsCallsThatRunByThemselvesBesideReplays) {
  SessionBuilder builder;
  builder.gpu().step(1, 0, 100).step(2, 100, 200).step(3, 200, 300).window(1, 3, 0, 300, true);
  builder.raw().program = four_calls();
  builder.span(Kind::call, "conv1", 5, 10).launch(6, 8, What::kernel, "a", 10, 20, 7, 1);
  // Recording a graph makes the calls' spans, and runs nothing.
  builder.span(Kind::range, "capture", 100, 120).span(Kind::call, "conv1", 105, 110);
  replay(builder, 120, {130, 140}, {140, 150});
  replay(builder, 200, {210, 220}, {220, 250});
  EXPECT_EQ(find_work(builder.build()).calls[0].count, 3U);
}

TEST(Work, ListsKernelsByLaunch) {
  const Work work = find_work(testing::four_steps());
  ASSERT_EQ(work.kernels.size(), 2U);
  EXPECT_EQ(work.kernels[0].count, 4U);
  EXPECT_EQ(work.kernels[0].launch, "grid 50x1x1 block 192x1x1, 0 registers, 0 B");
  EXPECT_DOUBLE_EQ(work.kernels[0].blocks_per_multiprocessor, 0.5);
  EXPECT_DOUBLE_EQ(work.kernels[0].occupancy, 0.06);
  EXPECT_TRUE(work.kernels[0].tensor_cores);
  EXPECT_DOUBLE_EQ(work.kernels[1].occupancy, 1);
  EXPECT_DOUBLE_EQ(work.kernels[1].share, 1.0 / 3);
  // Without a program, calls are named as their spans are.
  ASSERT_EQ(work.calls.size(), 4U);
  EXPECT_EQ(work.calls[1].title, "conv1");
  EXPECT_DOUBLE_EQ(work.calls[1].ns, 200e3);
  EXPECT_EQ(work.calls[1].host_ns, 400'000U);
}

TEST(Work, GivesFunctionsTheirOwnTime) {
  SessionBuilder builder;
  builder.gpu()
      .thread(99, "copier")
      .step(1, 0, 100)
      .window(1, 1, 0, 100, true)
      .span(Kind::range, "observer", 0, 60)
      .span(Kind::call, "conv1", 10, 30)
      .span(Kind::range, "observer", 40, 50)
      .span(Kind::mark, "mark", 45, 45)
      .span(Kind::range, "copying", 0, 90, 1)
      .launch(20, 25, What::kernel, "k", 50, 60);
  const Work work = find_work(builder.build());
  ASSERT_EQ(work.host.size(), 3U);
  EXPECT_EQ(work.host[0].function, "copying");
  EXPECT_EQ(work.host[0].share, 0);  // not of the trainer's thread
  EXPECT_EQ(work.host[1].function, "observer");
  EXPECT_EQ(work.host[1].count, 2U);
  EXPECT_EQ(work.host[1].total_ns, 70'000U);
  EXPECT_EQ(work.host[1].self_ns, 40'000U);
  EXPECT_EQ(work.host[1].max_ns, 60'000U);
  EXPECT_DOUBLE_EQ(work.host[1].share, 0.4);
  EXPECT_EQ(work.host[2].function, "cudaLaunchKernel");
  EXPECT_EQ(work.host[2].kind, "api");
  EXPECT_EQ(work.host[2].self_ns, 5'000U);
}

TEST(Work, SurvivesAnyProgram) {
  EXPECT_TRUE(find_work(Session{}).calls.empty());
  for (const char* text : {"null", "[]", "7", R"({"calls": 3})", R"({"calls": [null, 7, "x", []]})",
                           R"({"calls": [{"title": 7, "in": 3, "out": [1], "flops": "x"}]})",
                           R"({"calls": [{"in": [{"shape": ["a", -1, null]}], "flops": -4}]})"}) {
    SessionBuilder builder = on_host();
    builder.raw().program = Json::parse(text);
    builder.raw().peaks = Json::parse(text);
    const Work work = find_work(builder.build());
    double sum = 0;
    for (const CallRow& row : work.calls) sum += static_cast<double>(row.total_ns);
    EXPECT_EQ(sum, 130e3) << text;
  }
}

TEST(Work, WithoutWindowsListsTheProgram) {
  Session session;
  session.program = four_calls();
  const Work work = find_work(session);
  ASSERT_EQ(work.calls.size(), 4U);
  EXPECT_EQ(work.calls[0].count, 0U);
  EXPECT_EQ(work.calls[0].share, 0);
  EXPECT_TRUE(work.kernels.empty());
  EXPECT_EQ(work.attributed, 0);
}

}  // namespace
}  // namespace warpstep::profiler
