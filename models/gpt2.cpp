#include <fmt/format.h>

#include <array>
#include <cmath>

#include "engine/core/error.h"
#include "models/zoo.h"

namespace warpstep::models {
namespace {

constexpr std::int64_t most = 1 << 20;
constexpr std::array<Setting, 8> gpt2_settings_table{{
    {"layers", "12", "transformer blocks", 1, 1000},
    {"heads", "12", "attention heads", 1, most},
    {"width", "768", "features of a token; a multiple of heads", 1, most},
    {"context", "1024", "longest sequence, in tokens", 1, most},
    {"vocabulary", "0", "number of tokens; 0: the data's", 0, std::int64_t{1} << 31},
    {"gelu", "tanh", "activation: tanh (GPT-2's approximation) or erf (exact)", 1, 0, "tanh erf"},
    {"bias", "yes", "biases in linear layers and layer norms", 1, 0, "yes no"},
    {"dropout", "0", "share of activations dropped in training"},
}};

}  // namespace

std::span<const Setting> gpt2_settings() {
  return gpt2_settings_table;
}

// Radford et al., "Language models are unsupervised multitask learners", 2019; parameters are named
// and shaped as in the `gpt2` files of the Hugging Face hub, biases that `bias=no` leaves out
// apart. Weights begin as GPT-2's: deviation 0.02, over sqrt(2 layers) where a branch joins the
// residual stream.
Tensor gpt2(const Tokens& in, const Settings& settings) {
  const std::int64_t layers = settings.whole("layers"), heads = settings.whole("heads"),
                     width = settings.whole("width"), context = settings.whole("context");
  const bool bias = settings.word("bias") == "yes";
  const double dropped = settings.share("dropout");
  if (width % heads != 0)
    fail<ShapeError>(
        "gpt2: a width of {} cannot be split into {} heads; give --model-option "
        "heads=N that divides the width",
        width, heads);
  if (in.sequence > context)
    fail<ShapeError>(
        "gpt2: sequences of {} tokens are longer than the context of {}; use a "
        "shorter --sequence, or --model-option context={}",
        in.sequence, context, in.sequence);
  constexpr double deviation = 0.02;
  const LinearForm branch{.deviation = deviation, .transposed = true};
  const LinearForm joins{.deviation = deviation / std::sqrt(2 * static_cast<double>(layers)),
                         .transposed = true};
  const auto drop = [&](Tensor x) { return dropped > 0 ? dropout(x, dropped) : x; };
  const auto norm = [&](const std::string& name, Tensor x, Where where = Where::current()) {
    return layer_norm(name, x, {.bias = bias}, where);
  };

  const Tensor embedded = embed("wte", "wpe", in.tokens, in.order,
                                {.vocabulary = in.vocabulary,
                                 .context = context,
                                 .sequence = in.sequence,
                                 .width = width,
                                 .deviation = deviation});
  Tensor x = drop(embedded);
  for (std::int64_t layer = 0; layer < layers; ++layer) {
    const std::string h = fmt::format("h.{}.", layer);
    Tensor a =
        linear(h + "attn.c_attn", norm(h + "ln_1", x), {.out = 3 * width, .bias = bias}, branch);
    a = attention(a, {.heads = heads, .sequence = in.sequence, .dropout = dropped});
    x = add(x, drop(linear(h + "attn.c_proj", a, {.out = width, .bias = bias}, joins)));
    Tensor m =
        linear(h + "mlp.c_fc", norm(h + "ln_2", x), {.out = 4 * width, .bias = bias}, branch);
    m = gelu(m, {.tanh = settings.word("gelu") == "tanh"});
    x = add(x, drop(linear(h + "mlp.c_proj", m, {.out = width, .bias = bias}, joins)));
  }
  return tied_head("lm_head", norm("ln_f", x), embedded);
}

}  // namespace warpstep::models
