#include "models/checks.h"

#include <fmt/ranges.h>

#include "engine/core/error.h"
#include "engine/core/text.h"

namespace warpstep::models {
namespace {

void require_builder(const Model& model) {
  if (!has_builder(model))
    fail<UsageError>("model '{}' has no builder: {}", model.name, builder_hint);
}

}  // namespace

bool has_builder(const Model& model) {
  return model.logits || model.text_logits;
}

const Model& find(std::string_view name) {
  std::vector<std::string> names;
  for (const Model& model : zoo()) {
    if (model.name == name) return model;
    names.emplace_back(model.name);
  }
  fail<UsageError>("no model is called '{}'{} (the models are {})", name, suggestion(name, names),
                   fmt::join(names, ", "));
}

void require_new(const Model& model, const std::deque<Model>& others) {
  require_builder(model);
  for (const Model& other : others)
    if (other.name == model.name)
      fail<UsageError>("two models are called '{}'; give the one that is added another name",
                       model.name);
}

void require_buildable(const Model& model, const BuildOptions& options) {
  require_builder(model);
  if (options.batch < 1)
    fail<UsageError>("{}: BuildOptions::batch is {}; must be at least 1", model.name,
                     options.batch);
  const bool is_set = options.images == Images::set;
  if (model.is_text() || (!is_set && options.images != Images::window)) return;
  if (!options.pixels)
    fail<ShapeError>("{}: windows or a resident set of images require a pixel plan", model.name);
  if (is_set && options.samples < 1)
    fail<UsageError>("{}: BuildOptions::samples is {}; a resident set has at least 1", model.name,
                     options.samples);
}

}  // namespace warpstep::models
