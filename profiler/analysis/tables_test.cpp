#include <gmock/gmock.h>

#include <set>

#include "profiler/analysis/analysis.h"
#include "profiler/analysis/testing_goldens.h"
#include "profiler/session/testing_builder.h"

namespace warpstep::profiler {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::SessionBuilder;

// What these tables need of an analysis.
Analysis tables_analysis(const Session& session) {
  Analysis analysis;
  analysis.breakdown = break_down(session);
  analysis.devices = device_metrics(session);
  analysis.work = find_work(session);
  analysis.memory = memory_timeline(session);
  analysis.path = critical_path(session);
  return analysis;
}

Table table(const std::vector<Table>& all, const std::string& key) {
  for (const Table& t : all)
    if (t.key == key) return t;
  throw std::runtime_error("no table " + key);
}

// Of a row, by the column's key, as it is shown.
std::string shown_cell(const Table& t, std::size_t row, const std::string& key) {
  for (std::size_t c = 0; c < t.columns.size(); ++c)
    if (t.columns[c].key == key) return shown(t.rows.at(row).at(c), t.columns[c].unit);
  throw std::runtime_error("no column " + key);
}

void expect_sound(const std::vector<Table>& all) {
  std::vector<std::string> keys;
  for (const Table& t : all) {
    keys.push_back(t.key);
    EXPECT_FALSE(t.title.empty());
    std::set<std::string> columns;
    for (const Column& column : t.columns) {
      EXPECT_FALSE(column.title.empty()) << t.key;
      EXPECT_TRUE(columns.insert(column.key).second) << t.key << " has two of " << column.key;
    }
    for (const auto& row : t.rows) EXPECT_EQ(row.size(), t.columns.size()) << t.key;
    EXPECT_EQ(to_json(t).size(), t.rows.size());
  }
  EXPECT_THAT(keys, ElementsAre("whole_run", "slow_steps", "breakdown", "steps", "modules",
                                "layers", "calls", "ops", "kernels", "host", "memory", "loader",
                                "stalls", "critical_path", "findings", "devices", "samples"));
}

TEST(Tables, AreAllThereEvenForNothing) {
  expect_sound(tables(Session{}, Analysis{}));
  const Session session = testing::four_steps();
  expect_sound(tables(session, tables_analysis(session)));
}

TEST(Tables, ShowABreakdownThatAddsUp) {
  const Session session = testing::four_steps();
  const Table t = table(tables(session, tables_analysis(session)), "breakdown");
  EXPECT_EQ(to_text(t),
            "category       time per step  share of the step\n"
            "Kernel                300 us             33.3 %\n"
            "Memcpy               40.0 us              4.4 %\n"
            "Memset               50.0 us              5.6 %\n"
            "Communication           0 ns              0.0 %\n"
            "Runtime              30.0 us              3.3 %\n"
            "DataLoader            200 us             22.2 %\n"
            "Sync wait               0 ns              0.0 %\n"
            "CPU                  70.0 us              7.8 %\n"
            "Core wait               0 ns              0.0 %\n"
            "Other                 210 us             23.3 %\n"
            "Total                 900 us            100.0 %\n");
  EXPECT_THAT(t.note, HasSubstr("4 steps, from spans"));
}

TEST(Tables, ShowStepsWithTheirParts) {
  const Session session = testing::four_steps();
  const Table t = table(tables(session, tables_analysis(session)), "steps");
  ASSERT_EQ(t.rows.size(), 4U);
  EXPECT_EQ(shown_cell(t, 1, "step"), "2");
  EXPECT_EQ(shown_cell(t, 1, "kernel_ns"), "300 us");
  EXPECT_EQ(shown_cell(t, 1, "from_spans"), "spans");
  EXPECT_EQ(shown_cell(t, 1, "loss"), "2.3");
}

TEST(Tables, ShowWorkAndDevices) {
  const Session session = testing::four_steps();
  const std::vector<Table> all = tables(session, tables_analysis(session));
  const Table calls = table(all, "calls");
  EXPECT_EQ(shown_cell(calls, 1, "call"), "2");
  EXPECT_EQ(shown_cell(calls, 1, "title"), "conv1");
  EXPECT_EQ(shown_cell(calls, 1, "ns"), "200 us");
  EXPECT_EQ(shown_cell(calls, 1, "of_peak"), "-");
  EXPECT_EQ(shown_cell(table(all, "kernels"), 0, "tensor_cores"), "yes");
  EXPECT_EQ(shown_cell(table(all, "devices"), 0, "utilization"), "33.3 %");  // of the steps
  EXPECT_EQ(shown_cell(table(all, "devices"), 0, "occupancy"), "37.3 %");
  EXPECT_EQ(shown_cell(table(all, "host"), 0, "function"), "data");
  EXPECT_FALSE(table(all, "critical_path").rows.empty());
}

TEST(Tables, ShowMemoryLargestFirst) {
  Session session;
  session.program = {
      {"calls", {Json::object(), Json::object()}},
      {"memory",
       {{"arena_bytes", 4096},
        {"parameter_bytes", 2048},
        {"buffers",
         {{{"name", "y"}, {"bytes", 1024}, {"offset", 0}, {"first_call", 1}, {"last_call", 1}},
          {{"name", "z"},
           {"bytes", 3072},
           {"offset", 1024},
           {"first_call", 2},
           {"last_call", 2}}}}}}};
  const Table t = table(tables(session, tables_analysis(session)), "memory");
  ASSERT_EQ(t.rows.size(), 3U);
  EXPECT_EQ(shown_cell(t, 0, "name"), "z");
  EXPECT_EQ(shown_cell(t, 0, "first_call"), "2");
  EXPECT_EQ(shown_cell(t, 0, "at_peak"), "yes");
  EXPECT_EQ(shown_cell(t, 1, "kind"), "parameter");
  EXPECT_EQ(shown_cell(t, 1, "first_call"), "-");
  EXPECT_EQ(shown_cell(t, 2, "at_peak"), "no");
  EXPECT_EQ(t.note,
            "All buffers, largest first; the arena of 4.00 KiB has its peak in call 2 with 3.00 "
            "KiB alive, and 2.00 KiB last for the whole run.");
}

TEST(Tables, ShowTheLoaderAndItsReplay) {
  Analysis analysis;
  analysis.loader.has_spans = true;
  analysis.loader.workers = 4;
  analysis.loader.prefetch = 2;
  analysis.loader.stages = {"read", "decode"};
  analysis.loader.by_worker = {{"loader 0", 64, {1'000'000, 5'000'000}, 2'000'000, 0.75}};
  analysis.stall.wait_ns = 12.3e6;
  analysis.stall.step_ns = 41e6;
  analysis.stall.predicted_wait_ns = 12e6;
  analysis.stall.wait_by_workers_ns = {135e6, 53e6};
  analysis.stall.wait_by_prefetch_ns = {{8, 12e6}};
  analysis.stall.text = "steps wait for decode";
  const std::vector<Table> all = tables(Session{}, analysis);
  expect_sound(all);
  EXPECT_EQ(shown_cell(table(all, "loader"), 0, "decode_ns"), "5.00 ms");
  EXPECT_EQ(shown_cell(table(all, "loader"), 0, "busy"), "75.0 %");
  const Table stalls = table(all, "stalls");
  EXPECT_EQ(stalls.note, "steps wait for decode");
  ASSERT_EQ(stalls.rows.size(), 5U);
  EXPECT_EQ(shown_cell(stalls, 0, "wait_ns"), "12.3 ms");
  EXPECT_EQ(shown_cell(stalls, 3, "workers"), "2");
  EXPECT_EQ(shown_cell(stalls, 4, "prefetch"), "8");
}

TEST(Tables, ShowFindingsAndSamples) {
  Analysis analysis;
  analysis.findings = {{"data-wait", "Steps wait.", "12 of 41 ms", "use more", "--workers 6", 12e6},
                       {"x", "y", "z", "w", "", 0},
                       {"r", "a range", "", "", "", 5e6, 0, 9e6}};
  SessionBuilder builder;
  builder.sample("cpu %", 1, 50).sample("cpu %", 2, 100).sample("cpu %", 3, 60);
  builder.sample("process rss bytes", 1, 7e9);
  const std::vector<Table> all = tables(builder.build(), analysis);
  const Table findings = table(all, "findings");
  EXPECT_EQ(shown_cell(findings, 0, "gain_ns"), "12.0 ms");
  EXPECT_EQ(shown_cell(findings, 1, "gain_ns"), "-");
  EXPECT_EQ(shown_cell(findings, 1, "flag"), "-");
  EXPECT_EQ(shown_cell(findings, 1, "gain_least_ns"), "-");
  EXPECT_EQ(shown_cell(findings, 2, "gain_least_ns"), "0 ns") << "a range from 0";
  const Table samples = table(all, "samples");
  ASSERT_EQ(samples.rows.size(), 2U);
  EXPECT_EQ(shown_cell(samples, 0, "min"), "50");
  EXPECT_EQ(shown_cell(samples, 0, "mean"), "80") << "each since the one before";
  EXPECT_EQ(shown_cell(samples, 0, "max"), "100");
  EXPECT_EQ(shown_cell(samples, 0, "last"), "60");
}

}  // namespace
}  // namespace warpstep::profiler
