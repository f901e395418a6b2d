// warpstep models: what `warpstep train` can train.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "engine/core/json_text.h"
#include "engine/core/text.h"
#include "models/build.h"
#include "models/zoo.h"
#include "tools/warpstep/command.h"
#include "tools/warpstep/json.h"
#include "tools/warpstep/options.h"
#include "tools/warpstep/progress.h"
#include "tools/warpstep/text_table.h"

namespace warpstep::tools {
namespace {

constexpr std::int64_t counted_classes = 10;

struct ModelsRequest {
  std::string plugin;
  bool json = false;
};

// Whether the model says what size of images, or how many tokens, it was made for: a plugin's may
// not.
bool has_input(const models::Model& model) {
  if (!model.is_text()) return model.image.rank() == 3;
  return models::resolve_settings(model).whole_or("context", 0) > 0;
}

// Elements of all parameters: of a graph, so that no memory for them is needed. Images are of the
// size and text of the vocabulary that the model was made for.
std::int64_t parameter_count(const models::Model& model) {
  models::BuildOptions build{.batch = 1, .classes = counted_classes};
  if (model.is_text()) build.settings = models::resolve_settings(model);
  const Graph graph = models::build(model, build);
  std::int64_t count = 0;
  for (const Parameter& parameter : graph.parameters)
    count += graph.value(parameter.value).type.shape.count();
  return count;
}

std::string input_of(const models::Model& model) {
  if (!model.is_text()) return model.image.text();
  return fmt::format("{} tokens", models::resolve_settings(model).whole("context"));
}

// "layers heads ... ", the names of --model-option; "-" where there are none.
std::string options_of(const models::Model& model) {
  std::string names;
  for (const models::Setting& setting : models::settings_of(model))
    names += fmt::format("{}{}", names.empty() ? "" : ",", setting.name);
  return names.empty() ? "-" : names;
}

Json json_of(const models::Model& model) {
  Json json{{"name", model.name},
            {"parameters", nullptr},
            {"input", nullptr},
            {"learning_rate", model.learning_rate},
            {"transforms", model.transforms},
            {"options", Json::object()},
            {"description", model.description}};
  if (has_input(model)) {
    json["parameters"] = parameter_count(model);
    json["input"] = input_of(model);
  }
  if (!model.is_text()) json["classes"] = counted_classes;
  for (const models::Setting& setting : models::settings_of(model))
    json["options"][std::string(setting.name)] = setting.help;
  return json;
}

int list_models(const ModelsRequest& request) {
  if (request.json) {
    Json all = Json::array();
    for (const models::Model& model : models::zoo()) all.push_back(json_of(model));
    fmt::print("{}\n", printed(all, 2));
    return done;
  }
  TextTable table{{{"name"}, {"parameters", true}, {"input"}, {"lr", true}, {"for"}}, {}};
  for (const models::Model& model : models::zoo())
    table.rows.push_back({std::string(model.name),
                          has_input(model) ? grouped(parameter_count(model)) : "-",
                          has_input(model) ? input_of(model) : "-",
                          fmt::format("{}", model.learning_rate), std::string(model.description)});
  fmt::print("{}", table.text());
  fmt::print(
      "\nParameters are counted for {} classes or GPT-2's vocabulary; other images work where the "
      "layers fit.\n",
      counted_classes);
  for (const models::Model& model : models::zoo())
    if (const std::string options = options_of(model); options != "-")
      fmt::print("{}: --model-option NAME=VALUE with {}\n", model.name, options);
  fmt::print("Train one: warpstep train NAME --data DIR. Its calls: warpstep explain NAME.\n");
  return done;
}

Run declare_models(Parser parser) {
  auto request = std::make_shared<ModelsRequest>();
  parser.add({.name = "--plugin",
              .variable = &request->plugin,
              .help = "also list the models of this library, see docs/plugins.md",
              .check = loaded_plugin(),
              .type = "FILE"});
  parser.add({.name = "--json",
              .variable = &request->json,
              .help = "print a JSON array, with the options of each model"});
  parser.footer("Example:\n  warpstep models");
  return [request] { return list_models(*request); };
}

const Command models_command("models", "list the models that can be trained", declare_models);

}  // namespace
}  // namespace warpstep::tools
