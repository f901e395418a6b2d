// Models that nobody designed: layers drawn by a seed, in sequences and branches, with odd extents,
// values with several readers and parameters that two layers share.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/core/random.h"
#include "engine/graph/layers.h"
#include "tests/stepping.h"

namespace warpstep::testing_support {

// What a norm behind a layer makes of its gradients: those of a bias, and of a kernel with one
// weight a channel, are 0 but for rounding, and no backend agrees with another on them. `none`
// leaves out what has such gradients.
enum class Cancelling : std::uint8_t { any, none };

// The forward half of a model of images or of text, for the inputs that Stepping makes. Its layers
// are in the scopes "a", "b" and "c", in any order.
class RandomModel {
 public:
  RandomModel(std::uint32_t seed, Cancelling cancelling) : seed_(seed), cancelling_(cancelling) {}

  Graph build() {
    Graph graph;
    const Tensor labels = drawn(3) == 0 ? add_text(graph) : add_images(graph);
    for (std::int64_t layers = 2 + drawn(8); layers > 0; --layers) {
      const std::size_t count = values_.size();
      const std::size_t source = drawn(2) > 0 ? count - 1 : idx(drawn(count));
      const Tensor x = values_[source].tensor;
      scope_ = std::string(1, "abc"[drawn(3)]);
      const Tensor y = is_image(x) ? layer_of_images(x) : layer_of_rows(x);
      if (y.id == x.id) continue;
      for (Made& made : values_) made.is_read = made.is_read || made.tensor.id == x.id;
      values_.push_back({y});
    }
    add_loss(labels);
    return graph;
  }

 private:
  struct Made {
    Tensor tensor;
    bool is_read = false;
  };

  std::int64_t drawn(std::size_t below_this) {
    const auto limit = static_cast<std::uint32_t>(below_this);
    return below(draw(seed_, Purpose::synthetic, 0, draws_++)[0], limit);
  }
  std::int64_t one_of(std::initializer_list<std::int64_t> list) {
    return list.begin()[drawn(list.size())];
  }
  std::string name() { return scope_ + "." + std::to_string(names_++); }
  static bool is_image(Tensor x) { return x.type().shape.rank() == 4; }

  Tensor add_text(Graph& graph) {
    sequence_ = one_of({1, 3, 8, 17});
    const Type type{DType::i32, {(1 + drawn(3)) * sequence_}};
    const Tensor tokens = graph.input("tokens", type), order = graph.input("order", type);
    const Embedding table{.vocabulary = classes,
                          .context = sequence_ + drawn(2),
                          .sequence = sequence_,
                          .width = one_of({3, 8, 24, 33})};
    embedded_ = embed("wte", "wpe", tokens, order, table);
    values_.push_back({embedded_});
    return graph.input("labels", type);
  }

  Tensor add_images(Graph& graph) {
    const std::int64_t rows = 1 + drawn(6), channels = cancels() ? 1 + drawn(3) : 2 + drawn(2);
    const auto [height, width] = std::array<std::pair<int, int>, 5>{
        {{1, 1}, {2, 3}, {5, 7}, {8, 8}, {17, 12}}}[idx(drawn(5))];
    const Tensor images = graph.input("images", {DType::u8, {rows, height, width, channels}});
    // Not about 0: a mean that nearly is 0 has no digits that backends agree on.
    const std::vector<float> mean(idx(channels), 0.1F), deviation(idx(channels), 0.5F);
    values_.push_back({normalize(images, mean, deviation)});
    return graph.input("labels", {DType::i32, {rows}});
  }

  bool cancels() const { return cancelling_ == Cancelling::any; }
  std::int64_t width() {
    const std::int64_t width = one_of({1, 3, 5, 7, 8, 9, 16, 17, 33});
    return width == 1 && !cancels() ? 2 : width;
  }
  // A value of the shape of x: another one, or x itself.
  Tensor alike(Tensor x) {
    for (int tries = 0; tries < 5; ++tries) {
      Made& made = values_[idx(drawn(values_.size()))];
      if (made.tensor.type() != x.type()) continue;
      made.is_read = true;
      return made.tensor;
    }
    return x;
  }
  // What a layer reads of the one before it may have other readers, too.
  Tensor shared(Tensor x) {
    if (cancels()) values_.push_back({x, true});
    return x;
  }

  Tensor convolved(Tensor x, std::int64_t out, std::int64_t kernel, std::int64_t stride) {
    Conv op{.out = out, .kernel = kernel, .stride = stride, .bias = cancels() && drawn(3) == 0};
    if (const std::int64_t kind = drawn(6); kind == 0 && x.channels() == out && cancels())
      op.groups = out;
    else if (kind == 1)
      op.dilation = 2;
    op.padding = op.dilation * (kernel / 2);
    return shared(conv(name(), x, op));
  }
  // Of one row a norm has no variance; of few, rounding counts as much as what it should give.
  Tensor normed(Tensor x) {
    return x.type().shape.count() < 8 * x.channels() ? x : shared(batch_norm(name(), x));
  }
  Tensor residual(Tensor x) {
    const std::int64_t out = drawn(2) == 0 ? x.channels() : width(), stride = 1 + drawn(2);
    const Tensor h = shared(relu(normed(convolved(x, out, one_of({1, 3}), stride))));
    const Tensor y = normed(convolved(h, out, 3, 1));
    const bool projects = y.type() != x.type();
    const Tensor shortcut = projects ? normed(convolved(x, out, 1, stride)) : x;
    const Tensor sum = drawn(2) == 0 ? add(y, shortcut) : add(shortcut, y);
    return drawn(4) == 0 && cancels() ? sum : relu(shared(sum));
  }
  Tensor pooled(Tensor x) {
    const Shape& shape = x.type().shape;
    const std::int64_t window = 2 + drawn(2), padding = drawn(2);
    if (std::min(shape[1], shape[2]) + 2 * padding < window) return global_avg_pool(x);
    const std::int64_t stride = 1 + drawn(3);
    if (drawn(3) == 0) return avg_pool(x, {window, stride, padding});
    return max_pool(x, {.window = window, .stride = stride, .padding = padding});
  }

  Tensor layer_of_images(Tensor x) {
    switch (drawn(10)) {
      case 0: {
        const Tensor y =
            conv(name(), x, {.out = width(), .kernel = one_of({1, 3, 5}), .padding = 2});
        return cancels() ? y : relu(y);
      }
      case 1: {
        const std::int64_t kernel = one_of({1, 3, 5}), stride = 1 + drawn(2);
        return relu(normed(convolved(x, width(), kernel, stride)));
      }
      case 2:
      case 3: return residual(x);
      case 4: return cancels() ? normed(x) : relu(pooled(normed(convolved(x, width(), 3, 1))));
      case 5: return drawn(2) == 0 ? relu(x) : gelu(x);
      case 6: return pooled(x);
      case 7: return pooled(relu(conv(name(), x, {.out = width(), .padding = 1})));
      case 8: return drawn(3) == 0 ? dropout(x, 0.25) : add(x, alike(x));
      default: return x.type().shape.count() < 4000 ? flatten(x) : x;
    }
  }

  Tensor rows_normed(Tensor x) {
    const bool fits = x.channels() > 2 && sequence_ > 0;  // not of flattened images
    return fits ? layer_norm(name(), x, {.bias = drawn(2) == 0}) : x;
  }
  Tensor attended(Tensor x) {
    const std::int64_t heads = 1 + drawn(3), size = one_of({1, 4, 5, 8});
    const Tensor qkv = linear(name(), x, {.out = 3 * heads * size});
    const Attention op{.heads = heads,
                       .sequence = sequence_ > 0 ? sequence_ : x.type().shape[0],
                       .causal = drawn(2) == 0,
                       .dropout = drawn(3) == 0 ? 0.25 : 0};
    return attention(qkv, op);
  }
  Tensor in_rows(Tensor x, std::int64_t out) {
    return last_linear_ = shared(linear(name(), x, {.out = out, .bias = drawn(3) > 0}));
  }

  // What is drawn is drawn in statements of its own: the order of arguments is the compiler's.
  Tensor layer_of_rows(Tensor x) {
    const std::int64_t out = width();
    const bool tanh = drawn(2) == 0;
    switch (drawn(9)) {
      case 0: return in_rows(x, out);
      case 1: return relu(in_rows(x, out));
      case 2: return gelu(in_rows(x, out), {.tanh = tanh});
      case 3: return add(x, in_rows(relu(in_rows(rows_normed(x), out)), x.channels()));
      case 4: return add(in_rows(attended(rows_normed(x)), x.channels()), x);
      case 5: return drawn(2) == 0 ? dropout(x, 0.25) : gelu(x, {.tanh = tanh});
      case 6: return rows_normed(x);
      case 7: return add(x, alike(x));
      default: {
        if (!last_linear_.graph) return relu(x);
        const Tensor like = last_linear_;
        return twin(in_rows(x, weight_of(like).type().shape[1]), like);
      }
    }
  }
  static Tensor weight_of(Tensor made) {
    const int node = made.graph->producers()[idx(made.id)];
    return {made.graph, made.graph->nodes[idx(node)].in[1]};
  }

  // Every value that nothing reads is a part of the logits.
  void add_loss(Tensor labels) {
    scope_ = "head";
    Tensor logits;
    for (const Made& made : values_) {
      if (made.is_read) continue;
      const Tensor x = is_image(made.tensor) ? flatten(global_avg_pool(made.tensor)) : made.tensor;
      const bool tied = embedded_.graph && x.channels() == embedded_.channels();
      const Tensor part =
          tied ? tied_head(name(), x, embedded_) : linear(name(), x, {.out = classes});
      logits = logits.graph ? add(logits, part) : part;
    }
    LossOptions options{.label_smoothing = drawn(3) == 0 ? 0.1 : 0};
    if (drawn(3) == 0) options.class_weights = {1, 2, 1, 0.5F, 1, 1, 3, 1, 1, 1};
    cross_entropy(logits, labels, {}, options);
  }

  static constexpr std::int64_t classes = 10;  // as many labels and tokens as Stepping draws
  std::uint32_t seed_;
  Cancelling cancelling_;
  std::uint64_t draws_ = 0;
  int names_ = 0;
  std::string scope_;
  std::int64_t sequence_ = 0;  // of text
  std::vector<Made> values_;
  Tensor embedded_, last_linear_;
};

// Those of the scopes that this model has.
inline std::vector<std::string> scopes_of(const Graph& graph) {
  std::vector<std::string> found;
  for (const std::string scope : {"a", "b", "c"})
    if (std::ranges::any_of(graph.nodes,
                            [&](const Node& node) { return node.scope.starts_with(scope + "."); }))
      found.push_back(scope);
  return found;
}

// A step with its parameters. Gains and shifts of norms are drawn, too: at 0 a relu after a norm
// has no slope.
inline std::unique_ptr<Stepping> random_step(Graph step, std::shared_ptr<Backend> backend) {
  auto stepping = std::make_unique<Stepping>(std::move(step), std::move(backend));
  Store& store = stepping->program.store();
  store.initialize(1);
  for (std::size_t p = 0; p < store.parameters().size(); ++p) {
    if (store.parameters()[p].initial.kind != Initial::Kind::constant) continue;
    std::vector<float> values = store.read(p);
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] += uniform(draw(2, Purpose::synthetic, static_cast<std::uint32_t>(p), i)[0]) - 0.4F;
    store.write(p, values);
  }
  return stepping;
}

}  // namespace warpstep::testing_support
