// warpstep explain: a model's step as a list of calls, before anything runs.
#include "engine/explain.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "engine/compile.h"
#include "models/zoo.h"
#include "tools/warpstep/command.h"

namespace warpstep::tools {
namespace {

struct Options {
  std::string model;
  models::BuildOptions build;
  std::string device = "auto";
  std::string precision = "fp32";
  StepOptions step;
  std::vector<std::string> no_fuse;
  bool evaluate = false;
  bool json = false;
};

// The backend by name; "auto" is cpu, or ref where that does not open.
std::shared_ptr<Backend> choose_backend(const std::string& device) {
  if (device != "auto") return open_backend(device);
  try {
    return open_backend("cpu");
  } catch (const Error& error) {
    fmt::print(stderr, "warpstep explain: {}; explaining the ref backend instead\n", error.what());
    return open_backend("ref");
  }
}

std::string heading(const Options& options, const models::Model& model) {
  std::string text = fmt::format("{}: {}\n{} step, batch {}, {}", model.name, model.description,
                                 options.step.training ? "training" : "evaluation",
                                 options.build.batch, options.precision);
  if (options.step.training) text += fmt::format(", {}", warpstep::text(options.step.optimizer));
  for (const std::string& name : options.no_fuse) text += fmt::format(", without {}", name);
  return text;
}

int run(const Options& given) {
  Options options = given;
  options.step.training = !options.evaluate;
  options.step.precision = parse_precision(options.precision);
  options.step.no_fuse = {options.no_fuse.begin(), options.no_fuse.end()};
  const models::Model& model = models::find(options.model);
  Graph graph = compile_step(models::build(model, options.build), options.step);
  const Program program(std::move(graph), choose_backend(options.device));
  if (options.json)
    fmt::print("{}\n", explain_json(program).dump(2));
  else
    fmt::print("{}\n{}", heading(options, model), explain(program));
  return done;
}

void declare_step(CLI::App& app, Options& options) {
  app.add_option("--precision", options.precision, "fp32, tf32, bf16 or fp16")
      ->capture_default_str();
  const std::map<std::string, Optimizer::Kind> kinds{{"sgd", Optimizer::Kind::sgd},
                                                     {"adam", Optimizer::Kind::adam},
                                                     {"adamw", Optimizer::Kind::adamw}};
  app.add_option("--optimizer", options.step.optimizer.kind, "sgd, adam or adamw (default adam)")
      ->transform(CLI::CheckedTransformer(kinds))
      ->type_name("NAME");
  app.add_option("--momentum", options.step.optimizer.momentum, "of sgd; above 0 it has a moment")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  app.add_option("--no-fuse", options.no_fuse, "leave out a fusion; may be given more than once")
      ->type_name("NAME");
  app.add_flag("--eval", options.evaluate, "the forward half alone");
}

Run declare(CLI::App& app) {
  auto options = std::make_shared<Options>();
  app.add_option("model", options->model, "name of a model")->required()->type_name("MODEL");
  app.add_option("--batch", options->build.batch, "samples a step")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--classes", options->build.classes, "classes of the last layer")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--device", options->device, "cpu, cuda, ref, or auto: cpu where it opens")
      ->capture_default_str();
  declare_step(app, *options);
  app.add_flag("--json", options->json, "print one JSON object, sizes in bytes");
  app.footer("Example:\n  warpstep explain cifar10cnn --batch 128 --no-fuse conv+relu");
  return [options] { return run(*options); };
}

const Command command("explain", "print a model's calls, memory plan and totals", declare);

}  // namespace
}  // namespace warpstep::tools
