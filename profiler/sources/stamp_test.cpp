#include "profiler/sources/stamp.h"

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <utility>

#include "engine/core/control_group.h"
#include "profiler/sources/testing_nvml.h"
#include "profiler/sources/testing_tree.h"

namespace warpstep::profiler {
namespace {

using Json = nlohmann::ordered_json;
using testing::FakeNvml;
using testing::Tree;

void write_machine(Tree& tree) {
  const std::string scaling = "sys/devices/system/cpu/cpu0/cpufreq/";
  const std::string other = "sys/devices/system/cpu/cpu4/cpufreq/";
  tree.write(
          "proc/cpuinfo",
          "processor\t: 0\nmodel name\t: Intel(R) Xeon(R) Platinum 8481C\ncpu MHz\t: 2699.998\n\n"
          "processor\t: 1\nmodel name\t: Intel(R) Xeon(R) Platinum 8481C\ncpu MHz\t: 2700.0\n")
      .write("proc/self/status", "Name:\twarpstep\nCpus_allowed:\t3\nCpus_allowed_list:\t0-1,4\n")
      .write("proc/sys/kernel/osrelease", "6.1.0-28-cloud-amd64\n")
      .write("proc/sys/kernel/random/boot_id", "5bf3b2a6-0d0c-4e3c\n")
      .write("proc/loadavg", "0.52 1.25 3.00 2/345 6789\n")
      .write("proc/self/maps",
             "7f00-7f01 r-xp 00000000 08:01 12  /usr/lib/libcudnn.so.9.13.0\n"
             "7f01-7f02 r--p 00000000 08:01 12  /usr/lib/libcudnn.so.9.13.0\n"
             "7f02-7f03 r-xp 00000000 08:01 13  /usr/lib/libgomp.so.1.0.0 (deleted)\n"
             "7f03-7f04 r-xp 00000000 08:01 13  /usr/lib/libother.so.3.1\n"
             "7f04-7f05 rw-p 00000000 00:00 0\n")
      .write("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n")
      .write(scaling + "scaling_governor", "performance\n")
      .write(scaling + "scaling_min_freq", "800000\n")
      .write(scaling + "scaling_max_freq", "3800000\n")
      .write(scaling + "scaling_cur_freq", "2700000\n")
      .write(other + "scaling_governor", "powersave\n")
      .write("sys/devices/system/cpu/smt/active", "1\n")
      .write("sys/devices/system/cpu/intel_pstate/no_turbo", "1\n")
      .write("sys/devices/system/node/node0/cpulist", "0\n")
      .write("sys/devices/system/node/node1/cpulist", "1\n")
      .write("sys/devices/system/node/nodes", "0-1\n");
}

TEST(MachineStamp, HasEverythingThatTheKernelReports) {
  Tree tree;
  write_machine(tree);
  const std::string cpus = "sys/devices/system/cpu/cpu";
  tree.write(cpus + "0/topology/core_cpus_list", "0-1\n")
      .write(cpus + "1/topology/core_cpus_list", "0-1\n")
      .write(cpus + "4/topology/thread_siblings_list", "4-5\n");
  tree.write("proc/self/cgroup", "0::/\n")
      .write("sys/fs/cgroup/cpu.max", "150000 100000\n")
      .write("sys/fs/cgroup/memory.max", "8589934592\n");
  EXPECT_EQ(machine_stamp(tree.root()), Json::parse(R"({
    "cpu": {"model": "Intel(R) Xeon(R) Platinum 8481C", "cores": 2,
            "frequency_mhz": 2699.998, "physical_cores": 2, "numa_nodes": 2,
            "smt": "on", "boost": "off",
            "clocks": [{"cpus": "0", "governor": "performance", "min_mhz": 800.0,
                        "max_mhz": 3800.0, "current_mhz": [2700.0]},
                       {"cpus": "4", "governor": "powersave"}]},
    "affinity": "0-1,4",
    "cgroup": {"cpu_quota_cores": 1.5, "memory_limit_bytes": 8589934592},
    "kernel": "6.1.0-28-cloud-amd64",
    "boot": "5bf3b2a6-0d0c-4e3c",
    "load_average": [0.52, 1.25, 3.0],
    "transparent_huge_pages": "madvise",
    "libraries": {"libcudnn": "9.13.0", "libgomp": "1.0.0"}})"));
}

TEST(MachineStamp, SaysHowTheKernelRanksTheProcess) {
  Tree tree;
  const auto stat = [](const std::string& priority, const std::string& policy) {
    std::string text = "8 (a) (b 9) R 1 8 8 0 -1 4194304 1 0 0 0 0 0 0 0 20 " + priority;
    for (int field = 20; field < 41; ++field) text += " 0";
    return text + " " + policy + " 0 0 0\n";
  };
  tree.write("proc/self/stat", stat("10", "0"));
  EXPECT_EQ(machine_stamp(tree.root()), Json::parse(R"({"scheduling": {"nice": 10}})"));
  tree.write("proc/self/stat", stat("-5", "3"));
  EXPECT_EQ(machine_stamp(tree.root()),
            Json::parse(R"({"scheduling": {"nice": -5, "policy": "batch"}})"));
  tree.write("proc/self/stat", stat("0", "5"));
  EXPECT_EQ(machine_stamp(tree.root()), Json::parse(R"({"scheduling": {"policy": "idle"}})"));
  for (const std::string& usual : {stat("0", "0"), stat("0", "99"), std::string("8 (a R 1")}) {
    tree.write("proc/self/stat", usual);
    EXPECT_EQ(machine_stamp(tree.root()), Json::object());
  }
}

TEST(MachineStamp, LeavesOutWhatIsMissing) {
  const Tree tree;
  EXPECT_EQ(machine_stamp(tree.root()), Json::object());
}

TEST(MachineStamp, LeavesOutInvalidValues) {
  Tree tree;
  tree.write("proc/cpuinfo", "\xff\xfe: 1\nmodel name\n:\n")
      .write("proc/loadavg", "0.5 x 1\n")
      .write("proc/self/cgroup", "a\n:\n::\n0:\n0::\n3:cpu:relative/../../..\n")
      .write("proc/self/maps", "/\n.so.\n/lib.so.\n/x.so.1\n/libcuda.so.\n")
      .write("proc/sys/kernel/osrelease", "6.1\xff\n")
      .write("sys/fs/cgroup/cpu.max", "100000 0\n")
      .write("sys/fs/cgroup/memory.max", "18446744073709551616\n")
      .write("sys/kernel/mm/transparent_hugepage/enabled", "always] [never\n");
  const Json stamp = machine_stamp(tree.root());
  EXPECT_EQ(stamp, Json::parse(R"({"kernel": "6.1?"})"));
  EXPECT_NO_THROW(stamp.dump()) << "JSON is UTF-8 whatever the files hold";
}

TEST(MachineStamp, FindsTheFrequencyInEitherFile) {
  Tree tree;
  tree.write("sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq", "2450000\n");
  EXPECT_EQ(machine_stamp(tree.root()), Json::parse(R"({
    "cpu": {"frequency_mhz": 2450.0, "smt": "not readable", "boost": "not readable",
            "clocks": "not readable"}})"));
}

TEST(MachineStamp, DescribesTheGpusThatItIsGiven) {
  const Tree tree;
  FakeNvml fake;
  FakeNvml::count = 8;
  const std::vector<GpuPlace> gpus{{0, FakeNvml::place(5)}, {3, FakeNvml::place(1)}};
  const Json stamp = machine_stamp(tree.root(), FakeNvml::functions(), "", gpus);
  const Json gpu = Json::parse(R"({
    "name": "NVIDIA H200", "driver": "580.65.06", "power_limit_w": 700.0, "persistence": true,
    "sm_clock_mhz": 1755, "application_sm_clock_mhz": 1830, "max_sm_clock_mhz": 1980,
    "memory_clock_mhz": 3201, "max_memory_clock_mhz": 3202, "ecc": false,
    "id": 0})");
  Json other = gpu;
  other["id"] = 3;
  EXPECT_EQ(stamp, Json({{"gpus", {gpu, other}}}));
  EXPECT_EQ(FakeNvml::open, 0);
  FakeNvml::result = 15;
  EXPECT_EQ(machine_stamp(tree.root(), FakeNvml::functions(), "", {gpus[0]}),
            Json::parse(R"({"gpus": [{"id": 0}]})"));
  const int asked = FakeNvml::queries;
  EXPECT_EQ(machine_stamp(tree.root(), FakeNvml::functions(), "", {}), Json::object());
  EXPECT_EQ(FakeNvml::queries, asked) << "a run without a GPU does not ask";
}

TEST(MachineStamp, KnowsThisMachine) {
  const Json stamp = machine_stamp();
  EXPECT_TRUE(stamp.contains("kernel"));
  EXPECT_TRUE(stamp.contains("affinity"));
  EXPECT_GT(stamp.at("cpu").at("cores").get<int>(), 0);
}

// ---- Control groups.

struct Limits {
  std::optional<double> cores;
  std::optional<std::uint64_t> bytes;
  explicit Limits(const Tree& tree) {
    cores = cpu_quota(tree.root());
    bytes = memory_limit(tree.root());
  }
};

std::optional<std::uint64_t> free_memory(const Tree& tree) {
  const auto memory = tightest_memory(memory_groups(control_groups(tree.root())));
  return memory ? std::optional(memory->free_bytes) : std::nullopt;
}

TEST(ControlGroups, HaveTheLowestLimitOfTheirAncestors) {
  Tree tree;
  tree.write("proc/self/cgroup", "0::/jobs/one/leaf\n")
      .write("sys/fs/cgroup/jobs/cpu.max", "800000 100000\n")
      .write("sys/fs/cgroup/jobs/memory.max", "1000000\n")
      .write("sys/fs/cgroup/jobs/one/cpu.max", "max 100000\n")
      .write("sys/fs/cgroup/jobs/one/memory.max", "2000000\n")
      .write("sys/fs/cgroup/jobs/one/leaf/cpu.max", "400000 100000\n")
      .write("sys/fs/cgroup/jobs/one/leaf/memory.max", "max\n")
      .write("sys/fs/cgroup/other/cpu.max", "1000 100000\n");
  const Limits limits(tree);
  EXPECT_EQ(limits.cores, 4.0);
  EXPECT_EQ(limits.bytes, 1'000'000U);
}

TEST(ControlGroups, CountFreeMemory) {
  Tree tree;
  tree.write("proc/self/cgroup", "0::/jobs/one\n")
      .write("sys/fs/cgroup/jobs/memory.max", "1000000\n")
      .write("sys/fs/cgroup/jobs/memory.current", "700000\n")
      .write("sys/fs/cgroup/jobs/memory.stat",
             "anon 400000\nfile 300000\ninactive_file 200000\nactive_file 50000\n")
      .write("sys/fs/cgroup/jobs/one/memory.max", "900000\n")
      .write("sys/fs/cgroup/jobs/one/memory.current", "100000\n");
  EXPECT_EQ(free_memory(tree), 550'000U);
  tree.write("sys/fs/cgroup/jobs/one/memory.current", "1000000\n");
  EXPECT_EQ(free_memory(tree), 0U);
  Tree old;
  old.write("proc/self/cgroup", "5:memory:/a\n")
      .write("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "1000\n")
      .write("sys/fs/cgroup/memory/a/memory.usage_in_bytes", "800\n")
      .write("sys/fs/cgroup/memory/a/memory.stat", "total_inactive_file 100\n");
  EXPECT_EQ(free_memory(old), 300U);
}

TEST(ControlGroups, AreSlowedDownAboveTheirHighMark) {
  Tree tree;
  tree.write("proc/self/cgroup", "0::/jobs/one\n")
      .write("sys/fs/cgroup/jobs/memory.max", "800000\n")
      .write("sys/fs/cgroup/jobs/memory.current", "300000\n")
      .write("sys/fs/cgroup/jobs/one/memory.max", "900000\n")
      .write("sys/fs/cgroup/jobs/one/memory.high", "max\n")
      .write("sys/fs/cgroup/jobs/one/memory.current", "300000\n");
  EXPECT_EQ(Limits(tree).bytes, 800'000U);
  EXPECT_EQ(free_memory(tree), 500'000U);
  tree.write("sys/fs/cgroup/jobs/one/memory.high", "600000\n");
  EXPECT_EQ(Limits(tree).bytes, 600'000U);
  EXPECT_EQ(free_memory(tree), 300'000U);
}

TEST(ControlGroups, OfVersion1HaveOneMountPerController) {
  for (const char* mount : {"cpu", "cpu,cpuacct"}) {
    Tree tree;
    const std::string cpu = std::string("sys/fs/cgroup/") + mount + "/";
    tree.write("proc/self/cgroup",
               "9:name=systemd:/\n5:memory:/docker/abc\n4:cpu,cpuacct:/docker/abc\n0::/\n")
        .write(cpu + "docker/abc/cpu.cfs_quota_us", "250000\n")
        .write(cpu + "docker/abc/cpu.cfs_period_us", "100000\n")
        .write(cpu + "cpu.cfs_quota_us", "-1\n")
        .write(cpu + "cpu.cfs_period_us", "100000\n")
        .write("sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes", "4294967296\n")
        .write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    const Limits limits(tree);
    EXPECT_EQ(limits.cores, 2.5) << mount;
    EXPECT_EQ(limits.bytes, 4'294'967'296U);
  }
}

TEST(ControlGroups, AreVisibleInsideAContainer) {
  Tree tree;  // the group's name is the host's, the mounted hierarchy the container's
  tree.write("proc/self/cgroup", "5:memory:/host/only/here\n4:cpu:/../../up\n0::/../x\n")
      .write("sys/fs/cgroup/memory/memory.limit_in_bytes", "1073741824\n")
      .write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "50000\n")
      .write("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  const Limits limits(tree);
  EXPECT_EQ(limits.cores, 0.5);
  EXPECT_EQ(limits.bytes, 1'073'741'824U);
}

TEST(ControlGroups, LimitReadsAndWrites) {
  Tree tree;
  tree.write("proc/self/cgroup", "7:blkio:/a\n0::/jobs/one\n")
      .write("sys/fs/cgroup/jobs/io.max", "8:0 rbps=2000000 wbps=max riops=900 wiops=max\n")
      .write("sys/fs/cgroup/jobs/one/io.max",
             "8:0 rbps=max wbps=5000 riops=800 wiops=max\n9:1 rbps=max wbps=max riops=max "
             "wiops=max\n")
      .write("sys/fs/cgroup/blkio/a/blkio.throttle.read_iops_device", "254:0 600\n254:1 700\n")
      .write("sys/fs/cgroup/blkio/a/blkio.throttle.write_iops_device", "254:0 50\n")
      .write("sys/dev/block/254:0/uevent", "MAJOR=254\nMINOR=0\nDEVNAME=vda\n");
  EXPECT_EQ(machine_stamp(tree.root())["cgroup"]["io_limits"], Json::parse(R"([
    {"device": "8:0", "read_bytes_per_s": 2000000, "reads_per_s": 800, "write_bytes_per_s": 5000},
    {"device": "vda", "reads_per_s": 600, "writes_per_s": 50},
    {"device": "254:1", "reads_per_s": 700}])"));
}

TEST(ControlGroups, MayHaveALowWeight) {
  Tree tree;
  tree.write("proc/self/cgroup", "1:cpu:/a\n0::/jobs/one\n")
      .write("sys/fs/cgroup/jobs/cpu.weight", "25\n")
      .write("sys/fs/cgroup/jobs/one/cpu.weight", "100\n")
      .write("sys/fs/cgroup/cpu/a/cpu.shares", "512\n");
  EXPECT_EQ(low_cpu_weight(tree.root()), 25);
  tree.write("sys/fs/cgroup/cpu/a/cpu.shares", "64\n");
  EXPECT_EQ(machine_stamp(tree.root())["cgroup"]["cpu_weight"], 6.25);
  tree.write("sys/fs/cgroup/cpu/a/cpu.shares", "1024\n")
      .write("sys/fs/cgroup/jobs/cpu.weight", "300\n");
  EXPECT_EQ(low_cpu_weight(tree.root()), std::nullopt);
}

TEST(ControlGroups, MayHaveNoLimit) {
  Tree tree;
  tree.write("proc/self/cgroup", "4:cpu,memory:/\n0::/\n")
      .write("sys/fs/cgroup/cpu.max", "max 100000\n")
      .write("sys/fs/cgroup/memory.max", "max\n")
      .write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n")
      .write("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n")
      .write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  const Limits limits(tree);
  EXPECT_EQ(limits.cores, std::nullopt);
  EXPECT_EQ(limits.bytes, std::nullopt);
  EXPECT_EQ(free_memory(tree), std::nullopt);
}

TEST(OpenMpStamp, HasWhatTheUserSet) {
  const auto set = [](const char* policy, const char* spins, const char* limit) {
    for (const auto& [name, value] :
         {std::pair("OMP_WAIT_POLICY", policy), std::pair("GOMP_SPINCOUNT", spins),
          std::pair("OMP_THREAD_LIMIT", limit)})
      value ? ::setenv(name, value, 1) : ::unsetenv(name);
  };
  set("passive", "5000", "2");  // the engine sets the first two
  EXPECT_EQ(openmp_stamp(), Json({{"OMP_THREAD_LIMIT", "2"}}));
  set("active", nullptr, nullptr);
  EXPECT_EQ(openmp_stamp(), Json({{"OMP_WAIT_POLICY", "active"}}));
  set(nullptr, nullptr, nullptr);
  EXPECT_TRUE(openmp_stamp().empty());
}

}  // namespace
}  // namespace warpstep::profiler
