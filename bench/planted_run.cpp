#include "bench/planted_run.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <thread>

#include "data/load/loader.h"
#include "engine/core/clock.h"
#include "engine/core/cpus.h"
#include "engine/core/record.h"
#include "engine/explain/explain.h"
#include "engine/passes/compile.h"
#include "engine/run/trainer.h"
#include "models/build.h"
#include "profiler/recorder/recorder.h"
#include "tools/warpstep/profiling.h"

namespace warpstep::bench {
namespace {

void sleep_us(std::uint64_t us) {
  if (us > 0) std::this_thread::sleep_for(std::chrono::microseconds(us));
}

// Computes for that long by the thread's own clock, so that a busy machine makes it longer.
void compute_us(std::uint64_t us) {
  timespec time{};
  const auto now = [&] {
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000 +
           static_cast<std::uint64_t>(time.tv_nsec) / 1000;
  };
  const std::uint64_t end = now() + us;
  while (now() < end) {
  }
}

constexpr std::int64_t side = 8, channels = 3;

// Images of 8x8 that arrive slowly.
class SlowSet final : public data::Dataset {
 public:
  explicit SlowSet(std::uint64_t read_us)
      : read_us_(read_us), pixels_(idx(side * side * channels)) {}

  std::string kind() const override { return "PNG folder"; }
  std::string path() const override { return "planted"; }
  Shape image_shape() const override { return {side, side, channels}; }
  std::uint64_t size() const override { return 4096; }
  std::int32_t label(std::uint64_t index) const override {
    return static_cast<std::int32_t>(index % classes_.size());
  }
  const std::vector<std::string>& classes() const override { return classes_; }
  std::string name(std::uint64_t) const override { return "planted"; }
  std::uint64_t fingerprint() const override { return 0; }
  data::Sample fetch(std::uint64_t, data::Scratch& scratch) const override {
    static const record::Name read{"read", record::Kind::stage};
    const std::uint64_t begin = now_ns();
    sleep_us(read_us_);
    scratch.read_ns += record::note_since(read, begin);
    return {pixels_, data::Encoding::pixels, image_shape()};
  }

 private:
  std::uint64_t read_us_;
  std::vector<std::uint8_t> pixels_;
  std::vector<std::string> classes_{"a", "b", "c", "d"};
};

class SlowTransform final : public data::Transform {
 public:
  explicit SlowTransform(std::uint64_t us) : us_(us) {}
  data::TransformStage stage() const override { return data::TransformStage::bytes; }
  std::string name() const override { return "planted"; }
  std::string text() const override { return "planted"; }
  void apply(const data::RowImage&, const data::Draw&) const override { compute_us(us_); }

 private:
  std::uint64_t us_;
};

class SlowRunner final : public Runner {
 public:
  SlowRunner(Program& program, std::uint64_t us)
      : Runner(program), inner_(eager_runner(program)), us_(us) {}
  void run() override {
    inner_->step();
    sleep_us(us_);
  }

 private:
  std::unique_ptr<Runner> inner_;
  std::uint64_t us_;
};

class Watcher final : public TrainObserver {
 public:
  Watcher(const Plant& plant, profiler::Recorder& recorder) : plant_(plant), recorder_(recorder) {}
  void on_step(const StepRecord& record) override {
    recorder_.on_step(tools::to_profiler_step(record), tools::place_after(record));
    sleep_us(plant_.observer_us);
    if (record.step <= plant_.steps / 2) return;
    const double steps = static_cast<double>(plant_.steps - plant_.steps / 2);
    wait_ns += static_cast<double>(record.times.data_ns) / steps;
    step_ns += static_cast<double>(record.times.total_ns()) / steps;
  }
  double wait_ns = 0, step_ns = 0;

 private:
  const Plant& plant_;
  profiler::Recorder& recorder_;
};

class Noise {
 public:
  explicit Noise(int threads) {
    for (int i = 0; i < threads; ++i)
      threads_.emplace_back([this] {
        while (!stop_) compute_us(1000);
      });
  }
  ~Noise() {
    stop_ = true;
    for (std::thread& thread : threads_) thread.join();
  }

 private:
  std::atomic<bool> stop_{false};
  std::vector<std::thread> threads_;
};

profiler::Json loader_json(const Plant& plant, const data::Loader& loader) {
  return {{"workers", plant.workers},
          {"active", plant.workers},
          {"prefetch", plant.prefetch},
          {"batch", plant.batch},
          {"tier", "decoded"},
          {"encoding", "png"},
          {"format", "PNG folder"},
          {"normalize", "device"},
          {"steps_per_epoch", loader.steps_per_epoch()},
          {"cores", allowed_cores()},
          {"kernel_threads", plant.threads},
          {"can_pack", true}};
}

}  // namespace

bool PlantedResult::names(const std::string& finding) const {
  return std::any_of(analysis.findings.begin(), analysis.findings.end(),
                     [&](const profiler::Finding& f) { return f.key == finding; });
}

PlantedResult run_planted(const Plant& plant, const std::string& folder) {
  const std::filesystem::path path = std::filesystem::path(folder) / "planted.prof";
  const auto backend = open_backend("cpu", {.threads = plant.threads});
  data::LoaderOptions with;
  with.batch = plant.batch;
  with.workers = plant.workers;
  with.prefetch = plant.prefetch;
  if (plant.transform_us > 0)
    with.recipe = data::Recipe({std::make_shared<SlowTransform>(plant.transform_us)});
  data::Loader loader(std::make_shared<SlowSet>(plant.read_us), with);
  const models::BuildOptions build{.batch = plant.batch,
                                   .image = {side, side, channels},
                                   .classes = 4,
                                   .mean = {0.5F, 0.5F, 0.5F},
                                   .std = {0.25F, 0.25F, 0.25F}};
  Program program(compile_step(models::build(models::find("mlp"), build),
                               options_for(*backend, {.schedule = {.peak = 1e-4}, .no_fuse = {}})),
                  backend);
  program.store().initialize(1);
  profiler::Recorder recorder(
      {.level = profiler::Level::spans,
       .schedule = {.skip_first = 2, .warmup = 1, .active = plant.steps - 4},
       .path = path,
       .listens = false});
  recorder.set_stamp({{"options",
                       {{"model", "mlp"},
                        {"batch", plant.batch},
                        {"workers", plant.workers},
                        {"threads", plant.threads},
                        {"data", "planted"},
                        {"tier", "decoded"},
                        {"normalize", "device"},
                        {"shuffle", "full"},
                        {"log_every", 10}}}});
  recorder.set_program(explain_json(program));
  recorder.set_loader(loader_json(plant, loader));
  SlowRunner runner(program, plant.step_us);
  Watcher watcher(plant, recorder);
  const Noise noise(plant.noise_threads);
  Progress progress;
  const std::atomic<bool> never{false};
  recorder.begin(1, {0, loader.steps_per_epoch()});
  Trainer({.step = program, .data = loader, .runner = &runner, .observers = {&watcher}},
          {.epochs = 0, .max_steps = plant.steps})
      .run(progress, never);
  recorder.finish();
  PlantedResult result{.session = profiler::read_session(path)};
  result.analysis = profiler::analyse(result.session);
  result.wait_ns = watcher.wait_ns;
  result.step_ns = watcher.step_ns;
  return result;
}

}  // namespace warpstep::bench
