// The table of models that come with Warpstep, and their builders.
#pragma once

#include <deque>
#include <span>
#include <string_view>

#include "engine/graph/layers.h"
#include "models/huggingface.h"
#include "models/settings.h"

namespace warpstep::models {

// What a language model reads.
struct Tokens {
  Tensor tokens, order;  // i32 [batch * sequence], see Embed
  std::int64_t sequence = 0;
  std::int64_t vocabulary = 0;
};

// A model of images has `logits`, one of text `text_logits`. Its loss is the cross-entropy of the
// logits with the input "labels" (Graph::find_input), i32, one per row of them, -1 for padding; a
// builder that calls set_loss() has its own instead.
struct Model {
  std::string_view name;
  std::string_view description;
  Shape image;           // [H,W,C] it was made for; others work where the layers fit
  double learning_rate;  // with Adam, the default optimiser
  Tensor (*logits)(Tensor images, std::int64_t classes);  // of normalised images [N,H,W,C]
  std::string_view transforms{};                          // default of its training data
  Tensor (*text_logits)(const Tokens& tokens, const Settings& settings) = nullptr;
  std::string_view settings{};  // of text_logits, where they differ from the table's
  std::span<const Setting> (*table)() = nullptr;  // of settings; null: none

  bool is_text() const { return text_logits != nullptr; }
};

// What `--model-option` may set of a model.
inline std::span<const Setting> settings_of(const Model& model) {
  return model.table ? model.table() : std::span<const Setting>();
}
// With the model's own settings, then `assigned`: "heads=12". Throws UsageError.
Settings resolve_settings(const Model& model, std::span<const std::string> assigned = {});

// How other programs name and store its weights.
const WeightRules& weight_rules_of(const Model& model);

const std::deque<Model>& zoo();
// UsageError for a model without a builder, or with the name of another.
void add_model(const Model& model);
const Model& find(std::string_view name);  // UsageError with the nearest name

// The builders, one file each: from normalised images [N,H,W,C] to logits [N,classes].
Tensor airbench(Tensor images, std::int64_t classes);
Tensor cifar10cnn(Tensor images, std::int64_t classes);
Tensor mlp(Tensor images, std::int64_t classes);
Tensor mnist_cnn(Tensor images, std::int64_t classes);
Tensor resnet9(Tensor images, std::int64_t classes);
Tensor resnet18(Tensor images, std::int64_t classes);
Tensor resnet34(Tensor images, std::int64_t classes);
Tensor resnet50(Tensor images, std::int64_t classes);
Tensor toynet(Tensor images, std::int64_t classes);
// From tokens to logits [batch * sequence, vocabulary].
Tensor gpt2(const Tokens& tokens, const Settings& settings);
std::span<const Setting> gpt2_settings();

}  // namespace warpstep::models
