#include "profiler/analysis/modules.h"

#include <gmock/gmock.h>

#include <fmt/format.h>

namespace warpstep::profiler {
namespace {

using ::testing::ElementsAre;

CallRow module_call(int number, const std::string& layer, const std::string& op,
                    const std::string& phase, std::uint64_t us, int line) {
  return {.call = number,
          .title = layer.empty() ? op : layer + "/" + op,
          .layer = layer,
          .op = op,
          .phase = phase,
          .source = line > 0 ? fmt::format("models/net.cpp:{}", line) : "",
          .count = 2,
          .total_ns = 2000 * us,
          .flops = 10,
          .bytes = 5,
          .share = static_cast<double>(us) / 100};
}

// Two steps of 100 us: a stem, two blocks of a stage, a head that is one layer of one call.
Work small_net() {
  Work work;
  work.steps = 2;
  work.calls = {module_call(0, "stem", "conv", "forward", 5, 7),
                module_call(1, "stage.0.conv1", "conv", "forward", 6, 9),
                module_call(2, "stage.0.conv1", "relu", "forward", 1, 9),
                module_call(3, "stage.0.conv2", "conv", "forward", 4, 12),
                module_call(4, "stage/1/conv1", "conv", "forward", 20, 9),
                module_call(5, "heads.fc", "linear", "forward", 3, 15),
                module_call(6, "stage.0.conv1", "conv.wgrad", "weight_grad", 8, 9),
                module_call(7, "stage.0.conv1", "conv.dgrad", "data_grad", 2, 9),
                module_call(8, "", "update", "update", 10, 0)};
  return work;
}

std::vector<std::string> outline(const std::vector<ModuleRow>& modules) {
  std::vector<std::string> lines;
  for (const ModuleRow& row : modules)
    lines.push_back(fmt::format("{}{} {:.0f}+{:.0f}+{:.0f} {}", std::string(row.depth, ' '),
                                row.label, row.forward_ns / 1e3, row.backward_ns / 1e3,
                                row.update_ns / 1e3, row.source));
  return lines;
}

TEST(Modules, AreATreeByTheNamesOfLayers) {
  const std::vector<ModuleRow> modules = find_modules(small_net());
  EXPECT_THAT(outline(modules),
              ElementsAre("step 39+10+10 models/net.cpp:7-15",      //
                          " stem 5+0+0 models/net.cpp:7",           // its one call is left out
                          " stage 31+10+0 models/net.cpp:9-12",     //
                          "  stage.0 11+10+0 models/net.cpp:9-12",  //
                          "   conv1 7+10+0 models/net.cpp:9",       //
                          "    conv 6+0+0 models/net.cpp:9",        //
                          "    relu 1+0+0 models/net.cpp:9",        //
                          "    conv.wgrad 0+8+0 models/net.cpp:9",  //
                          "    conv.dgrad 0+2+0 models/net.cpp:9",  //
                          "   conv2 4+0+0 models/net.cpp:12",       //
                          "  stage.1.conv1 20+0+0 models/net.cpp:9",
                          " heads.fc 3+0+0 models/net.cpp:15",  //
                          " update 0+0+10 "));
  EXPECT_EQ(modules[0].calls, 9);
  EXPECT_EQ(modules[0].flops, 90);
  EXPECT_NEAR(modules[0].share, 0.59, 1e-12);
  EXPECT_EQ(modules[10].path, "stage.1.conv1");
  EXPECT_EQ(modules[10].call, 4);
}

TEST(Modules, CanBeSortedWithinTheirParents) {
  std::vector<std::string> labels;
  const std::vector<ModuleRow> sorted = by_time(find_modules(small_net()));
  for (const ModuleRow& row : sorted) {
    labels.push_back(row.label);
    const auto parent = static_cast<std::size_t>(std::max(row.parent, 0));
    EXPECT_EQ(sorted[parent].depth, std::max(row.depth - 1, 0)) << row.label;
  }
  EXPECT_THAT(labels,
              ElementsAre("step", "stage", "stage.0", "conv1", "conv.wgrad", "conv", "conv.dgrad",
                          "relu", "conv2", "stage.1.conv1", "update", "stem", "heads.fc"));
}

TEST(Modules, AreNoneWithoutTimes) {
  Work work = small_net();
  for (CallRow& call : work.calls) call.total_ns = 0;
  EXPECT_TRUE(find_modules(work).empty());
  EXPECT_TRUE(modules_table(work).rows.empty());
  EXPECT_TRUE(by_time({}).empty());
}

TEST(Modules, HaveNoMoreLevelsThanARecursionCanTake) {
  std::string layer;
  for (int i = 0; i < 100'000; ++i) layer += "a.";
  EXPECT_EQ(module_parts(layer).size(), 16U);
  EXPECT_THAT(module_parts("/a..b/c."), ElementsAre("a", "b", "c"));
  EXPECT_EQ(module_path("layer1/0/conv1", 2), "layer1.0");
  EXPECT_EQ(module_path("fc", 2), "fc");
}

TEST(Modules, GroupTheCallsOfASessionsProgram) {
  Session session;
  EXPECT_TRUE(call_modules(session, 1).empty());
  session.program = {
      {"calls",
       {{{"layer", "h.0.attn"}}, {{"layer", "h.1.mlp"}}, {{"layer", "ln_f"}}, {{"op", 3}}}}};
  EXPECT_THAT(call_modules(session, 1), ElementsAre("h", "h", "ln_f", ""));
  EXPECT_THAT(call_modules(session, 2), ElementsAre("h.0", "h.1", "ln_f", ""));
}

}  // namespace
}  // namespace warpstep::profiler
