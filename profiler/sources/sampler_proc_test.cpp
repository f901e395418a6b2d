#include "profiler/sources/sampler_proc.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <map>
#include <random>

#include "profiler/sources/testing_tree.h"

namespace warpstep::profiler {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;
using testing::Tree;
using ::testing::UnorderedElementsAre;

TEST(ProcFile, GivesValuesAndFields) {
  EXPECT_EQ(value_of("modelx: 1\nmodel name\t: A B \nmodel name: C\n", "model name", ':'), "A B");
  EXPECT_EQ(value_of("NAME=\"Debian 12\"\n", "NAME", '='), "Debian 12");
  EXPECT_EQ(value_of("key:\n", "key", ':'), "");
  EXPECT_EQ(value_of("", "key", ':'), "");
  EXPECT_EQ(cpu_model("model name\t: A B\n"), "A B");
  EXPECT_EQ(cpu_model("processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd4f\n"),
            "Arm, implementer 0x41, part 0xd4f");
  EXPECT_EQ(cpu_model("processor\t: 0\n"), "");
  std::string_view line = "  a\tbc  ";
  EXPECT_EQ(next_field(line), "a");
  EXPECT_EQ(next_field(line), "bc");
  EXPECT_EQ(next_field(line), "");
  EXPECT_EQ(parse_number("12"), 12U);
  for (const char* text : {"", "-1", "12x", " 12", "18446744073709551616"})
    EXPECT_EQ(parse_number(text), std::nullopt) << text;
}

TEST(ProcFile, IsNothingWithoutAFile) {
  Tree tree;
  tree.write("empty", "");
  EXPECT_EQ(read_text(tree.root() / "empty"), "");
  EXPECT_EQ(read_text(tree.root() / "none"), std::nullopt);
  EXPECT_EQ(read_text(tree.root()), std::nullopt) << "a folder";
  EXPECT_EQ(read_text("/dev/zero"), std::nullopt) << "endless";
  ASSERT_EQ(::mkfifo((tree.root() / "fifo").c_str(), 0600), 0);
  EXPECT_EQ(read_text(tree.root() / "fifo"), "") << "a FIFO without a writer is not waited for";
  const std::string large(100'000, 'x');
  tree.write("large", large);
  EXPECT_EQ(read_text(tree.root() / "large"), large);
}

TEST(ProcStat, CountsGuestsOnceAndIowaitAsIdle) {
  const auto cpus = parse_stat(
      "cpu  100 10 20 300 40 5 6 7 50 9\n"
      "cpu0 1 2 3 4 5 6 7 8 0 0\n"
      "cpu12 1 2 3 4 5 6 7 8\n"
      "cpux 1 2 3 4 5 6 7 8\n"
      "cpu2 1 2 3\n"
      "intr 5 cpu\n");
  ASSERT_EQ(cpus.size(), 3U);
  EXPECT_EQ(cpus[0].core, -1);
  EXPECT_EQ(cpus[0].total, 488U);
  EXPECT_EQ(cpus[0].busy, 148U);
  EXPECT_EQ(cpus[0].stolen, 7U);
  EXPECT_EQ(cpus[1].core, 0);
  EXPECT_EQ(cpus[2].core, 12);
  EXPECT_EQ(cpus[2].total, 36U);
  EXPECT_EQ(cpus[2].busy, 27U);
}

TEST(ProcStat, FindsTheProcessesTimesAfterAnyName) {
  EXPECT_EQ(parse_process_ticks("42 (a) 1 (b) R 1 2 3 4 5 6 7 8 9 10 1100 220 0 0 20\n"), 1320U);
  EXPECT_EQ(parse_process_ticks("42 (a) R 1 2 3 4 5 6 7 8 9 10 1100"), std::nullopt);
  EXPECT_EQ(parse_process_ticks("42 a R 1 2"), std::nullopt);
  const auto pages = parse_process_pages("1000 250 3 4 5 6 7\n");
  ASSERT_TRUE(pages);
  EXPECT_EQ(pages->resident, 250U);
  EXPECT_EQ(pages->shared, 3U);
  EXPECT_FALSE(parse_process_pages("1000 250"));
}

TEST(ProcMeminfo, CountsBytes) {
  const MemoryUse use = parse_meminfo(
      "MemTotal:  100 kB\nMemAvailable:    64 kB\nSwapTotal: 10 kB\nSwapFree:  4 kB\n");
  EXPECT_EQ(use.available_bytes, 65536U);
  EXPECT_EQ(use.swap_used_bytes, 6144U);
  const MemoryUse strange =
      parse_meminfo("MemAvailable: 99999999999999999 kB\nSwapTotal: 1 kB\nSwapFree: 2 kB\n");
  EXPECT_EQ(strange.available_bytes, std::nullopt);
  EXPECT_EQ(strange.swap_used_bytes, std::nullopt);
}

TEST(ProcDiskstats, KeepsWholeDisks) {
  const auto disks = parse_diskstats(
      "   8 0 sda 1 2 100 4 5 6 200 8 9 1000 11\n"
      "   8 1 sda1 1 2 50 4 5 6 100 8 9 500 11\n"
      "   8 16 sdaa 1 2 3 4 5 6 7 8 9 10 11\n"
      " 259 0 nvme0n1 1 2 8 4 5 6 16 8 9 30 11 0 0 0 0 1 2\n"
      " 259 1 nvme0n1p1 1 2 8 4 5 6 16 8 9 30 11\n"
      " 259 2 nvme0n10 1 2 8 4 5 6 16 8 9 30 11\n"
      " 202 1 xvda1 1 2 8 4 5 6 16 8 9 30 11\n"
      "   7 0 loop0 1 2 3 4 5 6 7 8 9 10 11\n"
      " 253 0 dm-0 1 2 3 4 5 6 7 8 9 10 11\n"
      "   9 0 md127 1 2 3 4 5 6 7 8 9 10 11\n"
      "   8 32 sdb 1 2 3\n"
      "garbage\n");
  std::vector<std::string> names;
  for (const DiskCounters& disk : disks) names.push_back(disk.name);
  EXPECT_THAT(names, ElementsAre("sda", "sdaa", "nvme0n1", "nvme0n10", "xvda1"));
  EXPECT_EQ(disks[0].read_bytes, 51200U);
  EXPECT_EQ(disks[0].written_bytes, 102400U);
  EXPECT_EQ(disks[0].busy_ms, 1000U);
}

TEST(ProcNetwork, KeepsInterfacesToOtherMachines) {
  const auto networks = parse_network(
      "Inter-|   Receive                                  |  Transmit\n"
      " face |bytes    packets errs drop fifo frame compressed multicast|bytes packets\n"
      "    lo: 9 1 0 0 0 0 0 0 9 1 0 0 0 0 0 0\n"
      "  eth0: 1000 1 0 0 0 0 0 0 2000 1 0 0 0 0 0 0\n"
      "  eth1:30 1 0 0 0 0 0 0 40 1 0 0 0 0 0 0\n"
      "eth0.100: 7 1 0 0 0 0 0 0 8 1 0 0 0 0 0 0\n"
      "docker0: 7 1 0 0 0 0 0 0 8 1 0 0 0 0 0 0\n"
      "veth12ab: 7 1 0 0 0 0 0 0 8 1 0 0 0 0 0 0\n"
      "  ib0: 7 1\n");
  ASSERT_EQ(networks.size(), 2U);
  EXPECT_EQ(networks[0].name, "eth0");
  EXPECT_EQ(networks[0].received_bytes, 1000U);
  EXPECT_EQ(networks[0].sent_bytes, 2000U);
  EXPECT_EQ(networks[1].received_bytes, 30U);
}

// ---- Metrics of one and of two readings.

void write_first(Tree& tree) {
  tree.write("stat", "cpu  100 0 0 100 0 0 0 0\ncpu0 50 0 0 50 0 0 0 0\ncpu1 50 0 0 50 0 0 0 0\n")
      .write("self/stat", "42 (warpstep) R 1 2 3 4 5 6 7 8 9 10 100 20 0 0\n")
      .write("self/statm", "1000 250 3 4 5 6 7\n")
      .write("meminfo", "MemAvailable: 64 kB\nSwapTotal: 10 kB\nSwapFree: 4 kB\n")
      .write("diskstats",
             "8 0 sda 1 2 100 4 5 6 200 8 9 1000 11\n8 16 sdb 1 2 0 4 5 6 0 8 9 0 11\n")
      .write("net/dev", "a\nb\n eth0: 1000 1 0 0 0 0 0 0 2000 1 0 0 0 0 0 0\n");
}
void write_second(Tree& tree) {
  tree.write("stat", "cpu  220 0 0 180 0 0 0 0\ncpu0 150 0 0 50 0 0 0 0\ncpu1 70 0 0 130 0 0 0 0\n")
      .write("self/stat", "42 (warpstep) R 1 2 3 4 5 6 7 8 9 10 190 80 0 0\n")
      .write("diskstats",
             "8 0 sda 1 2 300 4 5 6 600 8 9 1500 11\n8 16 sdb 1 2 8 4 5 6 0 8 9 100 11\n")
      .write("net/dev", "a\nb\n eth0: 5000 1 0 0 0 0 0 0 2500 1 0 0 0 0 0 0\n");
}

std::map<std::string, double> by_name(const std::vector<Metric>& metrics) {
  std::map<std::string, double> values;
  for (const Metric& metric : metrics)
    EXPECT_TRUE(values.emplace(metric.name, metric.value).second);
  return values;
}

struct Readings {
  MachineReading before, after;
  explicit Readings(void (*change)(Tree&) = write_second) {
    Tree tree;
    write_first(tree);
    before = read_machine(tree.root());
    change(tree);
    after = read_machine(tree.root());
    before.at_ns = 1'000'000'000;
    after.at_ns = 3'000'000'000;  // 2 s
  }
  std::map<std::string, double> rates() const {
    return by_name(profiler::rates(before, after, 100));
  }
};

TEST(MachineReading, HasLevelsAlone) {
  const Readings readings;
  EXPECT_THAT(readings.before.problems, IsEmpty());
  EXPECT_THAT(
      by_name(levels(readings.before)),
      UnorderedElementsAre(
          Pair("process rss bytes", 250.0 * static_cast<double>(::sysconf(_SC_PAGESIZE))),
          Pair("process private bytes", 247.0 * static_cast<double>(::sysconf(_SC_PAGESIZE))),
          Pair("memory available bytes", 65536), Pair("swap used bytes", 6144)));
}

TEST(MachineReading, HasRatesWithAnother) {
  EXPECT_THAT(Readings().rates(),
              UnorderedElementsAre(
                  Pair("cpu %", 60), Pair("cpu 0 %", 100), Pair("cpu 1 %", 20),
                  Pair("process cpu %", 75), Pair("disk read bytes/s", 208 * 512 / 2),
                  Pair("disk write bytes/s", 400 * 512 / 2), Pair("disk busy %", 25),
                  Pair("network received bytes/s", 2000), Pair("network sent bytes/s", 250)));
}

TEST(MachineReading, TellsWhatWasStolenFromWhatIsBusy) {
  const Readings readings([](Tree& tree) {
    tree.write("stat",
               "cpu  120 0 0 180 0 0 0 100\ncpu0 50 0 0 50 0 0 0 100\ncpu1 70 0 0 105 0 0 0 25\n");
  });
  const auto rates = readings.rates();
  EXPECT_EQ(rates.at("cpu 0 %"), 100);
  EXPECT_EQ(rates.at("cpu 1 %"), 45);
  EXPECT_EQ(rates.at("stolen cpu %"), 125);
}

// Processes 8 and 9 are ranks of the same job; 9 may use half of its CPUs only where this one runs.
TEST(MachineReading, HasTheTimeOfTheJobsOtherRanks) {
  Tree tree;
  write_first(tree);
  const std::vector<Sibling> siblings{{8, 1}, {9, 0.5}, {10, 1}};
  const auto ticks = [&](int process, int user) {
    tree.write(fmt::format("{}/stat", process),
               fmt::format("{} (warpstep) R 1 2 3 4 5 6 7 8 9 10 {} 20 0 0\n", process, user));
  };
  for (const int process : {8, 9, 10}) ticks(process, 100);
  MachineReading before = read_machine(tree.root(), siblings);
  ticks(8, 200);
  ticks(9, 160);
  std::filesystem::remove_all(tree.root() / "10");  // it has ended
  MachineReading after = read_machine(tree.root(), siblings);
  EXPECT_THAT(after.problems, IsEmpty());
  before.at_ns = 1'000'000'000;
  after.at_ns = 3'000'000'000;
  EXPECT_EQ(by_name(rates(before, after, 100)).at("siblings cpu %"), 65);
  EXPECT_EQ(by_name(rates(before, read_machine(tree.root()), 100)).count("siblings cpu %"), 0U);
}

TEST(MachineReading, HasNoRatesWhereTheClockOrNothingMoved) {
  Readings readings;
  readings.after.at_ns = readings.before.at_ns;
  EXPECT_THAT(readings.rates(), IsEmpty());
  Readings same([](Tree&) {});
  EXPECT_EQ(same.rates().count("cpu %"), 0U) << "no tick went by";
  EXPECT_EQ(same.rates().at("disk read bytes/s"), 0);
}

TEST(MachineReading, HasNoRateOfACounterThatWentBackwards) {
  Readings readings([](Tree& tree) {
    write_second(tree);
    tree.write("stat", "cpu  90 0 0 400 0 0 0 0\ncpu0 51 0 0 10 0 0 0 0\ncpu1 60 0 0 60 0 0 0 0\n")
        .write("self/stat", "42 (warpstep) R 1 2 3 4 5 6 7 8 9 10 1 2 0 0\n")
        .write("diskstats",
               "8 0 sda 1 2 50 4 5 6 600 8 9 1500 11\n8 16 sdb 1 2 8 4 5 6 0 8 9 100 11\n")
        .write("net/dev", "a\nb\n eth0: 5000 1 0 0 0 0 0 0 1999 1 0 0 0 0 0 0\n");
  });
  EXPECT_THAT(readings.rates(),
              UnorderedElementsAre(Pair("cpu 1 %", 50), Pair("disk read bytes/s", 8 * 512 / 2),
                                   Pair("disk write bytes/s", 0), Pair("disk busy %", 5)));
}

TEST(MachineReading, LeavesOutCoresDisksAndInterfacesThatCameOrWent) {
  Readings readings([](Tree& tree) {
    write_second(tree);
    tree.write("stat", "cpu1 70 0 0 130 0 0 0 0\ncpu7 70 0 0 130 0 0 0 0\n")
        .write("diskstats", "8 32 sdc 1 2 300000 4 5 6 600 8 9 1500 11\n")
        .write("net/dev", "");
  });
  EXPECT_THAT(readings.rates(),
              UnorderedElementsAre(Pair("cpu 1 %", 20), Pair("process cpu %", 75)));
}

TEST(MachineReading, NamesFilesThatAreMissingOrUnexpected) {
  Tree tree;
  const MachineReading nothing = read_machine(tree.root());
  EXPECT_EQ(nothing.problems.size(), 6U);
  EXPECT_THAT(nothing.problems[0], HasSubstr((tree.root() / "stat").string() + " cannot be read"));
  for (const char* file : {"stat", "self/stat", "self/statm", "meminfo", "diskstats", "net/dev"})
    tree.write(file, "\x01\xff 12 : ) \n\n");
  const MachineReading garbage = read_machine(tree.root());
  EXPECT_EQ(garbage.problems.size(), 4U);
  EXPECT_THAT(garbage.problems[0], HasSubstr("not in the expected format"));
  EXPECT_THAT(levels(garbage), IsEmpty());
}

// Any content of the files gives finite values and shares from 0 to 100.
TEST(MachineReading, SurvivesDamagedFiles) {
  std::mt19937 random(7);
  const auto damaged = [&random](std::string text) {
    static constexpr std::string_view bytes = "0123456789 \n:()-pz\xff";
    for (int i = 0; i < 3 && !text.empty(); ++i)
      text[random() % text.size()] = bytes[random() % bytes.size()];
    return text.substr(0, random() % 8 == 0 ? random() % text.size() : text.size());
  };
  Tree first, second;
  write_first(first);
  write_first(second);
  write_second(second);
  for (int round = 0; round < 300; ++round) {
    Tree tree;
    MachineReading before = read_machine(first.root());
    for (const char* file : {"stat", "self/stat", "self/statm", "meminfo", "diskstats", "net/dev"})
      tree.write(file, damaged(*read_text(second.root() / file)));
    MachineReading after = read_machine(tree.root());
    before.at_ns = 1'000'000'000;
    after.at_ns = 1'500'000'000;
    for (const Metric& metric : rates(before, after, 100)) {
      EXPECT_GE(metric.value, 0) << metric.name;
      EXPECT_LT(metric.value, 1e20) << metric.name;
      if (metric.name.ends_with("%") && metric.name != "process cpu %") {
        EXPECT_LE(metric.value, metric.name == "stolen cpu %" ? 300 : 100) << metric.name;
      }
    }
  }
}

}  // namespace
}  // namespace warpstep::profiler
