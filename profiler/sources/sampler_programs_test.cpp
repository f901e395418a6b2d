#include "profiler/sources/sampler_programs.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "profiler/sources/testing_tree.h"

namespace warpstep::profiler {
namespace {

using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::IsEmpty;
using ::testing::IsSupersetOf;
using testing::Tree;

void write_process(Tree& tree, const std::string& id, const std::string& name, int ticks) {
  tree.write(id + "/stat", fmt::format("{} ({}) R 1 2 3 4 5 6 7 8 9 10 {} 0 0 0\n",
                                       id == "self" ? "42" : id, name, ticks));
}

auto is(const std::string& name, double value) {
  return AllOf(Field(&Metric::name, name),
               Field(&Metric::value, ::testing::DoubleNear(value, 1e-9)));
}

TEST(ProgramRates, AreOfThoseThatUsedTheCpuMost) {
  ProgramReading before{.at_ns = 1'000'000'000}, after{.at_ns = 3'000'000'000};
  before.processes = {{10, {"cc1plus", 50}}, {11, {"python3", 100}}, {12, {"idle", 5}},
                      {13, {"a", 0}},        {14, {"b", 0}},         {15, {"old", 900}}};
  after.processes = {{10, {"cc1plus", 150}}, {11, {"python3", 140}}, {12, {"idle", 14}},
                     {13, {"a", 10}},        {14, {"b", 12}},        {15, {"new", 60}},
                     {16, {"cc1plus", 80}}};  // began since
  EXPECT_THAT(rates(before, after, 100),
              ElementsAre(is("program cc1plus cpu %", 90), is("program new cpu %", 30),
                          is("program python3 cpu %", 20)));
  EXPECT_THAT(rates(after, before, 100), IsEmpty());
}

TEST(Programs, AreAllButThisOneAndTheOtherRanks) {
  Tree tree;
  for (const auto& [id, name] : std::vector<std::pair<std::string, std::string>>{
           {"self", "warpstep"}, {"42", "warpstep"}, {"43", "warpstep"}, {"7", "a ) b\x1b[1m"}})
    write_process(tree, id, name, 5);
  tree.write("uptime", "1 2\n").write("9/stat", "nothing that is known\n");
  const ProgramReading reading = read_programs(tree.root(), {{.process = 43}});
  ASSERT_EQ(reading.processes.size(), 1U);
  EXPECT_EQ(reading.processes.at(7).name, "a ) b?[1m");
  EXPECT_EQ(reading.processes.at(7).ticks, 5U);
}

TEST(Programs, SayWhichComeBeforeAllUsualOnes) {
  Tree tree;
  const auto name_with = [&](int policy) {
    tree.write("7/stat",
               fmt::format("7 (a b) R 1 2 3 4 5 6 7 8 9 10 5 0 0 0 -51 0 1 0 22 23 24 25 26 27 28 "
                           "29 30 31 32 33 34 35 36 37 38 39 50 {} 0 0\n",
                           policy));
    return read_programs(tree.root(), {}).processes.at(7).name;
  };
  EXPECT_EQ(name_with(1), "a b (real-time)");
  EXPECT_EQ(name_with(2), "a b (real-time)");
  EXPECT_EQ(name_with(0), "a b");
}

TEST(Programs, NameTheTracer) {
  Tree tree;
  write_process(tree, "self", "warpstep", 5);
  tree.write("self/status", "Name:\twarpstep\nTracerPid:\t0\n");
  EXPECT_EQ(tracer_of(tree.root()), "");
  tree.write("self/status", "Name:\twarpstep\nTracerPid:\t77\n");
  EXPECT_EQ(tracer_of(tree.root()), "process 77");
  write_process(tree, "77", "strace", 5);
  EXPECT_EQ(tracer_of(tree.root()), "strace");
}

TEST(OtherPrograms, GivesNothingAtFirstAndFewNamesInAll) {
  Tree tree;
  write_process(tree, "self", "warpstep", 5);
  tree.write("self/status", "TracerPid:\t1\n");
  OtherPrograms programs(0);
  EXPECT_THAT(programs.look(tree.root(), {}, 100), ElementsAre(is("traced by process 1", 1)));
  std::set<std::string> names;
  for (int i = 0; i < 60; ++i) {
    write_process(tree, std::to_string(100 + i), fmt::format("job{}", i), 1 << 20);
    const std::vector<Metric> metrics = programs.look(tree.root(), {}, 100);
    EXPECT_THAT(metrics,
                IsSupersetOf({is("other processes", i + 1), is("traced by process 1", 1)}));
    for (const Metric& metric : metrics) names.insert(metric.name);
  }
  EXPECT_EQ(names.size(), 32U + 2) << "with the number of processes, and the tracer";
  OtherPrograms rarely(1'000'000);
  rarely.look(tree.root(), {}, 100);
  EXPECT_THAT(rarely.look(tree.root(), {}, 100), ElementsAre(is("traced by process 1", 1)))
      << "of programs no second reading yet";
}

}  // namespace
}  // namespace warpstep::profiler
