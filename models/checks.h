// What is refused of a model, or of a step of it, before anything calls its builder.
#pragma once

#include "models/build.h"

namespace warpstep::models {

bool has_builder(const Model& model);
// What to do where it has none, for messages.
inline constexpr std::string_view builder_hint = "set Model::logits or Model::text_logits";

// UsageError for a model without a builder, or with the name of one in `others`.
void require_new(const Model& model, const std::deque<Model>& others);
// Throws as build() says.
void require_buildable(const Model& model, const BuildOptions& options);

}  // namespace warpstep::models
