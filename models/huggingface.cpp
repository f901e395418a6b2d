#include "models/huggingface.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "engine/core/error.h"
#include "engine/core/file.h"
#include "engine/core/json_text.h"

namespace warpstep::models {
namespace {

using Json = nlohmann::ordered_json;

constexpr double epsilon = 1e-5;  // of our layer norms

// A whole number of the config, the option that it sets, and transformers' default.
struct Number {
  const char *key, *option;
  std::int64_t initial;
};
constexpr std::array<Number, 5> numbers{{{"n_layer", "layers", 12},
                                         {"n_head", "heads", 12},
                                         {"n_embd", "width", 768},
                                         {"n_positions", "context", 1024},
                                         {"vocab_size", "vocabulary", 50257}}};

struct Config {
  const std::string file;
  const Json json;

  bool has(const char* key) const { return json.contains(key) && !json[key].is_null(); }
  Json value(const char* key, const Json& initial) const { return has(key) ? json[key] : initial; }
  // Beyond 2^40 all are equally wrong.
  std::int64_t whole(const char* key, std::int64_t initial) const {
    const Json number = value(key, initial);
    if (!number.is_number_integer()) refuse(key, "a whole number");
    return number > (std::int64_t{1} << 40) ? std::int64_t{1} << 40
                                            : std::max<std::int64_t>(-1, number);
  }
  void require(const char* key, const Json& only) const {
    if (value(key, only) != only) refuse(key, printed(only));
  }
  [[noreturn]] void refuse(const char* key, const std::string& wanted) const {
    fail<DataError>("{}: '{}' is {}, but gpt2 requires {}", file, key, brief(json[key]), wanted);
  }
};

std::string gelu_of(const Config& config) {
  const Json activation = config.value("activation_function", "gelu_new");
  if (activation == "gelu") return "erf";
  if (activation == "gelu_new" || activation == "gelu_pytorch_tanh") return "tanh";
  config.refuse("activation_function", "gelu_new, gelu_pytorch_tanh or gelu");
}

}  // namespace

std::vector<std::string> options_of_huggingface(const std::filesystem::path& file) {
  const Config config{file.string(), parse_json<Json>(read_file(file, 1 << 20))};
  if (!config.json.is_object()) fail<DataError>("{}: is not a JSON object", config.file);
  if (!config.has("model_type")) return {};
  config.require("model_type", "gpt2");
  config.require("scale_attn_weights", true);
  config.require("scale_attn_by_inverse_layer_idx", false);
  config.require("add_cross_attention", false);
  config.require("tie_word_embeddings", true);
  config.require("layer_norm_epsilon", epsilon);
  config.require("n_inner", 4 * config.whole("n_embd", 768));
  std::vector<std::string> options{"bias=yes", "gelu=" + gelu_of(config)};
  for (const auto& [key, option, initial] : numbers)
    options.push_back(fmt::format("{}={}", option, config.whole(key, initial)));
  return options;
}

std::string huggingface_config(const Settings& settings, std::int64_t vocabulary,
                               std::optional<std::int64_t> end_of_text) {
  Json json{{"model_type", "gpt2"}, {"architectures", {"GPT2LMHeadModel"}}};
  for (const Number& number : numbers) json[number.key] = settings.whole(number.option);
  json["vocab_size"] = vocabulary;
  json["activation_function"] = settings.word("gelu") == "tanh" ? "gelu_new" : "gelu";
  json["layer_norm_epsilon"] = epsilon;
  for (const char* key : {"embd_pdrop", "attn_pdrop", "resid_pdrop"})
    json[key] = settings.share("dropout");
  json["tie_word_embeddings"] = true;
  for (const char* key : {"bos_token_id", "eos_token_id"})
    json[key] = end_of_text ? Json(*end_of_text) : Json();
  return printed(json, 2) + "\n";
}

}  // namespace warpstep::models
