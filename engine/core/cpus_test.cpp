#include "engine/core/cpus.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <thread>

#include "engine/core/error.h"
#include "engine/core/thread.h"

namespace warpstep {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(Cpus, AreReadAsTasksetReadsThem) {
  EXPECT_THAT(parse_cpus("0-3,6"), ElementsAre(0, 1, 2, 3, 6));
  EXPECT_THAT(parse_cpus("0-8:4"), ElementsAre(0, 4, 8));
  EXPECT_THAT(parse_cpus("5,1-2,2,1"), ElementsAre(1, 2, 5));
  EXPECT_EQ(text_of_cpus(parse_cpus("9,6,3-5,0-1")), "0-1,3-6,9");
  EXPECT_EQ(text_of_cpus({}), "none");
}

TEST(Cpus, RefuseOtherTexts) {
  for (const auto& [text, why] : std::initializer_list<std::pair<const char*, const char*>>{
           {"", "'' is not a CPU number"},
           {"a", "'a' is not a CPU number"},
           {"0,", "'' is not a CPU number"},
           {"-1", "'' is not a CPU number"},
           {"0 ,1", "'0 ' is not a CPU number"},
           {"3-1", "'3-1' ends before it begins"},
           {"0-3:0", "stride of at least 1"},
           {"2:2", "stride of at least 1"},
           {"8192", "above 8191"},
           {"0-99999999999", "above 8191"}}) {
    try {
      parse_cpus(text);
      ADD_FAILURE() << text;
    } catch (const UsageError& error) {
      EXPECT_THAT(error.what(), HasSubstr(why));
    }
  }
}

// Fake files of /sys/devices/system/cpu.
class Topology {
 public:
  explicit Topology(const char* name)
      : root_(std::filesystem::path(testing::TempDir()) /
              (std::string("topology-") + name + std::to_string(::getpid()))) {}
  ~Topology() { std::filesystem::remove_all(root_); }

  const std::filesystem::path& root() const { return root_; }
  Topology& cpu(int cpu, int package, const char* siblings, const char* file = "core_cpus_list") {
    const std::filesystem::path folder =
        root_ / "sys/devices/system/cpu" / ("cpu" + std::to_string(cpu)) / "topology";
    std::filesystem::create_directories(folder);
    std::ofstream(folder / "physical_package_id") << package << "\n";
    std::ofstream(folder / file) << siblings << "\n";
    return *this;
  }

 private:
  std::filesystem::path root_;
};

TEST(CpusByCore, TakeSecondThreadsLast) {
  Topology smt("smt");  // as most servers number them, and as desktops do
  smt.cpu(0, 0, "0,2").cpu(1, 0, "1,3").cpu(2, 0, "0,2").cpu(3, 0, "1,3");
  EXPECT_THAT(by_core({0, 1, 2, 3}, smt.root()), ElementsAre(0, 1, 2, 3));
  Topology pairs("pairs");
  pairs.cpu(0, 0, "0-1", "thread_siblings_list").cpu(1, 0, "0-1", "thread_siblings_list");
  pairs.cpu(2, 0, "2-3", "thread_siblings_list").cpu(3, 0, "2-3", "thread_siblings_list");
  EXPECT_THAT(by_core({0, 1, 2, 3}, pairs.root()), ElementsAre(0, 2, 1, 3));
  EXPECT_THAT(by_core({1, 2, 3}, pairs.root()), ElementsAre(1, 2, 3))
      << "a container without CPU 0: 1 is the first thread of its core";
}

TEST(CpusByCore, FillOnePackageAfterTheOther) {
  Topology sockets("sockets");  // CPUs alternate between two packages
  for (int cpu = 0; cpu < 4; ++cpu) sockets.cpu(cpu, cpu % 2, std::to_string(cpu).c_str());
  EXPECT_THAT(by_core({0, 1, 2, 3}, sockets.root()), ElementsAre(0, 2, 1, 3));
}

TEST(CpusByCore, DoWithoutATopology) {
  Topology some("some");  // CPU 1 is offline: it has no topology, nor is it allowed
  some.cpu(0, 0, "0").cpu(2, 0, "2");
  EXPECT_THAT(by_core({0, 2}, some.root()), ElementsAre(0, 2));
  EXPECT_THAT(by_core({4, 7}, "/no/such/folder"), ElementsAre(4, 7));
  some.cpu(3, 0, "odd\n");
  EXPECT_THAT(by_core({0, 2, 3}, some.root()), ElementsAre(0, 2, 3));
}

TEST(PartsOfCpus, AreOfWholeCores) {
  Topology smt("parts");
  smt.cpu(0, 0, "0,2").cpu(1, 0, "1,3").cpu(2, 0, "0,2").cpu(3, 0, "1,3");
  const CpuSet all{0, 1, 2, 3};
  EXPECT_EQ(part_of(all, {}, smt.root()), all);
  EXPECT_THAT(part_of(all, {0, 2}, smt.root()), ElementsAre(0, 2));
  EXPECT_THAT(part_of(all, {1, 2}, smt.root()), ElementsAre(1, 3));
  EXPECT_THAT(part_of({4, 5, 6}, {1, 2}, "/no/such/folder"), ElementsAre(5, 6));
  for (const int rank : {0, 1, 2})  // of three, on two CPUs
    EXPECT_EQ(part_of({4, 5}, {rank, 3}, "/no/such/folder").size(), 1U);
}

TEST(Cores, AreWithinAffinityAndQuota) {
  EXPECT_EQ(cores_within(8, std::nullopt), 8);
  EXPECT_EQ(cores_within(8, 1.5), 2);  // a quota counts as its cores, rounded up
  EXPECT_EQ(cores_within(8, 0.25), 1);
  EXPECT_EQ(cores_within(1, 4.0), 1);
  EXPECT_EQ(cores_within(0, std::nullopt), 1);
}

TEST(Cores, AreTheProcesssAndNotTheCallersCpu) {
  const int cores = allowed_cores();
  EXPECT_LE(cores, static_cast<int>(allowed_cpus().size()));
  int found = 0;
  std::thread([&] {
    const CpuSet all = allowed_cpus();
    run_on({all.data(), 1});
    found = allowed_cores();
  }).join();
  EXPECT_EQ(found, cores);
}

// The default of every thread count follows from it, so a process is started for it.
TEST(Cores, OfAProcessWithOneCpuAreOne) {
  const CpuSet all = allowed_cpus();
  EXPECT_EXIT(
      {
        run_on({all.data(), 1});
        std::_Exit(cores_within(allowed_cpus().size(), std::nullopt));
      },
      testing::ExitedWithCode(1), "");
}

TEST(ThreadPlaces, HoldsForStartedThreads) {
  const CpuSet all = allowed_cpus();
  ASSERT_FALSE(all.empty());
  place_threads({.team = {all.front()}, .others = {all.back()}});
  CpuSet found;
  start_thread("placed", [&] { found = allowed_cpus(); }).join();
  EXPECT_THAT(found, ElementsAre(all.back()));
  place_threads({});
  start_thread("not placed", [&] { found = allowed_cpus(); }).join();
  EXPECT_EQ(found, all);
  EXPECT_FALSE(run_on({}));
  const std::vector<int> missing{8191};
  EXPECT_FALSE(run_on(missing));
  EXPECT_EQ(allowed_cpus(), all);
}

TEST(Cpus, OfNewThreadsAreAllWhereOpenMpBindsTheirCreator) {
  const CpuSet all = allowed_cpus();
  const std::vector<int> one{all.front()};
  const auto found = [] {
    CpuSet cpus;
    start_thread("a thread", [&] { cpus = allowed_cpus(); }).join();
    return cpus;
  };
  ASSERT_TRUE(run_on(one));
  EXPECT_EQ(found(), one);
  ::setenv("OMP_PROC_BIND", "FALSE", 1);
  EXPECT_EQ(found(), one);
  for (const char* const name : {"OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY"}) {
    ::unsetenv("OMP_PROC_BIND");
    ::setenv(name, "spread", 1);
    EXPECT_EQ(found(), all) << name;
    ::unsetenv(name);
  }
  EXPECT_TRUE(run_on(all));
}

}  // namespace
}  // namespace warpstep
