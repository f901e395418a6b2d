// warpstep eval: loss and accuracy of saved weights.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <filesystem>

#include "engine/checkpoint.h"
#include "engine/core/error.h"
#include "tools/warpstep/command.h"
#include "tools/warpstep/progress.h"
#include "tools/warpstep/run_directory.h"
#include "tools/warpstep/session.h"

namespace warpstep::tools {
namespace {

struct EvalRequest {
  RunOptions options;
  std::string run;
  std::string split = "test";
  bool raw_weights = false;
  bool json = false;
};

int evaluate_run(const CLI::App& app, const EvalRequest& request) {
  const std::filesystem::path checkpoint = std::filesystem::is_regular_file(request.run)
                                               ? std::filesystem::path(request.run)
                                               : newest_checkpoint(request.run);
  const Json stored = Json::parse(read_checkpoint_info(checkpoint).config_json, nullptr, false);
  if (stored.is_discarded() || !stored.contains("options"))
    fail<DataError>("{}: its configuration is broken", checkpoint.string());
  const RunOptions options = overridden(app, request.options, stored.at("options"));
  const Device device = open_device(options);
  std::unique_ptr<Program> program;  // ends last: the source's thread copies for its steps
  const data::Split split = request.split == "test" ? data::Split::test : data::Split::train;
  Source source = open_source(options, models::find(options.model), split, data::Split::test);
  start_loader(source, options, data::Split::test, device.backend, 1);
  program = evaluation_program(options, source, device.backend, nullptr);
  start_feeder(source, *program);
  program->store().initialize(0);  // buffers that no checkpoint has: the loss's class weights
  load_parameters(checkpoint, program->store(), !request.raw_weights);
  const Score score = evaluate(*program, source.batches(), options.limit_batches);
  if (request.json) {
    const Json result{{"checkpoint", checkpoint.string()},
                      {"data", options.data},
                      {"split", request.split},
                      {"images", score.count},
                      {"correct", score.correct},
                      {"accuracy", score.accuracy()},
                      {"loss", score.loss()}};
    fmt::print("{}\n", result.dump(2));
    return done;
  }
  fmt::print("{} on the {} images of {}: accuracy {} ({} of {}), loss {}\n", checkpoint.string(),
             request.split, options.data, percent(score.accuracy()), grouped(score.correct),
             grouped(score.count), loss_text(score.loss()));
  return done;
}

Run declare(CLI::App& app) {
  auto request = std::make_shared<EvalRequest>();
  app.add_option("run", request->run, "run directory, or a checkpoint of one")->required();
  app.add_option("--data", request->options.data, "another data set than the run's");
  app.add_option("--split", request->split, "test or train")
      ->capture_default_str()
      ->check(CLI::IsMember({"test", "train"}));
  declare_model_options(app, request->options);
  declare_data_options(app, request->options);
  app.add_option("--limit-batches", request->options.limit_batches,
                 "stop after so many batches; 0: all")
      ->capture_default_str()
      ->check(whole_number());
  app.add_flag("--no-ema", request->raw_weights,
               "the weights themselves, where the checkpoint also has their average");
  app.add_flag("--json", request->json, "the result as JSON");
  app.footer("Example:\n  warpstep eval runs/first");
  return [&app, request] { return evaluate_run(app, *request); };
}

const Command command("eval", "loss and accuracy of saved weights", declare);

}  // namespace
}  // namespace warpstep::tools
