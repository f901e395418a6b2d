// A training step that another program times against its own: the child of
// bench/peers/alternate.py, whose README describes the line protocol. Weights and batches are those
// of the goldens, Adam with lr 1e-4.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <array>
#include <chrono>
#include <iostream>

#include "engine/compile.h"
#include "engine/core/error.h"
#include "engine/runner.h"
#include "models/zoo.h"
#include "tests/golden_batch.h"

namespace {

using namespace warpstep;

struct Options {
  std::string model = "cifar10cnn", device = "cpu";
  std::int64_t batch = 128;
  BackendOptions backend;
};

std::vector<float> mean_of(const std::string& model) {
  return model == "mlp" ? std::vector<float>{0.5F} : std::vector<float>{0.5F, 0.4375F, 0.5625F};
}
std::vector<float> std_of(const std::string& model) {
  return model == "mlp" ? std::vector<float>{0.25F} : std::vector<float>{0.25F, 0.3125F, 0.375F};
}

void serve(const Options& options) {
  constexpr std::uint64_t seed = 1;
  constexpr std::uint32_t batches = 8;
  const models::Model& model = models::find(options.model);
  const models::BuildOptions build{
      .batch = options.batch, .mean = mean_of(options.model), .std = std_of(options.model)};
  const std::shared_ptr<Backend> backend = open_backend(options.device, options.backend);
  const StepOptions step_options = options_for(*backend, {.schedule = {.peak = 1e-4}});
  Program program(compile_step(models::build(model, build), step_options), backend);
  program.store().initialize(seed);
  std::vector<GoldenBatch> data;
  for (std::uint32_t s = 0; s < batches; ++s)
    data.push_back(golden_batch(seed, s, options.batch, model.image));
  const auto runner = eager_runner(program);
  std::uint64_t step = 0;
  std::string command;
  for (std::uint64_t steps = 0; std::cin >> command && command == "window" && std::cin >> steps;) {
    std::vector<float> losses;
    const auto begin = std::chrono::steady_clock::now();
    for (std::uint64_t i = 0; i < steps; ++i, ++step) {
      const GoldenBatch& batch = data[step % batches];
      const std::array<const void*, 2> slots{batch.images.data(), batch.labels.data()};
      program.set_inputs(slots);
      runner->step();
      losses.push_back(program.loss());
    }
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    fmt::print("{{\"seconds\": {}, \"losses\": [{}]}}\n", seconds.count(), fmt::join(losses, ", "));
    std::fflush(stdout);
  }
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("A training step that speaks the line protocol of bench/peers");
  Options options;
  app.add_option("--model", options.model)->capture_default_str();
  app.add_option("--device", options.device)->capture_default_str();
  app.add_option("--batch", options.batch)->capture_default_str();
  app.add_option("--threads", options.backend.threads)->capture_default_str();
  app.add_flag("--exact-math", options.backend.exact_math);
  CLI11_PARSE(app, argc, argv);
  try {
    serve(options);
  } catch (const Error& error) {
    fmt::print(stderr, "step_peer: {}\n", error.what());
    return 1;
  }
}
