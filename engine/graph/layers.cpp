#include "engine/graph/layers.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "engine/core/error.h"
#include "engine/core/text.h"
#include "engine/graph/model_line.h"

namespace warpstep {
namespace {

// Throws UsageError for a tensor of no graph.
Graph& graph_of(Tensor x) {
  x.type();
  return *x.graph;
}

// Kernels read what they are given as floating-point numbers.
void require_numbers(std::string_view layer, Tensor x) {
  if (!is_float(x.type().dtype))
    fail<ShapeError>("{} takes floating-point numbers, not {}; normalize() converts bytes to them",
                     layer, x.type().text());
}

// The layer that made x, so that relu, pool and the like are listed with it.
std::string layer_of(Tensor x) {
  const Graph& graph = graph_of(x);
  const int node = graph.producers()[idx(x.id)];
  return node < 0 ? "" : graph.nodes[idx(node)].scope;
}

Tensor record_one(AnyOp op, const std::vector<Tensor>& in, std::string scope, Where where) {
  return graph_of(in[0]).record(Phase::forward, std::move(op), in, std::move(scope), where)[0];
}

void require_initial(const std::string& name, const Initial& initial) {
  const bool may_be_negative = initial.kind == Initial::Kind::constant;
  if (!std::isfinite(initial.value) || (initial.value < 0 && !may_be_negative))
    fail<ShapeError>("parameter {} begins with {}; must be a finite number{}", name, initial.value,
                     may_be_negative ? "" : " from 0");
}

Tensor parameter(Graph& graph, std::string name, Shape shape, Shape view,
                 std::vector<int> permutation, Initial initial) {
  for (const Parameter& other : graph.parameters)
    if (other.name == name)
      fail<ShapeError>("two parameters are called {}; give each layer its own name", name);
  for (const Buffer& buffer : graph.buffers)
    if (buffer.name == name)
      fail<ShapeError>("a parameter and a buffer are called {}; give each its own name", name);
  if (printable(name) != name)  // a checkpoint's JSON cannot have it
    fail<ShapeError>("parameter {}: a name must be UTF-8 without control characters",
                     printable(name));
  if (shape.count() == 0)
    fail<ShapeError>("parameter {} of {} has no elements; every extent must be at least 1", name,
                     shape.text());
  require_initial(name, initial);
  const int id = graph.add_value({DType::f32, shape}, Role::parameter, name);
  graph.value(id).owner = static_cast<int>(graph.parameters.size());
  graph.parameters.push_back({.name = std::move(name),
                              .value = id,
                              .gradient = -1,
                              .moments = {},
                              .view = view,
                              .permutation = std::move(permutation),
                              .initial = initial});
  return {&graph, id};
}

// Distinguishes the random numbers of the layers that drop.
std::uint32_t next_dropout(const Graph& graph) {
  return static_cast<std::uint32_t>(
      std::count_if(graph.nodes.begin(), graph.nodes.end(), [](const Node& node) {
        return std::holds_alternative<Dropout>(node.op) ||
               std::holds_alternative<Attention>(node.op);
      }));
}

// The image shape [H,W,C] that x was flattened from, seen through ops that keep every element in
// its place.
Shape flattened_from(Tensor x) {
  const Graph& graph = graph_of(x);
  const std::vector<int> producers = graph.producers();
  for (int id = x.id;;) {
    const int node = producers[idx(id)];
    if (node < 0) return {};
    const Node& n = graph.nodes[idx(node)];
    id = n.in[0];
    const Shape& from = graph.value(id).type.shape;
    if (std::holds_alternative<Reshape>(n.op))
      return from.rank() == 4 ? Shape{from[1], from[2], from[3]} : Shape{};
    const bool keeps_places = std::holds_alternative<Relu>(n.op) ||
                              std::holds_alternative<Gelu>(n.op) ||
                              std::holds_alternative<Dropout>(n.op);
    if (!keeps_places) return {};
  }
}

}  // namespace

Tensor parameter(Graph& graph, std::string name, Shape shape, Initial initial) {
  std::vector<int> axes(idx(shape.rank()));
  std::iota(axes.begin(), axes.end(), 0);
  return parameter(graph, std::move(name), shape, shape, std::move(axes), initial);
}

Tensor normalize(Tensor images, std::span<const float> mean, std::span<const float> std,
                 Where where) {
  const auto channels = idx(images.channels());
  if (mean.size() != channels || std.size() != channels)
    fail<ShapeError>("images have {} channels, but mean has {} and std {} elements", channels,
                     mean.size(), std.size());
  Normalize op;
  for (std::size_t c = 0; c < std::min(channels, Normalize::max_channels); ++c) {
    if (!(std[c] > 0 && std::isfinite(std[c])))
      fail<ShapeError>("std of channel {} is {}; it must be finite and above 0", c, std[c]);
    if (!std::isfinite(mean[c]))
      fail<ShapeError>("mean of channel {} is {}; it must be a finite number", c, mean[c]);
    op.scale[c] = static_cast<float>(1 / (255.0 * std[c]));
    op.shift[c] = static_cast<float>(-static_cast<double>(mean[c]) / std[c]);
    if (!std::isfinite(op.scale[c]) || !std::isfinite(op.shift[c]))
      fail<ShapeError>("mean {} and std {} of channel {}: pixels would pass the range of f32",
                       mean[c], std[c], c);
  }
  if (images.type().dtype != DType::u8)
    fail<ShapeError>(
        "normalize takes u8 images, not {}; convert() takes images that are already normalised",
        images.type().text());
  return record_one(op, {images}, "input", where);
}

Tensor convert(Tensor images, Where where) {
  if (images.type().dtype != DType::f32)
    fail<ShapeError>("convert takes f32 images, not {}; normalize() takes bytes",
                     images.type().text());
  Normalize op;
  op.scale = Normalize::ones;
  return record_one(op, {images}, "input", where);
}

Tensor augment(Tensor images, Tensor rows, const PixelPlan& plan, ImageExtent out, Where where) {
  return record_one(Augment{.plan = plan, .out = out}, {images, rows}, "input", where);
}

Tensor conv(std::string name, Tensor x, Conv op, ConvInit init, Where where) {
  if (x.type().shape.rank() != 4)
    fail<ShapeError>("{}: conv takes images [N,H,W,C], not {}", name, x.type().text());
  if (op.out < 1 || op.kernel < 1)
    fail<ShapeError>("{}: conv to {} output channels with a {}x{} kernel; each must be at least 1",
                     name, op.out, op.kernel, op.kernel);
  if (op.groups < 1 || x.channels() % op.groups != 0)
    fail<ShapeError>("{}: {} input channels cannot be split into {} groups", name, x.channels(),
                     op.groups);
  const Shape shape = weight_shape(op, x.channels());
  const Initial fan_in{Initial::Kind::uniform,
                       1 / std::sqrt(static_cast<double>(shape.count() / op.out))};
  const double fan_out = static_cast<double>(op.kernel * op.kernel * op.out);
  const Initial weight =
      init == ConvInit::fan_in ? fan_in : Initial{Initial::Kind::normal, std::sqrt(2 / fan_out)};
  Graph& graph = graph_of(x);
  std::vector<Tensor> in{x, parameter(graph, name + ".weight", shape, shape, {0, 3, 1, 2}, weight)};
  if (op.bias) in.push_back(parameter(graph, name + ".bias", {op.out}, {op.out}, {0}, fan_in));
  return record_one(op, in, std::move(name), where);
}

Tensor linear(std::string name, Tensor x, Linear op, Where where) {
  if (x.type().shape.rank() != 2)
    fail<ShapeError>("{}: linear takes [N,features], not {}; flatten images first", name,
                     x.type().text());
  if (op.out < 1) fail<ShapeError>("{}: linear to {} outputs; must be at least 1", name, op.out);
  const Shape shape{op.out, x.channels()};
  const Shape image = flattened_from(x);
  const Shape view = image.rank() == 3 ? Shape{op.out, image[0], image[1], image[2]} : shape;
  const std::vector<int> permutation =
      image.rank() == 3 ? std::vector{0, 3, 1, 2} : std::vector{0, 1};
  const Initial fan_in{Initial::Kind::uniform, 1 / std::sqrt(static_cast<double>(x.channels()))};
  Graph& graph = graph_of(x);
  std::vector<Tensor> in{x, parameter(graph, name + ".weight", shape, view, permutation, fan_in)};
  if (op.bias) in.push_back(parameter(graph, name + ".bias", {op.out}, {op.out}, {0}, fan_in));
  return record_one(op, in, std::move(name), where);
}

Tensor linear(std::string name, Tensor x, Linear op, const LinearForm& form, Where where) {
  Tensor y = linear(std::move(name), x, op, where);
  Graph& graph = *y.graph;
  const std::vector<int> in = graph.nodes.back().in;
  Parameter& weight = graph.parameters[idx(graph.value(in[1]).owner)];
  if (form.transposed && weight.view.rank() != 2)
    fail<ShapeError>("{}: the weight of flattened images cannot be transposed", weight.name);
  if (form.transposed) weight.permutation = {1, 0};
  if (form.deviation == 0) return y;
  weight.initial = {Initial::Kind::normal, form.deviation};
  require_initial(weight.name, weight.initial);
  if (op.bias)
    graph.parameters[idx(graph.value(in[2]).owner)].initial = {Initial::Kind::constant, 0};
  return y;
}

Tensor layer_norm(std::string name, Tensor x, LayerNorm op, Where where) {
  require_numbers("layer_norm", x);
  Graph& graph = graph_of(x);
  if (const Shape image = flattened_from(x); image.rank() == 3 && image[0] * image[1] > 1)
    fail<ShapeError>(
        "{}: layer_norm of flattened images of {}, whose weights would not be in PyTorch's order; "
        "put a linear layer between, or a batch_norm before the flatten",
        name, image.text());
  const Shape shape{x.channels()};
  const auto channels = [&](const char* suffix, double value) {
    return parameter(graph, name + suffix, shape, shape, {0}, {Initial::Kind::constant, value});
  };
  std::vector<Tensor> in{x, channels(".weight", 1)};
  if (op.bias) in.push_back(channels(".bias", 0));
  return record_one(op, in, std::move(name), where);
}

Tensor embed(const std::string& tokens_name, const std::string& positions_name, Tensor tokens,
             Tensor order, const Embedding& embedding, Where where) {
  Graph& graph = graph_of(tokens);
  const auto table = [&](const std::string& name, std::int64_t rows) {
    return parameter(graph, name + ".weight", {rows, embedding.width},
                     {Initial::Kind::normal, embedding.deviation});
  };
  const Tensor of_tokens = table(tokens_name, embedding.vocabulary);
  const Tensor of_positions = table(positions_name, embedding.context);
  return record_one(Embed{embedding.sequence}, {tokens, order, of_tokens, of_positions},
                    tokens_name, where);
}

Tensor tied_head(std::string name, Tensor x, Tensor embedded, Where where) {
  Graph& graph = graph_of(x);
  const int made_by = &graph_of(embedded) == &graph ? graph.producers()[idx(embedded.id)] : -1;
  if (made_by < 0 || !std::holds_alternative<Embed>(graph.nodes[idx(made_by)].op))
    fail<ShapeError>("{}: tied_head takes the output of embed(), not {}", name,
                     embedded.graph->value(embedded.id).name);
  const Tensor table{&graph, graph.nodes[idx(made_by)].in[2]};
  const Linear op{.out = table.type().shape[0], .bias = false};
  return record_one(op, {x, table}, std::move(name), where);
}

Tensor attention(Tensor qkv, Attention op, Where where) {
  std::vector<Tensor> in{qkv};
  require_numbers("attention", qkv);
  op.layer = next_dropout(*qkv.graph);
  if (op.dropout > 0) in.push_back(qkv.graph->step_state());
  return record_one(op, in, layer_of(qkv), where);
}

Tensor twin(Tensor x, Tensor like, Where where) {
  Graph& graph = graph_of(x);
  const int made_by = &graph_of(like) == &graph ? graph.producers()[idx(like.id)] : -1;
  if (made_by < 0 || !std::holds_alternative<Linear>(graph.nodes[idx(made_by)].op))
    fail<ShapeError>("twin takes the output of linear() of the same graph, not {}",
                     like.graph->value(like.id).name);
  const Node layer = graph.nodes[idx(made_by)];
  std::vector<Tensor> in{x};
  for (std::size_t i = 1; i < layer.in.size(); ++i) in.push_back({&graph, layer.in[i]});
  return record_one(layer.op, in, layer.scope, where);
}

Tensor relu(Tensor x, Where where) {
  require_numbers("relu", x);
  return record_one(Relu{}, {x}, layer_of(x), where);
}

Tensor gelu(Tensor x, Gelu op, Where where) {
  require_numbers("gelu", x);
  return record_one(op, {x}, layer_of(x), where);
}

Tensor max_pool(Tensor x, MaxPool op, Where where) {
  require_numbers("max_pool", x);
  return record_one(op, {x}, layer_of(x), where);
}

Tensor batch_norm(std::string name, Tensor x, BatchNorm op, Where where) {
  require_numbers("batch_norm", x);
  Graph& graph = graph_of(x);
  const Shape shape{x.channels()};
  const auto channels = [&](const char* suffix, double value) {
    return parameter(graph, name + suffix, shape, shape, {0}, {Initial::Kind::constant, value});
  };
  const std::vector<Tensor> in{x, channels(".weight", 1), channels(".bias", 0),
                               graph.buffer(name + ".running_mean", shape, {0}),
                               graph.buffer(name + ".running_var", shape, {1})};
  return record_one(op, in, std::move(name), where);
}

Tensor avg_pool(Tensor x, AvgPool op, Where where) {
  require_numbers("avg_pool", x);
  return record_one(op, {x}, layer_of(x), where);
}

Tensor global_avg_pool(Tensor x, Where where) {
  return avg_pool(x, {}, where);
}

Tensor dropout(Tensor x, double rate, Where where) {
  Graph& graph = graph_of(x);
  const Dropout op{.rate = rate, .layer = next_dropout(graph)};
  return record_one(op, {x, graph.step_state()}, layer_of(x), where);
}

Tensor custom(std::string name, std::shared_ptr<const CustomOp> op, const std::vector<Tensor>& in,
              Where where) {
  if (!op) fail<UsageError>("custom(\"{}\"): the op is null", name);
  if (in.empty()) fail<UsageError>("custom(\"{}\"): {} has no inputs", name, op->name());
  return record_one(Custom{std::move(op)}, in, std::move(name), where);
}

void set_loss(Tensor loss, Tensor correct) {
  if (loss.type() != Type{DType::f32, {}})
    fail<ShapeError>("a loss is one number, f32 [], not {}", loss.type().text());
  if (correct.graph && correct.type() != Type{DType::i32, {}})
    fail<ShapeError>("the count of correct samples is one number, i32 [], not {}",
                     correct.type().text());
  if (correct.graph && correct.graph != loss.graph)
    fail<UsageError>("the count of correct samples belongs to another graph than the loss");
  loss.graph->loss = loss.id;
  loss.graph->correct = correct.graph ? correct.id : -1;
}

Tensor flatten(Tensor x, Where where) {
  const Shape& shape = x.type().shape;
  return record_one(Reshape{{shape[0], shape.count() / std::max<std::int64_t>(1, shape[0])}}, {x},
                    layer_of(x), where);
}

Tensor add(Tensor a, Tensor b, Where where) {
  require_numbers("add", a);
  return record_one(Add{}, {a, b}, layer_of(a), where);
}

namespace {

void require_class_weights(const std::vector<float>& weights, std::int64_t classes) {
  if (weights.size() != idx(classes))
    fail<UsageError>("class weights: there are {}, but {} classes; give one per class",
                     weights.size(), classes);
  for (const float weight : weights)
    if (!is_class_weight(weight))
      fail<UsageError>("class weight {}: must be 0 or from 1e-30 to 1e30", weight);
}

}  // namespace

void require_logits(Tensor logits, std::int64_t rows, std::int64_t classes) {
  const Value& value = graph_of(logits).value(logits.id);
  const Shape expected{rows, classes};
  if (value.type.shape != expected)
    fail<ShapeError>(
        "{}: makes logits of {}; expected {}, one number per class for each image: a model may "
        "need images of its own size, or another layer before its last",
        value.name, value.type.shape.text(), expected.text());
}

bool is_class_weight(double weight) {
  return weight == 0 || (weight >= 1e-30 && weight <= 1e30F);
}

void cross_entropy(Tensor logits, Tensor labels, Tensor rows, const LossOptions& options,
                   Where where) {
  Graph& graph = graph_of(logits);
  if (graph.loss >= 0)
    fail<UsageError>(
        "{} the model has a loss already, {}, and a step minimises one; add them in an op of your "
        "own and give it to set_loss()",
        model_line(where), graph.value(graph.loss).name);
  const bool mixed = rows.graph != nullptr;
  const auto loss_op = [&](AnyOp op, const std::vector<Tensor>& in) {
    return graph.record(Phase::loss, std::move(op), in, "loss", where)[0];
  };
  const Nll nll{.mixed = mixed,
                .smoothing = options.label_smoothing,
                .weighted = !options.class_weights.empty() && !options.unweighted,
                .raw = options.raw};
  const Tensor scores = options.raw ? logits : loss_op(LogSoftmax{}, {logits});
  graph.logits = logits.id;
  std::vector<Tensor> in{scores, labels};
  if (mixed) in.push_back(rows);
  if (!options.class_weights.empty()) {
    require_class_weights(options.class_weights, logits.type().shape[1]);
    const Tensor weights =
        graph.buffer("loss.weight", {static_cast<std::int64_t>(options.class_weights.size())},
                     options.class_weights, false);
    if (nll.weighted) in.push_back(weights);
  }
  graph.loss = loss_op(nll, in).id;
  graph.correct = loss_op(Top1{}, {logits, labels}).id;
}

}  // namespace warpstep
