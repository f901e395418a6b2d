#include "profiler/sources/sampler_cores.h"

#include <gmock/gmock.h>

#include <atomic>
#include <thread>

#include "engine/core/record.h"
#include "engine/core/thread.h"
#include "profiler/sources/testing_tree.h"

namespace warpstep::profiler {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using testing::Tree;

auto metric(const std::string& name, double value) {
  return AllOf(::testing::Field(&Metric::name, name),
               ::testing::Field(&Metric::value, ::testing::DoubleNear(value, 1e-9)));
}

TEST(SamplerCores, ParsesTheKernelsTexts) {
  EXPECT_EQ(parse_pressure("some avg10=29.64 avg60=6.33 avg300=1.50 total=170\n"
                           "full avg10=0.00 avg60=0.00 avg300=0.00 total=9\n"),
            170U);
  EXPECT_FALSE(parse_pressure("full avg10=0.00 total=9\n"));
  const QuotaReading v2 =
      parse_cpu_stat("usage_usec 9\nnr_periods 7\nnr_throttled 5\nthrottled_usec 3\n");
  EXPECT_EQ(v2.periods, 7U);
  EXPECT_EQ(v2.throttled, 5U);
  EXPECT_EQ(v2.throttled_ns, 3000U);
  EXPECT_EQ(parse_cpu_stat("nr_periods 7\nnr_throttled 5\nthrottled_time 3\n").throttled_ns, 3U);
}

// Threads of a process 42: main, two of the team, a worker, one without a name.
void write_threads(Tree& tree, int ms) {
  for (const int id : {42, 43, 44, 45, 46})
    tree.write("proc/self/task/" + std::to_string(id) + "/schedstat",
               std::to_string(ms * 100'000) + " " + std::to_string(ms * 1000 * (id - 41)) + " 1\n");
}

TEST(SamplerCores, RatesOfThreadsAreByName) {
  Tree tree;
  write_threads(tree, 10);
  const std::map<std::uint32_t, std::string> names{
      {43, "kernels 1"}, {44, "kernels 2"}, {45, "loader 0"}};
  const CoreSources sources = find_core_sources(tree.root() / "proc", tree.root());
  CoreReading before = read_cores(sources, names);
  write_threads(tree, 20);
  CoreReading after = read_cores(sources, names);
  before.at_ns = 0;
  after.at_ns = 2'000'000;
  const std::vector<Metric> metrics = rates(before, after);
  EXPECT_THAT(metrics, Contains(metric("main on cpu %", 50)));
  EXPECT_THAT(metrics, Contains(metric("main run delay %", 0.5)));
  EXPECT_THAT(metrics, Contains(metric("kernels run delay %", 1.0 + 1.5)));
  EXPECT_THAT(metrics, Contains(metric("loader 0 run delay %", 2)));
  EXPECT_THAT(metrics, Contains(metric("other threads run delay %", 2.5)));
  EXPECT_THAT(levels(after), ElementsAre(metric("kernels threads", 2)));
  after.team_cpus = 1;
  EXPECT_THAT(levels(after), Contains(metric("kernels cpus", 1)));
  // A thread that began since then, and an id that the kernel gave to another thread.
  before.threads.erase(45);
  before.threads[42].on_cpu_ns = 1 << 30;
  EXPECT_THAT(rates(before, after), Contains(metric("loader 0 run delay %", 4)));
  EXPECT_THAT(rates(before, after), Contains(metric("main on cpu %", 100)));
}

TEST(SamplerCores, ReadsQuotasAndLimitsOfBothVersions) {
  for (const bool v2 : {true, false}) {
    Tree tree;
    tree.write("proc/self/cgroup", v2 ? "0::/job\n" : "1:cpu,cpuacct:/job\n2:memory:/job\n");
    const std::string cpu = v2 ? "sys/fs/cgroup/job/" : "sys/fs/cgroup/cpu,cpuacct/job/";
    const std::string memory = v2 ? "sys/fs/cgroup/job/" : "sys/fs/cgroup/memory/job/";
    if (v2)
      tree.write(cpu + "cpu.max", "25000 100000\n")
          .write(cpu + "cpu.pressure", "some total=1000\n")
          .write(memory + "memory.max", "max\n")
          .write(memory + "memory.high", "1000\n")
          .write(memory + "memory.current", "900\n")
          .write(memory + "memory.stat",
                 "inactive_file 100\nactive_file 50\nworkingset_refault_file 30\n")
          .write(memory + "memory.events", "low 0\nhigh 2\nmax 4\noom 1\n");
    else
      tree.write(cpu + "cpu.cfs_quota_us", "25000\n")
          .write(cpu + "cpu.cfs_period_us", "100000\n")
          .write(memory + "memory.limit_in_bytes", "1000\n")
          .write(memory + "memory.usage_in_bytes", "900\n")
          .write(memory + "memory.stat",
                 "total_inactive_file 100\ntotal_active_file 50\n"
                 "workingset_refault_file 1\n"
                 "total_workingset_refault_file 30\n")
          .write(memory + "memory.failcnt", "7\n");
    tree.write(cpu + "cpu.stat", "nr_periods 10\nnr_throttled 2\nthrottled_usec 0\n");
    const CoreSources sources = find_core_sources(tree.root() / "proc", tree.root());
    CoreReading before = read_cores(sources, {});
    ASSERT_TRUE(before.memory) << v2;
    EXPECT_EQ(before.memory->free_bytes, 250U) << v2;
    EXPECT_EQ(before.memory->hits, 7U) << v2;
    EXPECT_EQ(before.refaults, 30U) << v2;
    tree.write(cpu + "cpu.stat", v2 ? "nr_periods 20\nnr_throttled 11\nthrottled_usec 500000\n"
                                    : "nr_periods 20\nnr_throttled 11\nthrottled_time 500000000\n");
    if (v2) tree.write(cpu + "cpu.pressure", "some total=501000\n");
    CoreReading after = read_cores(sources, {});
    before.at_ns = 0;
    after.at_ns = 1'000'000'000;
    const std::vector<Metric> metrics = rates(before, after);
    EXPECT_THAT(metrics, Contains(metric("cpu periods/s", 10))) << v2;
    EXPECT_THAT(metrics, Contains(metric("cpu throttled periods/s", 9))) << v2;
    EXPECT_THAT(metrics, Contains(metric("cpu throttled %", 50))) << v2;
    EXPECT_THAT(metrics, Contains(metric("memory limit hits/s", 0))) << v2;
    EXPECT_THAT(metrics, Contains(metric("refaulted pages/s", 0))) << v2;
    if (v2) {
      EXPECT_THAT(metrics, Contains(metric("group cpu pressure %", 50)));
    }
  }
}

// Without a limit the machine's counts.
TEST(SamplerCores, ReadsThePagesThatTheKernelHadDropped) {
  Tree tree;
  const auto read = [&tree](const char* vmstat) {
    tree.write("proc/vmstat", vmstat);
    return read_cores(find_core_sources(tree.root() / "proc", tree.root()), {});
  };
  CoreReading before = read("pgsteal_kswapd 5\npgsteal_direct 2\nworkingset_refault_file 100\n");
  CoreReading after = read("pgsteal_kswapd 9\npgsteal_direct 2\nworkingset_refault_file 400\n");
  before.at_ns = 0;
  after.at_ns = 2'000'000'000;
  EXPECT_THAT(rates(before, after), Contains(metric("refaulted pages/s", 150)));
  EXPECT_THAT(rates(before, after), Contains(metric("reclaimed pages/s", 2)));
  EXPECT_EQ(read("pgsteal_kswapd 9\n").refaults, std::nullopt);
}

TEST(SamplerCores, PowerIsThatOfAllPackages) {
  Tree tree;
  const auto write = [&tree](int number, const char* name, const char* energy) {
    const std::string domain = "sys/class/powercap/intel-rapl:" + std::to_string(number) + "/";
    tree.write(domain + "name", std::string(name) + "\n")
        .write(domain + "energy_uj", std::string(energy) + "\n")
        .write(domain + "max_energy_range_uj", "100000000\n");
  };
  write(0, "package-0", "1000000");
  write(1, "psys", "1000000");  // has the packages in it
  write(2, "package-1", "99000000");
  const CoreSources sources = find_core_sources(tree.root() / "proc", tree.root());
  CoreReading before = read_cores(sources, {});
  write(0, "package-0", "31000000");
  write(1, "psys", "90000000");
  write(2, "package-1", "9000000");  // began again
  CoreReading after = read_cores(sources, {});
  before.at_ns = 0;
  after.at_ns = 500'000'000;
  EXPECT_THAT(rates(before, after), Contains(metric("cpu power W", 80)));
  after.packages.pop_back();
  EXPECT_THAT(rates(before, after), Not(Contains(metric("cpu power W", 80))));
}

TEST(SamplerCores, LeaveOutWhatAKernelDoesNotHave) {
  Tree tree;
  const CoreSources sources = find_core_sources(tree.root() / "proc", tree.root());
  CoreReading before = read_cores(sources, {}), after = before;
  after.at_ns = before.at_ns + 1000;
  EXPECT_THAT(rates(before, after), IsEmpty());
  EXPECT_THAT(levels(after), IsEmpty());
  after.switches = 5;  // a counter that went backwards
  before.switches = 6;
  EXPECT_THAT(rates(before, after), IsEmpty());
}

TEST(SamplerCores, KnowsTheThreadsOfThisProcess) {
  const CoreSources sources = find_core_sources("/proc", "/");
  std::atomic<bool> done{false};
  std::thread worker = start_thread("loader 7", [&] { done.wait(false); });
  while (record::named_threads().empty()) std::this_thread::yield();
  const CoreReading reading = read_cores(sources, record::named_threads());
  done = true;
  done.notify_all();
  worker.join();
  if (reading.threads.empty()) GTEST_SKIP() << "this kernel has no schedstat";
  std::vector<std::string> names;
  for (const auto& [id, thread] : reading.threads) names.push_back(thread.name);
  EXPECT_THAT(names, Contains("main"));
  EXPECT_THAT(names, Contains("loader 7"));
  for (const auto& [id, name] : record::named_threads()) EXPECT_NE(name, "loader 7");
}

}  // namespace
}  // namespace warpstep::profiler
