#include "profiler/sources/sampler.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <map>
#include <thread>

#include "engine/core/clock.h"
#include "profiler/sources/testing_nvml.h"
#include "profiler/sources/testing_tree.h"

namespace warpstep::profiler {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using testing::FakeNvml;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::IsSupersetOf;
using ::testing::Pair;
using testing::Tree;
using namespace std::chrono_literals;

void write_machine(Tree& tree, int busy, int idle) {
  const std::string ticks = fmt::format("{} 0 0 {} 0 0 0 0\n", busy, idle);
  tree.write("stat", "cpu  " + ticks + "cpu0 " + ticks)
      .write("self/stat", "42 (warpstep) R 1 2 3 4 5 6 7 8 9 10 100 20 0 0\n")
      .write("self/statm", "1000 250 3 4 5 6 7\n")
      .write("meminfo", "MemAvailable: 64 kB\nSwapTotal: 10 kB\nSwapFree: 4 kB\n")
      .write("diskstats", "8 0 sda 1 2 100 4 5 6 200 8 9 1000 11\n")
      .write("net/dev", "a\nb\n eth0: 1000 1 0 0 0 0 0 0 2000 1 0 0 0 0 0 0\n");
}

std::map<std::string, double> by_name(const std::vector<Sample>& samples) {
  const std::vector<record::NameInfo> names = record::names();
  std::map<std::string, double> values;
  for (const Sample& sample : samples) {
    EXPECT_EQ(names.at(sample.name).kind, record::Kind::metric);
    EXPECT_TRUE(values.emplace(names[sample.name].text, sample.value).second);
  }
  return values;
}

const std::vector<GpuPlace> one_gpu{{0, FakeNvml::place(0)}};

// With this only look() takes samples.
SamplerOptions without_thread(const Tree& tree) {
  return {.period = std::chrono::hours(1), .proc = tree.root()};
}

TEST(Sampler, BeginsWithLevelsAndContinuesWithRates) {
  Tree tree;
  write_machine(tree, 100, 100);
  const std::uint64_t begin = now_ns();
  Sampler sampler(without_thread(tree));
  const std::vector<Sample> first = sampler.take();
  EXPECT_THAT(by_name(first), ElementsAre(Pair("memory available bytes", 65536),
                                          Pair("process private bytes", ::testing::Gt(0)),
                                          Pair("process rss bytes", ::testing::Gt(0)),
                                          Pair("swap used bytes", 6144)));
  EXPECT_GE(first.at(0).at_ns, begin);
  EXPECT_LE(first.at(0).at_ns, now_ns());
  write_machine(tree, 130, 110);
  sampler.look();
  const auto second = by_name(sampler.take());
  EXPECT_THAT(second,
              IsSupersetOf({Pair("cpu %", 75.0), Pair("cpu 0 %", 75.0), Pair("process cpu %", 0.0),
                            Pair("disk read bytes/s", 0.0), Pair("disk write bytes/s", 0.0),
                            Pair("disk busy %", 0.0), Pair("network received bytes/s", 0.0),
                            Pair("network sent bytes/s", 0.0), Pair("major faults/s", 0.0)}));
  EXPECT_EQ(second.size() - second.count("other processes"), 13U) << "programs are read rarely";
  EXPECT_THAT(sampler.take(), IsEmpty());
  EXPECT_THAT(sampler.notes(), IsEmpty());
}

TEST(Sampler, NotesOnceWhatItCannotRead) {
  Tree tree;
  write_machine(tree, 100, 100);
  Sampler sampler(without_thread(tree));
  std::filesystem::remove_all(tree.root() / "self");
  tree.write("stat", "garbage");
  for (int i = 0; i < 5; ++i) sampler.look();
  EXPECT_THAT(sampler.notes(), ElementsAre(HasSubstr("/stat is not in the expected format"),
                                           HasSubstr("/self/stat cannot be read"),
                                           HasSubstr("/self/statm cannot be read")));
  sampler.take();
  write_machine(tree, 100, 200);
  sampler.look();
  EXPECT_THAT(by_name(sampler.take()), Contains(Pair("process rss bytes", ::testing::Gt(0))))
      << "files that come back are read again";
}

TEST(Sampler, SamplesTheGpusThatItIsGivenUnderTheirNumbers) {
  Tree tree;
  write_machine(tree, 100, 100);
  FakeNvml fake;
  FakeNvml::count = 4;
  const NvmlFunctions nvml = FakeNvml::functions();
  SamplerOptions options = without_thread(tree);
  // CUDA's ordinals are those of the devices that a process may see, and in another order.
  options.gpus = {{0, FakeNvml::place(2)}, {1, FakeNvml::place(0)}};
  options.nvml = &nvml;
  {
    Sampler sampler(options);
    EXPECT_EQ(FakeNvml::open, 1);
    const auto values = by_name(sampler.take());
    EXPECT_THAT(
        values,
        IsSupersetOf({Pair("gpu 0 utilisation %", 92.0), Pair("gpu 0 memory used bytes", 702.0),
                      Pair("gpu 0 power W", 302.5), Pair("gpu 0 temperature C", 55.0),
                      Pair("gpu 0 sm clock MHz", 1755.0), Pair("gpu 0 memory clock MHz", 3201.0),
                      Pair("gpu 0 throttle reasons", 4.0), Pair("gpu 1 utilisation %", 90.0),
                      Pair("gpu 1 memory used bytes", 700.0), Pair("gpu 1 power W", 300.5)}));
    EXPECT_EQ(values.count("gpu 2 power W"), 0U);
    EXPECT_THAT(sampler.notes(), IsEmpty());
  }
  EXPECT_EQ(FakeNvml::open, 0);
}

TEST(Nvml, SaysWhichGpuItDoesNotFind) {
  FakeNvml fake;
  Nvml nvml(FakeNvml::functions(), {{0, FakeNvml::place(3)}, {1, ""}, {2, FakeNvml::place(0)}});
  EXPECT_THAT(nvml.take_notes(),
              ElementsAre("gpu 0 is not sampled: NVML says of 0000:04:00.0: Not Found",
                          HasSubstr("gpu 1 is not sampled: CUDA does not say")));
  EXPECT_EQ(nvml.read().size(), 7U);
  EXPECT_EQ(nvml.describe().at(0).number, 2U);
}

TEST(Nvml, StopsQueriesThatFail) {
  FakeNvml fake;
  Nvml nvml(FakeNvml::functions(), one_gpu);
  EXPECT_EQ(nvml.read().size(), 7U);
  FakeNvml::power_result = 3;  // not supported
  EXPECT_EQ(nvml.read().size(), 6U);
  EXPECT_THAT(nvml.take_notes(), ElementsAre(HasSubstr("gpu 0: power W is no longer sampled: "
                                                       "NVML says: Not Supported")));
  FakeNvml::result = 15;
  nvml.read();
  EXPECT_THAT(nvml.take_notes(), IsEmpty()) << "once may pass";
  FakeNvml::result = 0;
  EXPECT_EQ(nvml.read().size(), 6U);
  FakeNvml::result = 15;
  for (int i = 0; i < 10; ++i) EXPECT_THAT(nvml.read(), IsEmpty());
  EXPECT_EQ(nvml.take_notes().size(), 6U);
  const int asked = FakeNvml::queries;
  nvml.read();
  EXPECT_EQ(FakeNvml::queries, asked) << "a dead library is left alone";
}

TEST(Nvml, WorksWithTheFunctionsThereAre) {
  FakeNvml fake;
  NvmlFunctions functions = FakeNvml::functions();
  functions.power = nullptr;
  functions.error_string = nullptr;
  Nvml nvml(functions, one_gpu);
  EXPECT_EQ(nvml.read().size(), 6U);
  EXPECT_THAT(nvml.take_notes(), ElementsAre(HasSubstr("power W")));
  Nvml none(NvmlFunctions(), one_gpu);
  EXPECT_THAT(none.read(), IsEmpty());
  EXPECT_THAT(none.describe(), IsEmpty());
  EXPECT_EQ(none.driver_version(), "");
  EXPECT_THAT(none.take_notes(), ElementsAre(HasSubstr("GPUs are not sampled")));
}

TEST(Nvml, SaysWhyItDoesNotStart) {
  FakeNvml fake;
  FakeNvml::init_result = 15;
  Nvml nvml(FakeNvml::functions(), one_gpu);
  EXPECT_THAT(nvml.read(), IsEmpty());
  EXPECT_THAT(nvml.take_notes(), ElementsAre(HasSubstr("GPU is lost")));
}

TEST(Nvml, LoadsOrSaysWhyNot) {
  std::string why;
  const NvmlFunctions functions = load_nvml(&why);
  EXPECT_EQ(functions.init == nullptr, !why.empty()) << why;
}

// The sampler's thread runs while another one takes samples; a test for ThreadSanitizer.
TEST(Sampler, RunsNextToOtherThreads) {
  FakeNvml fake;
  const NvmlFunctions nvml = FakeNvml::functions();
  for (int life = 0; life < 5; ++life) {
    Sampler sampler(
        {.period = 1ms, .thins = true, .proc = "/proc", .gpus = one_gpu, .nvml = &nvml});
    std::thread other([&sampler] {
      for (int i = 0; i < 20; ++i) {
        sampler.look();
        sampler.dense(i % 2 == 0);
      }
    });
    std::vector<Sample> all;
    while (all.size() < 200) {
      const std::vector<Sample> some = sampler.take();
      all.insert(all.end(), some.begin(), some.end());
      sampler.notes();
      std::this_thread::yield();
    }
    other.join();
    EXPECT_TRUE(std::is_sorted(all.begin(), all.end(),
                               [](const Sample& a, const Sample& b) { return a.at_ns < b.at_ns; }));
  }
}

TEST(Sampler, EndsAtOnceHoweverLongItsPeriod) {
  Tree tree;
  write_machine(tree, 1, 1);
  const SamplerOptions options{.period = 10s, .proc = tree.root()};
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < 50; ++i) Sampler{options};
  EXPECT_LT(std::chrono::steady_clock::now() - begin, options.period);
}

TEST(Sampler, ReadsASlowMachineLessOften) {
  EXPECT_EQ(pause_after(100us, 500ms), 500ms);
  EXPECT_EQ(pause_after(10ms, 500ms), 2s);
  EXPECT_EQ(pause_after(-1ns, 500ms), 500ms);
  EXPECT_GT(pause_after(std::chrono::nanoseconds::max(), 500ms), 0s);
}

TEST(Sampler, ThinsWithTheAgeOfTheRun) {
  EXPECT_EQ(thinned(500ms, 10s), 500ms);
  EXPECT_EQ(thinned(500ms, 1h), 500ms);
  EXPECT_EQ(thinned(500ms, 20h), 10s);
  EXPECT_EQ(thinned(30s, 20h), 30s) << "of a slow machine";
}

TEST(Sampler, LimitsTheSamplesThatWait) {
  Tree tree;
  tree.write("meminfo", "MemAvailable: 64 kB\n");
  std::string cores = "cpu  1 0 0 1 0 0 0 0\n";
  for (int core = 0; core < 20'000; ++core) cores += fmt::format("cpu{} 1 0 0 1 0 0 0 0\n", core);
  tree.write("stat", cores);
  Sampler sampler(without_thread(tree));
  std::size_t before = 0;
  for (int i = 2; i < 60; ++i) {
    std::string more = fmt::format("cpu  {} 0 0 {} 0 0 0 0\n", i, i);
    for (int core = 0; core < 20'000; ++core)
      more += fmt::format("cpu{} {} 0 0 {} 0 0 0 0\n", core, i, i);
    tree.write("stat", more);
    sampler.look();
    before += 20'000;
  }
  EXPECT_GT(before, std::size_t{1} << 20);
  EXPECT_LE(sampler.take().size(), std::size_t{1} << 20);
  EXPECT_THAT(sampler.notes(), Contains(HasSubstr("dropped")));
}

}  // namespace
}  // namespace warpstep::profiler
