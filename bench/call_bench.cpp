// call_bench: times every call of every model's training step by itself on the CPU and fails on
// calls far below the machine's roofs. bench/README.md explains the method.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <thread>

#include "bench/call_report.h"
#include "bench/program.h"
#include "engine/core/error.h"
#include "engine/core/version.h"

namespace {

using namespace warpstep;

struct Options {
  std::vector<std::string> models;  // empty: all
  std::int64_t image = 0, batch = 0;
  int repetitions = 7;
  Precision precision = Precision::fp32;
  double patience_s = 60;
  bool all = false;
  BackendOptions backend;
  bench::Limits limits;
  std::string excuses = WARPSTEP_SOURCE_DIR "/bench/excused_calls.txt";
  std::string out;
};

void declare(CLI::App& app, Options& options) {
  app.add_option("--model", options.models, "of the zoo; may be given several times; all if not");
  app.add_option("--image", options.image, "height and width of images, instead of the table's")
      ->check(CLI::PositiveNumber);
  app.add_option("--batch", options.batch, "instead of the table's")->check(CLI::PositiveNumber);
  app.add_option_function<std::string>(
      "--precision", [&](const std::string& text) { options.precision = parse_precision(text); },
      "fp32 or bf16 [fp32]");
  app.add_option("--threads", options.backend.threads, "0: all")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--repetitions", options.repetitions, "of each call; the median counts")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app.add_option("--minimum-share", options.limits.minimum_share, "of the roof that binds the call")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option_function<double>(
         "--above-ms", [&](double ms) { options.limits.above_s = ms / 1e3; },
         "shorter calls cannot fail [1]")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--patience", options.patience_s,
                 "seconds to wait for an idle machine, until one wait was in vain")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--excuses", options.excuses, "the list of excused calls");
  app.add_flag("--all", options.all, "list the shorter calls, too");
  app.add_option("--out", options.out, "a file for all figures, as JSON");
}

std::vector<bench::ModelSize> wanted_sizes(const Options& options) {
  for (const std::string& name : options.models) models::find(name);
  std::vector<bench::ModelSize> sizes;
  for (bench::ModelSize size : bench::zoo_sizes()) {
    const auto& names = options.models;
    const bool wanted =
        names.empty() || std::find(names.begin(), names.end(), size.model->name) != names.end();
    if (!wanted) continue;
    if (options.image > 0 && !size.model->is_text()) size.image = options.image;
    if (options.batch > 0) size.batch = options.batch;
    const bool known = std::any_of(sizes.begin(), sizes.end(), [&](const bench::ModelSize& other) {
      return other.name() == size.name();
    });
    if (!known) sizes.push_back(size);
  }
  return sizes;
}

// The roofs of an idle machine: the best measured so far. And waiting until it is idle.
class Roofs {
 public:
  Roofs(const Backend& backend, Precision precision, double patience_s)
      : backend_(backend), precision_(precision), patience_s_(patience_s) {}

  const bench::CpuRoofs& best() const { return best_; }
  // Also if a model was judged by roofs that turned out to be low later.
  bool was_busy(std::span<const bench::JudgedModel> judged) const {
    return busy_ || std::any_of(judged.begin(), judged.end(), [&](const bench::JudgedModel& model) {
             return model.roofs.flops_per_s < 0.9 * best_.flops_per_s ||
                    model.roofs.bytes_per_s < 0.75 * best_.bytes_per_s;
           });
  }

  bool wait_until_idle() {
    const auto begin = Clock::now();
    while (!idle()) {
      if (!patient_since(begin)) return give_up();
      std::this_thread::sleep_for(std::chrono::milliseconds(500));
    }
    return true;
  }
  // Runs `work` until the machine was idle before and after it, or patience is at an end.
  void when_idle(const std::function<void()>& work) {
    const auto begin = Clock::now();
    for (;;) {
      const bool idle_before = wait_until_idle();
      work();
      if (!idle_before || idle()) return;
      if (!patient_since(begin)) {
        give_up();
        return;
      }
    }
  }

 private:
  using Clock = std::chrono::steady_clock;

  bool idle() {
    constexpr double idle_share = 0.9;
    const bench::CpuRoofs now = bench::measure_cpu_roofs(backend_, precision_);
    best_.flops_per_s = std::max(best_.flops_per_s, now.flops_per_s);
    best_.bytes_per_s = std::max(best_.bytes_per_s, now.bytes_per_s);
    return now.flops_per_s >= idle_share * best_.flops_per_s && now.steadiness >= idle_share;
  }
  bool patient_since(Clock::time_point begin) const {
    return Clock::now() - begin < std::chrono::duration<double>(patience_s_);
  }
  bool give_up() {
    patience_s_ = 0;
    busy_ = true;
    return false;
  }

  const Backend& backend_;
  Precision precision_;
  double patience_s_;
  bench::CpuRoofs best_;
  bool busy_ = false;
};

bench::JudgedModel measure(const bench::ModelSize& size, const Options& options,
                           const std::shared_ptr<Backend>& backend,
                           std::span<const bench::Excuse> excuses, Roofs& roofs) {
  constexpr int passes = 3;
  bench::TimedStep step(size, backend, options.precision);
  roofs.wait_until_idle();
  std::vector<bench::TimedCall> calls = step.time_calls(options.repetitions);
  const auto slow = [&](const bench::TimedCall& call) {
    return bench::is_slow(call, roofs.best(), options.limits);
  };
  for (int pass = 1; pass < passes && std::any_of(calls.begin(), calls.end(), slow); ++pass)
    roofs.when_idle([&] { step.time_again(calls, options.repetitions, slow); });
  return bench::judge(size, roofs.best(), std::move(calls), options.limits, excuses);
}

void write_json(const Options& options, const Backend& backend,
                const std::vector<bench::JudgedModel>& judged,
                const std::vector<const bench::Excuse*>& stale, bool busy) {
  auto stale_lines = nlohmann::json::array();
  for (const bench::Excuse* excuse : stale) stale_lines.push_back(excuse->line);
  const nlohmann::json json{{"commit", commit()},
                            {"device", backend.describe()},
                            {"instruction_set", name(cpu_isa())},
                            {"precision", name(options.precision)},
                            {"minimum_share", options.limits.minimum_share},
                            {"above_ms", 1e3 * options.limits.above_s},
                            {"repetitions", options.repetitions},
                            {"busy", busy},
                            {"stale_excuses", stale_lines},
                            {"models", report_json(judged)}};
  std::ofstream file(options.out);
  file << json.dump(1) << '\n';
  if (!file.flush()) fail<Error>("{}: cannot write the figures", options.out);
}

int run(const Options& options) {
  const std::vector<bench::ModelSize> sizes = wanted_sizes(options);
  const std::vector<bench::Excuse> excuses = bench::read_excuses(options.excuses, cpu_isa());
  const std::shared_ptr<Backend> backend = open_backend("cpu", options.backend);
  fmt::print("{}; commit {}\n\n", backend->describe(), commit());
  Roofs roofs(*backend, options.precision, options.patience_s);
  std::vector<bench::JudgedModel> judged;
  for (const bench::ModelSize& size : sizes) {
    judged.push_back(measure(size, options, backend, excuses, roofs));
    fmt::print("{}", bench::table(judged.back(), options.all));
    std::fflush(stdout);
  }
  const bool whole_zoo = options.models.empty() && options.image == 0 && options.batch == 0;
  const std::vector<const bench::Excuse*> stale = bench::stale(excuses, judged, whole_zoo);
  for (const bench::Excuse* excuse : stale)
    fmt::print("stale: no slow call needs {}:{} ({})\n", options.excuses, excuse->line,
               excuse->pattern);
  const bool busy = roofs.was_busy(judged);
  if (busy)
    fmt::print(stderr,
               "call_bench: the machine had other work, which makes calls slow and roofs low; "
               "repeat this when it is idle\n");
  if (!options.out.empty()) write_json(options, *backend, judged, stale, busy);
  fmt::print("{}", bench::summary(judged, options.limits));
  return bench::any_slow(judged);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Times every call of the models' training steps by itself; see bench/README.md",
               "call_bench");
  Options options;
  declare(app, options);
  return bench::run_program(app, argc, argv, [&] { return run(options); });
}
