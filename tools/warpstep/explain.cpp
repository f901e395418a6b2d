// warpstep explain: prints the step of a model as a list of calls, without running it.
#include "engine/explain/explain.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "engine/core/error.h"
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
  std::int64_t classes = 10;
  std::int64_t image = 0;  // height and width; 0: the model's own
  bool evaluate = false;
  bool json = false;
  bool plans = false;
  std::string assume;
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
  return options_for(backend, step);
}

std::string heading(const ExplainOptions& options, const models::Model& model) {
  std::string text = fmt::format("{}: {}\n{} step, batch {}, {}", model.name, model.description,
                                 options.evaluate ? "evaluation" : "training", options.run.batch,
                                 options.run.precision);
  if (!options.evaluate) text += fmt::format(", {}", options.run.optimizer);
  if (model.is_text())
    text += fmt::format("\n{}", models::resolve_settings(model, options.run.model_option).text());
  for (const std::string& name : options.run.no_fuse) text += fmt::format(", without {}", name);
  return text;
}

int explain_model(const ExplainOptions& options) {
  const models::Model& model = models::find(options.run.model);
  models::BuildOptions build;
  build.batch = options.run.batch;
  build.classes = options.classes;
  if (model.is_text()) {
    build.settings = models::resolve_settings(model, options.run.model_option);
    build.sequence = options.run.sequence;
  } else if (!options.run.model_option.empty()) {
    models::resolve_settings(model, options.run.model_option);  // refuses them
  }
  if (options.image > 0 && !model.is_text())
    build.image = {options.image, options.image, model.image[2]};
  const std::shared_ptr<Backend> backend = backend_of(options);
  const StepOptions step = step_options(options, model, *backend);
  const Graph graph = models::build(model, build);
  const Program program(compile_step(graph, step), backend);
  std::string title = heading(options, model);
  if (step.training && !step.recompute.empty()) {
    StepOptions plain = step;
    plain.recompute.clear();
    title += "\n" + recompute_line(step.recompute, compile_step(graph, plain), program);
  }
  if (options.json) {
    nlohmann::json all = explain_json(program);
    all["fusions"] = fusions_json(graph, step);
    fmt::print("{}\n", all.dump(2));
  } else if (options.plans) {
    fmt::print("{}\non {}\n\n{}", title, program.backend().describe(), explain_plans(program));
  } else {
    const std::string floor =
        floor_line(program.graph(), program.backend().describe(), options.run.precision);
    fmt::print("{}\n{}{}\n{}", title, explain(program), floor.empty() ? "" : "\n" + floor,
               explain_fusions(graph, step));
  }
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
              .help = "classes of the last layer",
              .check = whole_number(1)});
  parser.add({.name = "--image",
              .variable = &options->image,
              .help = "height and width of the images; 0: the model's default",
              .check = in_range(0, 65536)});
  parser.add({.name = "--plans",
              .variable = &options->plans,
              .help = "print how cuDNN and cublasLt compute each convolution and product; without "
                      "a GPU, for the device of --assume"});
  parser.add({.name = "--assume",
              .variable = &options->assume,
              .help = "plan for this CUDA device without the GPU installed: sm_80, sm_90, sm_100 "
                      "and so on"});
  parser.add({.name = "--json",
              .variable = &options->json,
              .help = "print one JSON object, sizes in bytes"});
  declare_run_options(parser, options->run, explain_only);
  parser.footer(
      "Example:\n  warpstep explain cifar10cnn --batch 128 --no-fuse conv+relu\n"
      "  warpstep explain cifar10cnn --device cuda --precision fp16 --plans");
  return [options] { return explain_model(*options); };
}

const Command explain_command("explain", "print a model's calls, memory plan and totals",
                              declare_explain);

}  // namespace
}  // namespace warpstep::tools
