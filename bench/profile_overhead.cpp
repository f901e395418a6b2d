// The cost of recording per training step: blocks of steps with the profiler off, at level steps
// without and with the rings that keep the past, and at level spans, in turn, in one process on one
// machine. The result of a block is the median of its steps.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <filesystem>

#include "bench/open.h"
#include "bench/program.h"
#include "data/formats/dataset.h"
#include "data/load/loader.h"
#include "engine/core/error.h"
#include "engine/core/random.h"
#include "engine/core/record.h"
#include "engine/passes/compile.h"
#include "engine/run/trainer.h"
#include "models/build.h"
#include "profiler/recorder/recorder.h"
#include "tools/warpstep/profiling.h"

namespace {

using namespace warpstep;
using profiler::Level;

struct Options {
  std::string data, model = "cifar10cnn", device = "cpu", out = "/tmp";
  std::int64_t batch = 128;
  int rounds = 20, steps = 12, workers = 1;
};

struct Kind {
  Level level;
  bool keeps_past;
  const char* name;
};
constexpr std::array kinds{Kind{Level::off, false, "off"}, Kind{Level::steps, false, "no past"},
                           Kind{Level::steps, true, "steps"}, Kind{Level::spans, true, "spans"}};

// Collects the steps' times, and their records for a recorder.
class Observer final : public TrainObserver {
 public:
  Observer(profiler::Recorder* recorder, bool keeps_past)
      : recorder_(recorder), keeps_past_(keeps_past) {}
  void on_step(const StepRecord& record) override {
    times_.push_back(static_cast<double>(record.end_ns - record.begin_ns));
    if (recorder_) recorder_->on_step(tools::to_profiler_step(record), tools::place_after(record));
    if (!keeps_past_) record::keep(record::Keep::nothing);
  }
  double median() {
    const auto middle = times_.begin() + static_cast<std::ptrdiff_t>(times_.size() / 2);
    std::nth_element(times_.begin(), middle, times_.end());
    return *middle;
  }

 private:
  profiler::Recorder* recorder_;
  bool keeps_past_;
  std::vector<double> times_;
};

struct Block {
  double step_ns = 0, bytes_per_step = 0, finish_s = 0;
};

class Bench {
 public:
  explicit Bench(const Options& options)
      : options_(options),
        backend_(bench::open(options.device, {})),
        dataset_(data::open(options.data, data::Split::train)),
        loader_(dataset_, loader_options()),
        program_(step(), backend_) {
    program_.store().initialize(1);
  }

  Block run(const Kind& kind) {
    const std::filesystem::path path = std::filesystem::path(options_.out) / "overhead.prof";
    std::unique_ptr<profiler::Recorder> recorder;
    if (kind.level != Level::off) {
      // The window has all steps of the block except the first.
      recorder = std::make_unique<profiler::Recorder>(profiler::RecorderOptions{
          .level = kind.level,
          .schedule = {.skip_first = 0, .warmup = 1, .active = idx(options_.steps) - 1},
          .path = path});
      recorder->begin(progress_.step + 1, {progress_.next.step, loader_.steps_per_epoch()});
    }
    Observer observer(recorder.get(), kind.keeps_past);
    Trainer trainer({.step = program_, .data = loader_, .observers = {&observer}},
                    {.epochs = 0, .max_steps = progress_.step + idx(options_.steps)});
    const std::atomic<bool> never{false};
    trainer.run(progress_, never);
    Block block{.step_ns = observer.median()};
    if (!recorder) return block;
    const std::uint64_t begin = now_ns();
    recorder->finish();
    block.finish_s = static_cast<double>(now_ns() - begin) * 1e-9;
    for (const std::string& note : recorder->notes()) fail<Error>("{}", note);
    block.bytes_per_step = static_cast<double>(std::filesystem::file_size(path)) / options_.steps;
    return block;
  }

 private:
  data::LoaderOptions loader_options() const {
    data::LoaderOptions with;
    with.batch = options_.batch;
    with.workers = options_.workers;
    return with;
  }
  Graph step() const {
    const models::BuildOptions build{
        .batch = options_.batch,
        .image = dataset_->image_shape(),
        .classes = static_cast<std::int64_t>(dataset_->classes().size()),
        .mean = std::vector<float>(idx(dataset_->image_shape()[2]), 0.5F),
        .std = std::vector<float>(idx(dataset_->image_shape()[2]), 0.25F)};
    return compile_step(models::build(models::find(options_.model), build),
                        options_for(*backend_, {.schedule = {.peak = 1e-4}, .no_fuse = {}}));
  }

  Options options_;
  std::shared_ptr<Backend> backend_;
  std::shared_ptr<const data::Dataset> dataset_;
  data::Loader loader_;
  Program program_;
  Progress progress_;
};

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// The 95 % interval of the median, by the bootstrap with a fixed seed.
std::pair<double, double> interval(const std::vector<double>& values) {
  constexpr int resamples = 4000;
  std::vector<double> medians;
  for (int r = 0; r < resamples; ++r) {
    std::vector<double> drawn;
    for (std::uint64_t i = 0; i < values.size(); ++i)
      drawn.push_back(values[below(draw(static_cast<std::uint64_t>(r), Purpose::synthetic, 0, i)[0],
                                   static_cast<std::uint32_t>(values.size()))]);
    medians.push_back(median(std::move(drawn)));
  }
  std::sort(medians.begin(), medians.end());
  return {medians[resamples * 25 / 1000], medians[resamples * 975 / 1000]};
}

// ns per span, recorded or not.
double span_ns(bool kept) {
  constexpr int spans = 10'000;  // fit into a ring
  static const record::Name name{"measured"};
  double best = 1e9;
  for (int round = 0; round < 20; ++round) {
    record::keep_entries(kept);
    const std::uint64_t begin = now_ns();
    for (int i = 0; i < spans; ++i) const record::Span span(name);
    best = std::min(best, static_cast<double>(now_ns() - begin) / spans);
    record::keep_entries(false);
    record::drain([](std::uint32_t, std::span<const record::Entry>) {});
  }
  return best;
}

// ns to record one step, at level steps.
double record_ns(const Options& options) {
  constexpr std::uint64_t steps = 10'000;
  profiler::Recorder recorder({.path = std::filesystem::path(options.out) / "overhead.prof"});
  recorder.begin(1, {0, steps});
  const std::uint64_t begin = now_ns();
  for (std::uint64_t i = 1; i <= steps; ++i)
    recorder.on_step({.step = i, .begin_ns = i, .end_ns = i}, {i, steps});
  return static_cast<double>(now_ns() - begin) / steps;
}

void measure(const Options& options) {
  fmt::print("{:.2f} ns per span when off, {:.1f} ns when recorded; {:.0f} ns to record a step\n",
             span_ns(false), span_ns(true), record_ns(options));

  Bench bench(options);
  bench.run(kinds[0]);  // warms caches and pages
  std::array<std::vector<double>, kinds.size()> share;
  std::array<Block, kinds.size()> last;
  std::vector<double> past;
  for (int round = 0; round < options.rounds; ++round) {
    std::array<double, kinds.size()> step{};
    for (std::size_t i = 0; i < kinds.size(); ++i) {
      const std::size_t at = (i + static_cast<std::size_t>(round)) % kinds.size();
      last[at] = bench.run(kinds[at]);
      step[at] = last[at].step_ns;
    }
    for (std::size_t i = 1; i < kinds.size(); ++i) share[i].push_back(step[i] / step[0] - 1);
    past.push_back(step[2] / step[1] - 1);
  }
  fmt::print("{} on {}, batch {}: {} rounds of {} steps per kind, step {:.2f} ms\n", options.model,
             options.device, options.batch, options.rounds, options.steps, last[0].step_ns * 1e-6);
  const auto [least, most] = interval(past);
  fmt::print("the past, steps over no past: {:+.2f} % (95 %: {:+.2f} to {:+.2f} %)\n",
             100 * median(past), 100 * least, 100 * most);
  for (std::size_t i = 1; i < kinds.size(); ++i) {
    const auto [low, high] = interval(share[i]);
    fmt::print(
        "{:7}  {:+.2f} % (95 %: {:+.2f} to {:+.2f} %), {:.0f} bytes per step, {:.3f} s after "
        "the window\n",
        kinds[i].name, 100 * median(share[i]), 100 * low, 100 * high, last[i].bytes_per_step,
        last[i].finish_s);
  }
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("the cost of profiling per training step", "profile_overhead");
  Options options;
  app.add_option("--data", options.data, "folder with the images")->required();
  app.add_option("--model", options.model)->capture_default_str();
  app.add_option("--device", options.device)->capture_default_str();
  app.add_option("--batch", options.batch)->capture_default_str();
  app.add_option("--rounds", options.rounds, "of one block a kind")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--steps", options.steps, "a block; all but the first are in the window")
      ->check(CLI::Range(2, 1 << 20))
      ->capture_default_str();
  app.add_option("--workers", options.workers, "of the loader")->capture_default_str();
  app.add_option("--out", options.out, "folder for the session files")->capture_default_str();
  return bench::run_program(app, argc, argv, [&] {
    measure(options);
    return 0;
  });
}
