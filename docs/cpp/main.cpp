// train_own FOLDER [EPOCHS]: trains the model of own.cpp on its data set, in a program of its own.
#include <fmt/format.h>

#include <filesystem>
#include <fstream>

#include "data/load/loader.h"
#include "data/transforms/statistics.h"
#include "engine/core/random.h"
#include "engine/core/record.h"
#include "engine/explain/explain.h"
#include "engine/files/checkpoint.h"
#include "engine/passes/compile.h"
#include "engine/run/trainer.h"
#include "models/build.h"
#include "own.h"

using namespace warpstep;

namespace {

// Bars at random places, in noise: label 0 across, 1 down. A set to try the program with.
void draw_bars(const std::string& folder, data::Split split, std::uint64_t count) {
  static const record::Name name{"draw bars"};
  const record::Span span{name, count};
  constexpr std::uint64_t side = 12;
  std::filesystem::create_directories(folder);
  std::ofstream file(folder + "/" + std::string(data::name(split)) + ".csv");
  file << "label,pixels\n";
  for (std::uint64_t image = 0; image < count; ++image) {
    const auto place = draw(1, Purpose::synthetic, split == data::Split::train ? 0 : 1, image);
    const std::uint64_t label = place[0] % 2, bar = below(place[1], side);
    file << label;
    for (std::uint64_t pixel = 0; pixel < side * side; ++pixel) {
      const std::uint64_t across = label == 0 ? pixel / side : pixel % side;
      const auto noise = draw(2, Purpose::synthetic, place[2], pixel)[0] % 100;
      file << ',' << (across == bar ? 150 : 0) + noise;
    }
    file << '\n';
  }
}

// Notified of every step, epoch, evaluation and checkpoint.
class Log final : public TrainObserver {
 public:
  void on_step(const StepRecord& step) override { waited_ns_ += step.times.data_ns; }
  void on_epoch(const EpochRecord& epoch) override {
    fmt::print("epoch {}: loss {:.4f}, {:.1f} ms of waiting for data\n", epoch.epoch,
               epoch.score.loss(), static_cast<double>(waited_ns_) / 1e6);
    waited_ns_ = 0;
  }
  void on_evaluation(const EvaluationRecord& evaluation) override {
    fmt::print("  accuracy {:.1f} % of {} images\n", 100 * evaluation.score.accuracy(),
               evaluation.score.count);
  }

 private:
  std::uint64_t waited_ns_ = 0;
};

const data::TransformKind solarize("solarize", own::solarize_usage,
                                   "inverts bytes from it on, in half of the images",
                                   own::make_solarize);

void train(const std::string& folder, std::uint64_t epochs) {
  // The data: sets, and loaders that make batches of them in threads.
  const std::shared_ptr<data::Dataset> training = own::open_csv(folder, data::Split::train, {});
  const std::shared_ptr<data::Dataset> test = own::open_csv(folder, data::Split::test, {});
  data::LoaderOptions loading{.batch = 64, .workers = 1, .seed = 1};
  loading.recipe = data::Recipe("solarize=128,normalize");
  data::Loader batches(training, loading);
  loading.recipe = loading.recipe.for_evaluation();
  loading.shuffle = data::Shuffle::none;
  loading.tail = data::Tail::pad;
  loading.evaluates = true;
  data::Loader test_batches(test, loading);

  // The step: the model with normalised pixels before it and a loss after it, compiled.
  const data::ChannelStatistics pixels = data::channel_statistics(*training);
  const models::BuildOptions build{.batch = loading.batch,
                                   .image = training->image_shape(),
                                   .classes = static_cast<std::int64_t>(training->classes().size()),
                                   .mean = {pixels.mean.begin(), pixels.mean.end()},
                                   .std = {pixels.std.begin(), pixels.std.end()}};
  const std::shared_ptr<Backend> backend = open_backend("cpu");
  const Optimizer adam{.kind = Optimizer::Kind::adamw};
  const StepOptions step_options{.optimizer = adam, .schedule = {.peak = own::model.learning_rate}};
  Program step(compile_step(models::build(own::model, build), options_for(*backend, step_options)),
               backend);
  Program evaluation(
      compile_step(models::build(own::model, build), options_for(*backend, {.training = false})),
      backend, step.shared_store());
  step.store().initialize(1);
  fmt::print("{}\n", explain_calls(step));

  // The loop.
  Log log;
  const std::filesystem::path file = folder + "/two-convolutions.safetensors";
  const auto save = [&](const Progress& progress) {
    save_checkpoint(file, step.store(), adam.kind, progress, {std::string(own::model.name), "{}"});
    return file;
  };
  Trainer trainer({.step = step,
                   .data = batches,
                   .evaluation = &evaluation,
                   .evaluation_data = &test_batches,
                   .observers = {&log},
                   .save = save},
                  {.epochs = epochs});
  Progress progress;
  const std::atomic<bool> stop{false};  // set by a signal handler, for example
  trainer.run(progress, stop);
  fmt::print("{} steps, weights in {}\n", progress.step, file.string());
}

}  // namespace

int main(int argc, char** argv) {
  const std::string folder = argc > 1 ? argv[1] : "bars";
  try {
    if (!own::has_csv(folder, data::Split::train)) {
      draw_bars(folder, data::Split::train, 1024);
      draw_bars(folder, data::Split::test, 200);
    }
    train(folder, argc > 2 ? std::stoull(argv[2]) : 4);
  } catch (const std::exception& error) {
    fmt::print(stderr, "train_own: {}\n", error.what());
    return 1;
  }
}
