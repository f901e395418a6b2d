// A model for `warpstep train --plugin`: GPT-2 nano with the loss that a loop over tokens makes,
// one call per token, for docs/profiling-transformers.md. Its numbers are right.
#include <algorithm>
#include <array>
#include <cmath>

#include "engine/core/error.h"
#include "engine/graph/adjoint.h"
#include "kernels/kernel.h"
#include "models/plugin.h"

using namespace warpstep;

namespace {

// One row of logits [N,V] with its label.
struct Row {
  const float* logits;
  std::int64_t classes;
  std::int32_t label;
  double share;  // of the mean over rows whose label is no padding

  Row(const Buffers& b, const Shape& shape, std::int64_t row)
      : logits(as<float>(b.in[0]) + row * shape[1]),
        classes(shape[1]),
        label(as<std::int32_t>(b.in[1])[row]) {
    const std::int32_t* labels = as<std::int32_t>(b.in[1]);
    const auto rows = std::count_if(labels, labels + shape[0], [](int l) { return l >= 0; });
    share = label < 0 ? 0 : 1 / static_cast<double>(rows);
  }
  double log_of_sum() const {
    const double most = static_cast<double>(*std::max_element(logits, logits + classes));
    double sum = 0;
    for (std::int64_t c = 0; c < classes; ++c)
      sum += std::exp(static_cast<double>(logits[c]) - most);
    return most + std::log(sum);
  }
};

// logits [N,V], labels i32 [N], d_loss f32 [] -> d_logits [N,V]: zeros but for one row.
class TokenLossGrad final : public CustomOp {
 public:
  explicit TokenLossGrad(std::int64_t row) : row_(row) {}
  std::string_view name() const override { return "token_loss.dgrad"; }
  Types infer(const Types& in) const override { return {in[0]}; }
  Cost cost(const Types& in, const Types&) const override {
    const auto row = static_cast<double>(in[0].shape[1]);
    return {12 * row, static_cast<double>(in[0].bytes()) + 4 * row, row};
  }
  std::unique_ptr<Kernel> bind(std::string_view backend, const Graph& graph,
                               const Node& node) const override {
    if (backend != "cpu") return nullptr;
    return host_kernel("a loop", [row = row_,
                                  shape = graph.value(node.in[0]).type.shape](const Buffers& b) {
      const Row at(b, shape, row);
      float* d_logits = as<float>(b.out[0]);
      std::fill_n(d_logits, shape.count(), 0.0F);
      if (at.label < 0) return;
      const double factor = at.share * static_cast<double>(*as<float>(b.in[2]));
      const double log_of_sum = at.log_of_sum();
      for (std::int64_t c = 0; c < at.classes; ++c)
        d_logits[row * at.classes + c] =
            static_cast<float>(factor * (std::exp(static_cast<double>(at.logits[c]) - log_of_sum) -
                                         (c == at.label ? 1 : 0)));
    });
  }

 private:
  std::int64_t row_;
};

// logits [N,V], labels i32 [N] -> f32 []: the part of one token in the mean cross-entropy.
class TokenLoss final : public CustomOp {
 public:
  explicit TokenLoss(std::int64_t row) : row_(row) {}
  std::string_view name() const override { return "token_loss"; }
  Types infer(const Types&) const override { return {{DType::f32, {}}}; }
  Cost cost(const Types& in, const Types&) const override {
    const auto row = static_cast<double>(in[0].shape[1]);
    return {12 * row, 4 * row, row};
  }
  void grad(Adjoint& adjoint) const override {
    const Custom d{std::make_shared<TokenLossGrad>(row_)};
    adjoint.give(
        0, adjoint.record(Phase::data_grad, d, {adjoint.in(0), adjoint.in(1), adjoint.d_out()})[0]);
  }
  std::unique_ptr<Kernel> bind(std::string_view backend, const Graph& graph,
                               const Node& node) const override {
    if (backend != "cpu") return nullptr;
    return host_kernel(
        "a loop", [row = row_, shape = graph.value(node.in[0]).type.shape](const Buffers& b) {
          const Row at(b, shape, row);
          const double loss =
              at.label < 0 ? 0 : at.log_of_sum() - static_cast<double>(at.logits[at.label]);
          *as<float>(b.out[0]) = static_cast<float>(at.share * loss);
        });
  }

 private:
  std::int64_t row_;
};

Tensor naive_gpt2(const models::Tokens& tokens, const models::Settings& settings) {
  const Tensor logits = models::gpt2(tokens, settings);
  const Tensor labels = logits.graph->find_input("labels");
  Tensor loss;
  for (std::int64_t row = 0; row < logits.type().shape[0]; ++row) {
    const Tensor of_token = custom("loss", std::make_shared<TokenLoss>(row), {logits, labels});
    loss = row == 0 ? of_token : add(loss, of_token);
  }
  set_loss(loss);
  return logits;
}

const std::array<models::Model, 1> all{
    {{.name = "gpt2-nano-naive",
      .description = "GPT-2 nano whose loss is a loop over tokens, to be profiled",
      .image = {},
      .learning_rate = 1e-3,
      .logits = nullptr,
      .text_logits = naive_gpt2,
      .settings = "layers=4,heads=4,width=128,context=64,gelu=erf,bias=no",
      .table = models::gpt2_settings}}};

}  // namespace

WARPSTEP_PLUGIN(all)
