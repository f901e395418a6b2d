// warpstep explain: prints the step of a model as a list of calls, without running it.
#include "engine/explain/explain.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "engine/core/error.h"
#include "engine/core/json_text.h"
#include "engine/explain/scaling.h"
#include "engine/passes/compile.h"
#include "tools/warpstep/command.h"
#include "tools/warpstep/options.h"
#include "tools/warpstep/say.h"
#include "tools/warpstep/session.h"
#include "tools/warpstep/throughput.h"

namespace warpstep::tools {
namespace {

struct ExplainOptions {
  RunOptions run;
  std::int64_t classes = 0;
  std::int64_t image = 0;  // height and width; 0: the model's own
  bool evaluate = false;
  bool json = false;
  bool plans = false;
  std::string assume;
  std::int64_t world = 1;
  double interconnect = 0;  // GB/s
  double latency = 10;      // us
  double step_ms = 0;       // 0: by the data sheet
};

constexpr const char* default_assumed = "sm_90";

// A CUDA device that may be missing.
std::shared_ptr<Backend> assumed(const RunOptions& options, const std::string& device) {
  BackendOptions backend = backend_options(options);
  backend.assumed_device = device;
  return open_backend("cuda", backend);
}

// Steps can be explained even on a machine without any fast backend.
std::shared_ptr<Backend> backend_of(const ExplainOptions& all) {
  const RunOptions& options = all.run;
  if (!all.assume.empty()) return assumed(options, all.assume);
  try {
    return open_device(options).backend;
  } catch (const DeviceError& error) {
    if (all.plans && options.device.starts_with("cuda")) {
      say("warpstep explain: {}; planning for {}, see --assume\n", error.what(), default_assumed);
      return assumed(options, default_assumed);
    }
    if (options.device.starts_with("cuda"))
      fail<DeviceError>("{}; {} explains it without a GPU", error.what(), "--assume sm_90");
    if (options.device != "auto") throw;
    say("warpstep explain: {}; explaining the step of the ref backend\n", error.what());
    return open_backend("ref");
  }
}

StepOptions step_options(const ExplainOptions& options, const models::Model& model,
                         const Backend& backend) {
  StepOptions step;
  step.training = !options.evaluate;
  step.optimizer = optimizer_of(options.run);
  step.schedule.peak = model.learning_rate;
  step.precision = parse_precision(options.run.precision);
  step.no_fuse.insert(options.run.no_fuse.begin(), options.run.no_fuse.end());
  step.recompute = options.run.recompute;
  step.statistics = options.run.stats_every > 0;
  step.update = update_options(options.run);
  step.update.replica.ranks = options.world;
  step.sync_norms = options.run.sync_bn;
  step.shard_optimizer = shards_optimizer(options.run, backend.name(), options.world);
  return options_for(backend, step);
}

// Of the last layer. A training's are those of its data, which are not read here.
std::int64_t classes_of(const ExplainOptions& options, const models::Settings& settings) {
  const bool is_text = models::find(options.run.model).is_text();
  const std::int64_t given = is_text ? settings.whole_or("vocabulary", 0) : options.classes;
  const auto weights = static_cast<std::int64_t>(options.run.class_weights.size());
  if (given > 0 && weights > 0 && given != weights)
    fail<UsageError>("--class-weights has {}, but {} is {}", counted(weights, "value"),
                     is_text ? "--model-option vocabulary" : "--classes", given);
  constexpr std::int64_t classes = 10;
  return given > 0 ? given : weights > 0 ? weights : is_text ? models::gpt2_vocabulary : classes;
}

std::string heading(const ExplainOptions& options, const models::Model& model) {
  std::string text = fmt::format("{}: {}\n{} step, batch {}, {}", model.name, model.description,
                                 options.evaluate ? "evaluation" : "training", options.run.batch,
                                 options.run.precision);
  if (!options.evaluate) text += fmt::format(", {}", options.run.optimizer);
  if (model.is_text()) {
    const models::Settings settings = models::resolve_settings(model, options.run.model_option);
    text += fmt::format(
        "\n{}{}", settings.text(),
        settings.whole_or("vocabulary", 0) > 0
            ? ""
            : fmt::format("; without data a vocabulary of {}", classes_of(options, settings)));
  }
  for (const std::string& name : options.run.no_fuse) text += fmt::format(", without {}", name);
  return text;
}

// The prediction for --world ranks, and for half as many and so on.
std::vector<ScaledStep> scaled_steps(const ExplainOptions& options, const Program& program) {
  const Graph& step = program.graph();
  Roofline roofline = data_sheet_roofline(program.backend().describe(), options.run.precision);
  if (roofline.bytes_per_second <= 0 && options.step_ms == 0)
    fail<UsageError>(
        "--world: how long does a step of one rank take? No data sheet of {} is known; give the "
        "time that training measured: --step-ms MS",
        program.backend().describe());
  if (roofline.bytes_per_second <= 0) roofline = {100, 1};  // only the calls' shares are used
  const auto floor = [&](const Node& node) {
    const bool is_free = is_view(node.op) || is_measure(node.op);
    return is_free ? 0 : roofline.seconds(step.cost(node));
  };
  const Link link{1e9 * options.interconnect, 1e-6 * options.latency};
  const ScaledStep alone = scale_step(step, program.lanes(), floor, 1, link);
  const double factor = options.step_ms > 0 ? 1e-3 * options.step_ms / alone.alone : 1;
  std::vector<ScaledStep> steps;
  for (std::int64_t ranks = options.world; ranks > 1; ranks /= 2)
    steps.push_back(scale_step(
        step, program.lanes(), [&](const Node& node) { return factor * floor(node); }, ranks,
        link));
  std::ranges::reverse(steps);
  return steps;
}

std::string scaling_heading(const ExplainOptions& options, const ScaledStep& step) {
  return fmt::format(
      "predicted for {} ranks that exchange {} GB/s each, {} us per message; a step of one rank "
      "takes {:.2f} ms ({})",
      options.world, options.interconnect, options.latency, 1e3 * step.of_one_rank,
      options.step_ms > 0 ? "--step-ms" : "its floor by the data sheet: give a measured --step-ms");
}

int explain_model(const ExplainOptions& options) {
  if (options.world > 1 && options.interconnect <= 0)
    fail<UsageError>(
        "--world {}: how fast do the ranks exchange? Give what each sends and receives, "
        "--interconnect GB/s (NVLink of an H100: about 380; a 400 Gb/s port per GPU: 45)",
        options.world);
  if (options.world > 1 && options.evaluate)
    fail<UsageError>("--world does not go with --eval: evaluations exchange nothing but scores");
  const models::Model& model = models::find(options.run.model);
  models::BuildOptions build;
  build.batch = options.run.batch;
  if (model.is_text()) {
    build.settings = models::resolve_settings(model, options.run.model_option);
    build.sequence = options.run.sequence;
  } else if (!options.run.model_option.empty()) {
    models::resolve_settings(model, options.run.model_option);  // refuses them
  }
  build.classes = build.vocabulary = classes_of(options, build.settings);
  build.loss = loss_options(options.run, build.classes);
  if (options.evaluate && model.is_text()) build.loss = plain_loss(std::move(build.loss));
  const bool names_image = model.image.rank() == 3;
  if (options.image == 0 && !model.is_text() && !names_image)
    fail<UsageError>("{}: the model has no default image size; give one: --image PIXELS",
                     model.name);
  if (options.image > 0 && !model.is_text())
    build.image = {options.image, options.image, names_image ? model.image[2] : 3};
  const std::shared_ptr<Backend> backend = backend_of(options);
  const StepOptions step = step_options(options, model, *backend);
  const Graph graph = models::build(model, build);
  const Program program(compile_step(graph, step), backend, nullptr, false);
  std::string title = heading(options, model);
  if (step.training && !step.recompute.empty()) {
    StepOptions plain = step;
    plain.recompute.clear();
    title += "\n" + recompute_line(step.recompute, compile_step(graph, plain), program);
  }
  std::vector<ScaledStep> scaled;
  if (options.world > 1) scaled = scaled_steps(options, program);
  if (options.json) {
    nlohmann::json all = explain_json(program);
    all["fusions"] = fusions_json(graph, step);
    if (!scaled.empty()) all["scaling"] = scaling_json(scaled);
    fmt::print("{}\n", printed(all, 2));
  } else if (!scaled.empty()) {
    fmt::print("{}\n{}\n\n{}", title, scaling_heading(options, scaled.back()),
               scaling_text(scaled));
  } else if (options.plans) {
    fmt::print("{}\non {}\n\n{}", title, program.backend().describe(), explain_plans(program));
  } else {
    const std::string floor =
        floor_line(program, program.backend().describe(), options.run.precision);
    fmt::print("{}\n{}{}\n{}", title, explain(program), floor.empty() ? "" : "\n" + floor,
               explain_fusions(graph, step));
  }
  if (const std::string note = attention_note(program); !note.empty()) say("{}\n", note);
  return done;
}

Run declare_explain(Parser parser) {
  auto options = std::make_shared<ExplainOptions>();
  parser.add({.name = "model",
              .variable = &options->run.model,
              .help = "name of a model",
              .type = "MODEL",
              .required = true});
  parser.add({.name = "--eval",
              .variable = &options->evaluate,
              .help = "explain the step of an evaluation: the forward half alone"});
  parser.add({.name = "--classes",
              .variable = &options->classes,
              .help = "classes of the last layer; 0: as many as --class-weights, else 10",
              .check = whole_number(0)});
  parser.add(
      {.name = "--image",
       .variable = &options->image,
       .help = "height and width of the images; 0: the model's default. A model without one has 3 "
               "channels",
       .check = in_range(0, 65536)});
  parser.add({.name = "--plans",
              .variable = &options->plans,
              .help = "print how cuDNN and cublasLt compute each convolution and product; without "
                      "a GPU, for the device of --assume"});
  parser.add({.name = "--assume",
              .variable = &options->assume,
              .help = "plan for this CUDA device without the GPU installed: sm_80, sm_90, sm_100 "
                      "and so on"});
  parser.add({.name = "--world",
              .variable = &options->world,
              .help = "predict how the step scales over up to this many ranks; docs/distributed.md",
              .check = whole_number(1, 1 << 20)});
  parser.add({.name = "--interconnect",
              .variable = &options->interconnect,
              .help = "with --world: GB/s that each rank sends and receives at the same time",
              .check = number_from_zero()});
  parser.add({.name = "--latency",
              .variable = &options->latency,
              .help = "with --world: latency of a message between two ranks, in us",
              .check = number_from_zero()});
  parser.add({.name = "--step-ms",
              .variable = &options->step_ms,
              .help =
                  "with --world: measured time of a step of one rank, in ms; 0: its floor by the "
                  "GPU's data sheet",
              .check = number_from_zero()});
  parser.add({.name = "--json",
              .variable = &options->json,
              .help = "print one JSON object, sizes in bytes"});
  declare_run_options(parser, options->run, explain_only);
  parser.footer(
      "Example:\n  warpstep explain cifar10cnn --batch 128 --no-fuse conv+relu\n"
      "  warpstep explain cifar10cnn --device cuda --precision fp16 --plans\n"
      "  warpstep explain resnet50 --precision bf16 --assume sm_90 --world 8 "
      "--interconnect 380");
  return [options] { return explain_model(*options); };
}

const Command explain_command("explain", "print a model's calls, memory plan and totals",
                              declare_explain);

}  // namespace
}  // namespace warpstep::tools
