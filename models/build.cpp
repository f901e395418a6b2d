#include "models/build.h"

#include "engine/core/caught.h"
#include "engine/core/error.h"
#include "models/checks.h"

namespace warpstep::models {

namespace {

struct Inputs {
  Tensor images, labels, rows;  // rows: without a graph where nothing reads them
};

Inputs declare_inputs(Graph& graph, const BuildOptions& options, const Shape& image) {
  const bool planned = options.images == Images::window || options.images == Images::set;
  const bool is_set = options.images == Images::set;
  const Shape& seen = planned && options.stored.rank() == 3 ? options.stored : image;
  const Role role = options.uploaded ? Role::resident : Role::input;
  const DType dtype = options.images == Images::floats ? DType::f32 : DType::u8;
  const Shape shape{is_set ? options.samples : options.batch, seen[0], seen[1], seen[2]};
  Inputs inputs;
  inputs.images = graph.input("images", {dtype, shape}, is_set ? Role::resident : role);
  inputs.labels = graph.input("labels", {DType::i32, {options.batch}}, role);
  if (planned || options.rows)
    inputs.rows = graph.input("rows", row_plans_type(options.batch), role);
  return inputs;
}

// The normalised pixels that the model sees.
Tensor pixels(const Inputs& inputs, const BuildOptions& options, const Shape& image) {
  if (options.images == Images::floats) return convert(inputs.images);
  if (options.images != Images::bytes)
    return augment(inputs.images, inputs.rows, *options.pixels, {image[0], image[1]});
  const std::vector<float> half(idx(image[2]), 0.5F), quarter(idx(image[2]), 0.25F);
  return normalize(inputs.images, options.mean.empty() ? half : options.mean,
                   options.std.empty() ? quarter : options.std);
}

// Cross-entropy, unless the model has a loss of its own.
void add_loss(const Model& model, Graph& graph, Tensor logits, Tensor rows,
              const LossOptions& options) {
  if (graph.loss < 0) return cross_entropy(logits, graph.find_input("labels"), rows, options);
  if (rows.graph != nullptr || options != LossOptions{})
    fail<UsageError>(
        "{} has a loss of its own: leave out --label-smoothing, --class-weights, --loss, and "
        "transforms that mix images",
        model.name);
  graph.logits = logits.id;
}

Graph build_text(const Model& model, const BuildOptions& options) {
  const Settings settings =
      options.settings.text().empty() ? resolve_settings(model) : options.settings;
  const std::int64_t of_data = options.vocabulary > 0 ? options.vocabulary : gpt2_vocabulary;
  const std::int64_t own = settings.whole_or("vocabulary", 0);
  if (own > 0 && own < options.vocabulary)
    fail<UsageError>(
        "--model-option vocabulary={}: the data have {} tokens; use at least as many, or leave the "
        "option out",
        own, options.vocabulary);
  const std::int64_t sequence =
      options.sequence > 0 ? options.sequence : settings.whole_or("context", 0);
  if (sequence == 0) fail<UsageError>("{}: give the --sequence; it has no context", model.name);
  const Type tokens{DType::i32, {options.batch * sequence}};
  const Role role = options.uploaded ? Role::resident : Role::input;
  Graph graph;
  Tokens in{.tokens = graph.input("tokens", tokens, role),
            .order = graph.input("order", tokens, role),
            .sequence = sequence,
            .vocabulary = own > 0 ? own : of_data};
  graph.input("labels", tokens, role);
  const Tensor logits =
      naming(model.name, "builder", [&] { return model.text_logits(in, settings); });
  add_loss(model, graph, logits, {}, options.loss);
  return graph;
}

}  // namespace

Graph build(const Model& model, const BuildOptions& options) {
  require_buildable(model, options);
  if (model.is_text()) return build_text(model, options);
  Graph graph;
  const Shape image = options.image.rank() == 0 ? model.image : options.image;
  if (image.rank() != 3)
    fail<ShapeError>("{}: images are [H,W,C], not {}", model.name, image.text());
  const bool planned = options.images == Images::window || options.images == Images::set;
  const Inputs inputs = declare_inputs(graph, options, image);
  const Tensor seen = pixels(inputs, options, image);
  const Tensor logits =
      naming(model.name, "builder", [&] { return model.logits(seen, options.classes); });
  if (graph.loss < 0) require_logits(logits, options.batch, options.classes);
  const bool mixed = options.rows || (planned && options.pixels->mix);
  add_loss(model, graph, logits, mixed ? inputs.rows : Tensor{}, options.loss);
  return graph;
}

}  // namespace warpstep::models
