// What a GPU's own counters said: figures, tables and warnings.
#include <gmock/gmock.h>

#include <algorithm>

#include "profiler/analysis/analysis.h"
#include "profiler/session/testing_builder.h"

namespace warpstep::profiler {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::SessionBuilder;

// Two windows of a step of 10 ms each, with samples at the end of each millisecond.
SessionBuilder sampled() {
  SessionBuilder builder;
  builder.gpu()
      .step(1, 0, 10'000)
      .step(2, 10'000, 20'000)
      .step(3, 20'000, 30'000)
      .window(1, 1, 0, 10'000)
      .window(3, 3, 20'000, 30'000);
  for (int i = 1; i <= 30; ++i) {
    const bool between = i > 10 && i <= 20;
    builder.sample("gpu 0 SM active %", 1000 * i, between ? 5 : 80);
    builder.sample("gpu 0 tensor pipe %", 1000 * i, between ? 5 : i <= 10 ? 30 : 50);
    builder.sample("gpu 1 DRAM %", 1000 * i, 99);
    builder.sample("gpu 0 utilisation %", 1000 * i, 100);
  }
  return builder;
}

TEST(Measured, AreMeansOverTheWindowsOfTheirDevice) {
  SessionBuilder builder = sampled();
  const Session session = builder.build();
  const MeasuredShares shares = measured_shares(session, 0);
  EXPECT_DOUBLE_EQ(shares.sm_active.value(), 0.8);
  EXPECT_DOUBLE_EQ(shares.tensor_pipe.value(), 0.4);
  EXPECT_FALSE(shares.dram.has_value());  // that was another GPU
  EXPECT_DOUBLE_EQ(measured_shares(session, 1).dram.value(), 0.99);
  EXPECT_FALSE(measured_shares(session, 2).any());
  EXPECT_DOUBLE_EQ(device_metrics(session).at(0).measured.tensor_pipe.value(), 0.4);
}

TEST(Measured, AreNotThereOutsideOfCompleteWindows) {
  SessionBuilder builder = sampled();
  for (Window& window : builder.raw().windows) window.complete = 0;
  EXPECT_FALSE(measured_shares(builder.build(), 0).any());
  EXPECT_FALSE(measured_shares(Session{}, 0).any());
}

Table devices(const Session& session) {
  Analysis analysis;
  analysis.devices = device_metrics(session);
  const std::vector<Table> all = tables(session, analysis);
  return *std::ranges::find(all, "devices", &Table::key);
}

std::string cell_of(const Table& table, const std::string& column) {
  const auto at = std::ranges::find(table.columns, column, &Column::key);
  if (at == table.columns.end()) return "no column";
  return shown(table.rows.at(0).at(static_cast<std::size_t>(at - table.columns.begin())), at->unit);
}

TEST(Measured, HaveColumnsBesideWhatGoesByNames) {
  SessionBuilder builder = sampled();
  Table table = devices(builder.build());
  EXPECT_EQ(cell_of(table, "tensor_pipe"), "40.0 %");
  EXPECT_EQ(cell_of(table, "sm_active"), "80.0 %");
  EXPECT_EQ(cell_of(table, "dram"), "-");
  EXPECT_EQ(cell_of(table, "tensor_core_share"), "-");  // no kernel was recorded: nobody knows
  EXPECT_EQ(cell_of(table, "utilization"), "-");
  builder.launch(0, 1, What::kernel, "hmma_gemm", 0, 5000);
  EXPECT_EQ(cell_of(devices(builder.build()), "tensor_core_share"), "100.0 %");
  builder.raw().samples.clear();
  table = devices(builder.build());
  EXPECT_EQ(cell_of(table, "tensor_pipe"), "no column");
  EXPECT_EQ(table.rows.at(0).size(), table.columns.size());
}

TEST(Measured, LockTheClocksAndTheReportSaysSo) {
  SessionBuilder builder = sampled();
  const auto notes = [&] { return find_trust(builder.build(), Breakdown{}).notes; };
  EXPECT_THAT(notes(), Not(Contains(HasSubstr("clocks"))));
  builder.raw().stamp["profiler"]["counters"] = "SM active %, DRAM %";
  EXPECT_THAT(notes(), Contains("the GPU's clocks were locked by PM sampling, for "
                                "--profile-counters (SM active %, DRAM %): times are not those of "
                                "a run without it"));
}

}  // namespace
}  // namespace warpstep::profiler
