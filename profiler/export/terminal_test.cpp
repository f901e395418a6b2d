#include <gmock/gmock.h>

#include <sstream>

#include "profiler/export/export.h"
#include "profiler/export/testing_analysis.h"

namespace warpstep::profiler {
namespace {

using testing::cpu_example;
using testing::Example;
using testing::gpu_example;

constexpr std::string_view golden = R"~(cifar10cnn on the CPU, batch 128, fp32
A step takes 42.4 ms: 68.3 % kernels, 29.3 % loader wait, 2.1 % CPU; 3,022
samples/s in steps.

Where a step's time goes (mean of 20 steps, recorded with spans)
  kernels          28.9 ms  68.3 %  ███████████████████████████▎
  loader wait      12.4 ms  29.3 %  ███████████▊
  CPU               900 us   2.1 %  ▉
  idle, other       110 us   0.3 %  ▏

Modules, longest first  forward backward   update   share line of the model
block1                  1.67 ms  4.52 ms  32.4 us  14.7 % cifar10cnn.cpp:20-22
block2                  1.49 ms  4.01 ms  32.4 us  13.1 % cifar10cnn.cpp:20-22
block3                  1.30 ms  3.50 ms  32.4 us  11.4 % cifar10cnn.cpp:20-22
block4                  1.11 ms  2.99 ms  32.4 us   9.7 % cifar10cnn.cpp:20-22
block5                   918 us  2.48 ms  32.4 us   8.1 % cifar10cnn.cpp:20-22
block6                   729 us  1.97 ms  32.4 us   6.4 % cifar10cnn.cpp:20-22
block7                   540 us  1.46 ms  32.4 us   4.8 % cifar10cnn.cpp:20-22
head                    13.5 us        -        - < 0.1 %

Longest 10 of 71 calls     phase         median      p95   share GFLOP/s of peak
block1/conv                weight_grad  1.94 ms  2.10 ms   4.6 %    1437  75.6 %
block2/conv                weight_grad  1.72 ms  1.86 ms   4.1 %    1437  75.6 %
block1/conv                data_grad    1.67 ms  1.81 ms   4.0 %    1667  87.7 %
block3/conv                weight_grad  1.50 ms  1.62 ms   3.5 %    1437  75.6 %
block2/conv                data_grad    1.49 ms  1.60 ms   3.5 %    1667  87.7 %
block1/conv                forward      1.34 ms  1.45 ms   3.2 %    2083  97.0 %
block3/conv                data_grad    1.30 ms  1.40 ms   3.1 %    1667  87.7 %
block4/conv                weight_grad  1.28 ms  1.39 ms   3.0 %    1437  75.6 %
block2/conv                forward      1.19 ms  1.28 ms   2.8 %    2083  97.0 %
block4/conv                data_grad    1.11 ms  1.20 ms   2.6 %    1667  87.7 %

What to do next
 1. Steps wait for the loader.
    12.3 of 41.0 ms per step (30 %); decode is 71 % of 164 ms worker time per
    batch, CPU-bound.
    Use 6 workers: 8 cores are there. Saves 12.3 ms per step (1.41x), 4.81 s per
    epoch.
 2. Normalisation is bound by memory and not fused.
    21 calls move 546 MB per step at 62 % of the measured bandwidth.
    Let the fusion of norm and relu be on. Saves 1.10 ms per step (1.03x), 430
    ms per epoch.
 3. The last layers are too small for the cores.
    block7 reaches 11 % of its peak.
    Use a larger batch if the accuracy allows it.

Recording cost < 0.1 % of a step (21.0 us); nothing was lost.
Machine: CPU Xeon Platinum 8468; instruction set not recorded; clocks not
readable; boost not readable; SMT not readable; allowed CPUs 0-7; CPU quota 8.00
cores; pinned not recorded; load at the start 0.40.
- The CPU's frequency cannot be read: cpufreq is not there.
)~";

TEST(TerminalReport, SaysAllOnAScreen) {
  const Example example = cpu_example();
  EXPECT_EQ(terminal_report(example.session, example.analysis), golden);
}

// Ten of hundreds of calls alike say little: then ops, with how often each is called.
TEST(TerminalReport, SumsCallsByOpWhereTheyAreManyAlike) {
  Example example = cpu_example();
  for (CallRow& call : example.analysis.work.calls) call.share = 0.01;
  example.analysis.work.ops = {
      {.op = "add", .phase = "data_grad", .count = 400, .ns = 1e6, .share = 0.02, .bytes = 1 << 20},
      {.op = "token_loss",
       .phase = "forward",
       .count = 2000,
       .ns = 4e6,
       .share = 0.1,
       .flops = 5e7}};
  EXPECT_THAT(
      terminal_report(example.session, example.analysis),
      ::testing::HasSubstr(
          "Longest 2 of 2 ops         phase         calls     time   share      MiB   GFLOP\n"
          "token_loss                 forward         100  4.00 ms  10.0 %      0.0    0.05\n"
          "add                        data_grad        20  1.00 ms   2.0 %      1.0       -\n"));
}

TEST(TerminalReport, ShowsTheTreeToADepth) {
  const Example example = cpu_example();
  EXPECT_EQ(terminal_report(example.session, example.analysis, {.depth = 0}).find("Modules"),
            std::string::npos);
  EXPECT_THAT(
      terminal_report(example.session, example.analysis, {.depth = 2}),
      ::testing::HasSubstr(
          "\nblock7                   540 us  1.46 ms  32.4 us   4.8 % cifar10cnn.cpp:20-22\n"
          "  conv                        -   626 us        -   1.5 % cifar10cnn.cpp:2"));
}

// Of characters, not bytes.
std::size_t widest(const std::string& text) {
  std::istringstream lines(text);
  std::size_t most = 0;
  for (std::string line; std::getline(lines, line);)
    most = std::max(most, static_cast<std::size_t>(std::ranges::count_if(
                              line, [](char c) { return (c & 0xC0) != 0x80; })));
  return most;
}

TEST(TerminalReport, HasTheGpuAndStaysIn80Columns) {
  Example example = gpu_example();
  for (CallRow& call : example.analysis.work.calls)
    call.title = "encoder/layer\u00e4\u00e4\u00e4/attention/output/dense+bias+gelu";
  const std::string text = terminal_report(example.session, example.analysis);
  EXPECT_THAT(text, ::testing::HasSubstr("NVIDIA H200 0: kernels run 65.2 % of the steps' time"));
  EXPECT_THAT(text,
              ::testing::HasSubstr("\nencoder/layer\u00e4\u00e4\u00e4/attent... weight_grad"));
  EXPECT_THAT(text, ::testing::HasSubstr("1 more in report.html."));
  example.analysis.devices[0].of_windows = true;
  EXPECT_THAT(terminal_report(example.session, example.analysis),
              ::testing::HasSubstr("kernels run 65.2 % of the windows' time"));
  EXPECT_THAT(text, ::testing::HasSubstr("clocks agree\nwithin 1.20 us"));
  EXPECT_LE(widest(text), 80U);
}

TEST(TerminalReport, TellsWhatTheGpusCountersSaid) {
  Example example = gpu_example();
  example.analysis.devices[0].measured = {.sm_active = 0.81, .tensor_pipe = 0.3, .dram = 0.375};
  std::string text = terminal_report(example.session, example.analysis);
  EXPECT_THAT(text, ::testing::HasSubstr("occupancy\n37.4 % (estimated).\nNVIDIA H200 0, measured: "
                                         "multiprocessors active 81.0 %, tensor pipe 30.0 %, DRAM\n"
                                         "throughput 37.5 %.\n"));
  example.session.activities.clear();
  text = terminal_report(example.session, example.analysis);
  EXPECT_EQ(text.find("kernels run"), std::string::npos);
  EXPECT_THAT(text, ::testing::HasSubstr("\n\nNVIDIA H200 0, measured: "));
}

TEST(TerminalReport, PrintsNothingThatATerminalWouldObey) {
  Example example = cpu_example();
  example.analysis.work.calls.front().title = "a\x1b[31mred\nline";
  example.analysis.work.calls.front().share = 0.9;
  example.analysis.findings.front().text = "Steps\x07 wait.";
  const std::string text = terminal_report(example.session, example.analysis);
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
  EXPECT_THAT(text, ::testing::HasSubstr("\na?[31mred?line "));
  EXPECT_THAT(text, ::testing::HasSubstr("Steps? wait."));
}

TEST(TerminalReport, SaysThatThereIsNothing) {
  EXPECT_EQ(terminal_report({}, {}),
            "Training run on the CPU\nNo step was recorded.\n\n\n"
            "Calls were not recorded; --profile spans records them.\n\nRecording cost 0.0 % "
            "of a step (0 ns); nothing was lost.\n");
}

TEST(TerminalReport, SaysWhenNothingWasFound) {
  Example example = cpu_example();
  example.analysis.findings.clear();
  EXPECT_THAT(terminal_report(example.session, example.analysis),
              ::testing::HasSubstr("\nNothing was found that an option would shorten.\n"));
}

TEST(TerminalReport, SaysWhenNoCallHasATime) {
  Example example = cpu_example();
  for (CallRow& call : example.analysis.work.calls)
    call.ns = call.median_ns = call.p95_ns = 0, call.total_ns = 0;
  std::string text = terminal_report(example.session, example.analysis);
  EXPECT_EQ(text.find("Longest"), std::string::npos);
  EXPECT_THAT(text, ::testing::HasSubstr("What to do next"));
  example.analysis.findings.clear();
  text = terminal_report(example.session, example.analysis);
  EXPECT_THAT(text,
              ::testing::HasSubstr("\nCalls were not recorded; --profile spans records them.\n"));
  EXPECT_EQ(text.find("Nothing was found"), std::string::npos);
}

TEST(TerminalReport, NamesPartsAsTensorBoardsPluginByItsRules) {
  Example example = cpu_example();
  example.analysis.breakdown.tb_compatible = true;
  const std::string text = terminal_report(example.session, example.analysis);
  EXPECT_THAT(text, ::testing::HasSubstr("(mean of 20 steps, by torch_tb_profiler's rules)\n"));
  EXPECT_THAT(text, ::testing::HasSubstr("\n  DataLoader "));
  EXPECT_EQ(text.find("loader wait"), std::string::npos);
}

TEST(TerminalReport, TellsTheTimeBetweenSteps) {
  Example example = cpu_example();
  Step later = example.session.steps.back();
  later.begin_ns += 4'000'000'000;
  later.end_ns += 4'000'000'000;
  example.session.steps.push_back(later);
  EXPECT_THAT(terminal_report(example.session, example.analysis),
              ::testing::HasSubstr("\n  Outside of steps: 3.96 s of "));
}

}  // namespace
}  // namespace warpstep::profiler
