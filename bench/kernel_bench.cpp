// warpstep_bench: times single calls of the cases that the tests run and compares them with the
// device's measured ceilings. bench/README.md explains the output.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <regex>

#include "bench/kernel_bench_timing.h"
#include "bench/program.h"
#include "engine/core/error.h"
#include "engine/core/version.h"

namespace {

using namespace warpstep;
using bench::Device;
using bench::Subject;

struct Options {
  std::vector<std::string> backends{"cpu", "cuda"};
  BackendOptions backend;
  bool all_cases = false;
  bool list = false;
  std::string_view out;  // the file of figures in JSON, if there is one
};

void declare(CLI::App& app, Options& options) {
  app.add_option("--backends", options.backends, "names, or paths of modules")
      ->delimiter(',')
      ->capture_default_str();
  app.add_option("--threads", options.backend.threads, "CPU threads of the cpu backend; 0: all")
      ->capture_default_str();
  app.add_option("--device", options.backend.device, "number of the CUDA device")
      ->capture_default_str();
  app.add_flag("--all_cases", options.all_cases, "also the tests' small shapes");
}

void print_help() {
  CLI::App app(
      "Times single calls; see bench/README.md. In addition to Google Benchmark's options below:");
  Options options;
  declare(app, options);
  fmt::print("{}\n", app.help("warpstep_bench"));
  std::fflush(stdout);
}

// Of the form --NAME=VALUE, which Google Benchmark parses but does not expose; else the default.
std::string_view flag_of(std::span<char* const> arguments, std::string_view name,
                         std::string_view otherwise) {
  for (const std::string_view flag : arguments)
    if (flag.starts_with(name) && flag.substr(name.size()).starts_with('='))
      otherwise = flag.substr(name.size() + 1);
  return otherwise;
}

// Google Benchmark ignores that its file did not take what was written.
class JsonFile : public benchmark::JSONReporter {
 public:
  void Finalize() override {
    JSONReporter::Finalize();
    is_whole_ = !GetOutputStream().flush().fail();
  }
  bool is_whole() const { return is_whole_; }

 private:
  bool is_whole_ = true;
};

// Google Benchmark parses this flag but does not expose it.
bool wants_list(std::span<char* const> arguments) {
  return std::any_of(arguments.begin(), arguments.end(), [](const char* argument) {
    const std::string_view flag(argument);
    return flag == "--benchmark_list_tests" || flag == "--benchmark_list_tests=true" ||
           flag == "--benchmark_list_tests=1";
  });
}

// Like Google Benchmark's filter: extended syntax, anywhere in the name, a leading - inverts it.
class Filter {
 public:
  explicit Filter(std::string text) {
    inverted_ = text.starts_with("-");
    if (inverted_) text.erase(0, 1);
    if (text.empty() || text == "all") text = ".";
    try {
      regex_ = std::regex(text, std::regex::extended);
    } catch (const std::regex_error& error) {
      fail<UsageError>("--benchmark_filter: '{}' is not a regular expression: {}", text,
                       error.what());
    }
  }
  bool operator()(const Subject& subject) const {
    return std::regex_search(subject.name + "/manual_time", regex_) != inverted_;
  }

 private:
  std::regex regex_;
  bool inverted_ = false;
};

// The benchmarks of one device. Google Benchmark runs each several times to find the number of
// calls it needs, so prepared data is kept until the next benchmark.
class Bench {
 public:
  Bench(Device device, std::vector<Subject> subjects)
      : device_(std::move(device)), subjects_(std::move(subjects)) {}

  bool failed() const { return failed_; }

  void measure() {
    std::vector<Precision> precisions;
    for (const Precision precision : device_.precisions())
      if (std::any_of(subjects_.begin(), subjects_.end(),
                      [&](const Subject& s) { return s.precision == precision; }))
        precisions.push_back(precision);
    peaks_ = measure_peaks(device_, precisions);
    const auto add_context = [&](std::string_view key, const std::string& text) {
      benchmark::AddCustomContext(fmt::format("{}_{}", device_.name, key), text);
    };
    add_context("device", device_.backend->describe());
    add_context("copy_GB/s", fmt::format("{:.4g}", peaks_.copy_bytes_per_s / 1e9));
    for (const auto& [precision, flops_per_s] : peaks_.flops_per_s)
      add_context(fmt::format("{}_TFLOP/s", bench::dtype_name(precision)),
                  fmt::format("{:.4g}", flops_per_s / 1e12));
  }

  void enlist() {
    for (const Subject& subject : subjects_)
      benchmark::RegisterBenchmark(
          subject.name.c_str(), [this, &subject](benchmark::State& state) { run(subject, state); })
          ->UseManualTime()
          ->Unit(benchmark::kMicrosecond);
  }

 private:
  void run(const Subject& subject, benchmark::State& state) {
    try {
      if (prepared_ != &subject) {
        rotation_.reset();  // free this memory before allocating the next
        prepared_ = nullptr;
        rotation_ = std::make_unique<bench::Rotation>(subject, device_);
        prepared_ = &subject;
      }
      while (state.KeepRunningBatch(rotation_->calls_at_once()))
        state.SetIterationTime(rotation_->run());
      report(subject, state);
    } catch (const Error& error) {
      failed_ = true;
      state.SkipWithError(error.what());
    }
  }

  void report(const Subject& subject, benchmark::State& state) const {
    const Cost& cost = rotation_->cost();
    const auto a_call = [](double amount) {
      return benchmark::Counter(amount, benchmark::Counter::kIsIterationInvariantRate);
    };
    state.counters["GB/s"] = a_call(cost.bytes / 1e9);
    state.counters["TFLOP/s"] = a_call(cost.flops / 1e12);
    state.counters["of_peak"] = a_call(peaks_.floor_s(cost, subject.precision));
    state.counters["rotated_MB"] = rotation_->bytes() / 1e6;
    state.SetLabel(rotation_->implementation());
  }

  Device device_;
  std::vector<Subject> subjects_;
  bench::Peaks peaks_;
  const Subject* prepared_ = nullptr;
  std::unique_ptr<bench::Rotation> rotation_;
  bool failed_ = false;
};

std::vector<Device> open(const Options& options) {
  std::vector<Device> devices;
  for (const std::string& name : options.backends) {
    try {
      devices.push_back(bench::open_device(name, options.backend));
    } catch (const DeviceError& error) {
      fmt::print(stderr, "warpstep_bench: without {}: {}\n", name, error.what());
    }
  }
  if (devices.empty()) fail<DeviceError>("none of the backends can be opened");
  return devices;
}

int run(const Options& options) {
  const Filter filter(benchmark::GetBenchmarkFilter());
  std::vector<std::unique_ptr<Bench>> all;
  for (const Device& device : open(options)) {
    std::vector<Subject> subjects = bench::subjects(device, options.all_cases);
    std::erase_if(subjects, [&](const Subject& subject) {
      return !filter(subject) ||
             testing_support::lacks_engine(*subject.c, *device.of(subject.precision));
    });
    if (!subjects.empty()) all.push_back(std::make_unique<Bench>(device, std::move(subjects)));
  }
  if (all.empty())
    fail<UsageError>("--benchmark_filter: '{}' matches no benchmark{}",
                     benchmark::GetBenchmarkFilter(),
                     options.all_cases ? "" : "; --all_cases adds the tests' small shapes");
  benchmark::AddCustomContext("commit", commit());
  for (const auto& bench : all) {
    if (!options.list) bench->measure();
    bench->enlist();
  }
  JsonFile file;
  benchmark::RunSpecifiedBenchmarks(nullptr, options.out.empty() ? nullptr : &file);
  if (!file.is_whole()) fail<Error>("--benchmark_out: cannot write {}", options.out);
  return std::any_of(all.begin(), all.end(), [](const auto& bench) { return bench->failed(); });
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  const std::vector<char*> arguments(argv, argv + argc);
  options.list = wants_list(arguments);
  if (flag_of(arguments, "--benchmark_out_format", "json") == "json")
    options.out = flag_of(arguments, "--benchmark_out", "");
  // Initialize() then prints its own options and ends. It takes a function that prints only in 1.7.
  if (std::find(arguments.begin(), arguments.end(), std::string_view("--help")) != arguments.end())
    print_help();
  benchmark::Initialize(&argc, argv);
  CLI::App app("", "warpstep_bench");
  declare(app, options);
  return bench::run_program(app, argc, argv, [&] { return run(options); });
}
