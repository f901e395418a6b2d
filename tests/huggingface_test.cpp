// GPT-2's weights under the names of transformers and nanoGPT, and transformers' config.json.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <nlohmann/json.hpp>
#include <random>

#include "engine/core/error.h"
#include "engine/files/weights.h"
#include "engine/passes/compile.h"
#include "engine/run/program.h"
#include "models/build.h"
#include "models/huggingface.h"
#include "tests/data_testing.h"

namespace warpstep::models {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::ThrowsMessage;

Graph gpt2_graph(const std::vector<std::string>& options) {
  BuildOptions build{.batch = 1, .sequence = 4, .vocabulary = 11};
  std::vector<std::string> all{"layers=1", "heads=2", "width=8", "context=4"};
  all.insert(all.end(), options.begin(), options.end());
  build.settings = resolve_settings(find("gpt2"), all);
  StepOptions step;
  step.training = false;
  return compile_step(models::build(find("gpt2"), build), step);
}

struct NamedValues {
  std::vector<std::uint64_t> shape;
  std::vector<float> values;
};
using State = std::map<std::string, NamedValues>;

class HuggingFace : public testing::Test {
 protected:
  explicit HuggingFace(const std::vector<std::string>& options = {})
      : program_(gpt2_graph(options), open_backend("ref")) {
    program_.store().initialize(7);
    for (const StateTensor& tensor : state_of(program_.store())) {
      NamedValues& named = mine_[tensor.name];
      named.values = read(program_.store(), tensor);
      for (std::size_t i = 0; i < named.values.size(); ++i)
        named.values[i] += static_cast<float>(i % 5);  // biases are not all zero
      named.shape = {tensor.shape.extents().begin(), tensor.shape.extents().end()};
    }
  }

  // As a file of GPT2LMHeadModel's state_dict.
  static State with_head(const State& state, const std::string& prefix) {
    State result;
    for (const auto& [name, values] : state) result[prefix + "transformer." + name] = values;
    result[prefix + "lm_head.weight"] = state.at("wte.weight");
    return result;
  }
  LoadReport load(const State& state, bool allow_missing = false) {
    std::vector<TensorToStore> tensors;
    for (const auto& [name, named] : state)
      tensors.push_back(
          {name, StoredType::f32, named.shape, std::as_bytes(std::span(named.values))});
    write_safetensors(path_, tensors);
    program_.store().initialize(1);
    return load_weights(path_, program_.store(),
                        {.allow_missing = allow_missing, .rules = gpt2_weight_rules()});
  }
  State loaded() const {
    State state;
    for (const StateTensor& tensor : state_of(program_.store()))
      state[tensor.name] = {mine_.at(tensor.name).shape, read(program_.store(), tensor)};
    return state;
  }
  void expect_loaded() const {
    const State now = loaded();
    for (const auto& [name, values] : mine_) EXPECT_EQ(now.at(name).values, values.values) << name;
  }
  std::vector<std::string> options_of(const std::string& config) const {
    data::testing::put(config_, config);
    return options_of_huggingface(config_);
  }

  data::testing::TemporaryFolder folder_;
  std::string path_ = folder_ / "model.safetensors", config_ = folder_ / "config.json";
  Program program_;
  State mine_;
};

void transpose_matrices(State& state) {
  for (auto& [name, named] : state) {
    if (named.shape.size() != 2 || name.find(".h.") == std::string::npos) continue;
    const std::vector<float> before = named.values;
    const std::uint64_t rows = named.shape[0], columns = named.shape[1];
    for (std::uint64_t r = 0; r < rows; ++r)
      for (std::uint64_t c = 0; c < columns; ++c)
        named.values[c * rows + r] = before[r * columns + c];
    named.shape = {columns, rows};
  }
}

TEST_F(HuggingFace, NamesLoadWithPrefixMasksAndTheTiedHead) {
  State state = with_head(mine_, "");
  state["transformer.h.0.attn.bias"] = {{1, 1, 4, 4}, std::vector<float>(16, 1)};
  state["transformer.h.0.attn.masked_bias"] = {{}, {-1e4F}};
  const LoadReport report = load(state);
  EXPECT_TRUE(report.is_whole());
  EXPECT_EQ(report.loaded, mine_.size());
  EXPECT_EQ(report.prefix, "transformer.");
  EXPECT_EQ(report.ignored, 2U);
  EXPECT_THAT(report.lines().back(),
              AllOf(HasSubstr("stripped transformer."),
                    HasSubstr("ignored 2 tensors: attn.bias, attn.masked_bias"),
                    HasSubstr("lm_head.weight equals wte.weight")));
  expect_loaded();
  load(mine_);  // as published: without a prefix
  expect_loaded();
}

TEST_F(HuggingFace, AHeadOfItsOwnIsRefused) {
  State state = with_head(mine_, "");
  state["lm_head.weight"].values[3] += 1;
  EXPECT_THAT([&] { load(state); },
              ThrowsMessage<DataError>(HasSubstr("lm_head.weight differs from wte.weight, but they "
                                                 "are one tensor in the model")));
  EXPECT_THAT(load(state, true).lines(), Contains(HasSubstr("not loaded: lm_head.weight differs")));
  state["lm_head.weight"].shape = {8, 11};
  EXPECT_THROW(load(state), DataError);
}

TEST_F(HuggingFace, NanoGptsMatricesAreTransposed) {
  State state = with_head(mine_, "_orig_mod.");
  State other;
  for (const auto& [name, values] : state) other[name] = values;
  transpose_matrices(other);
  const LoadReport report = load(other);
  EXPECT_EQ(report.prefix, "_orig_mod.transformer.");
  EXPECT_EQ(report.transposed, 4U);
  expect_loaded();  // the square one too, whose shape does not tell
  other["_orig_mod.transformer.h.0.mlp.c_fc.weight"] =
      state["_orig_mod.transformer.h.0.mlp.c_fc.weight"];
  EXPECT_THAT([&] { load(other); },
              ThrowsMessage<DataError>(HasSubstr("attn.c_attn.weight is F32 [24,8] in the file, "
                                                 "[8,24] in the model")));
}

TEST_F(HuggingFace, APaddedVocabularyNamesTheOption) {
  State state = with_head(mine_, "");
  for (const char* name : {"transformer.wte.weight", "lm_head.weight"}) {
    state[name].shape[0] = 16;
    state[name].values.resize(16 * 8);
  }
  EXPECT_THAT([&] { load(state); },
              ThrowsMessage<DataError>(
                  AllOf(HasSubstr("wte.weight is F32 [16,8] in the file, [11,8] in the model"),
                        HasSubstr("the file has --model-option vocabulary=16"))));
}

class HuggingFaceLayers : public HuggingFace {
 protected:
  HuggingFaceLayers() : HuggingFace({"layers=2"}) {}
};

TEST_F(HuggingFaceLayers, ThatAreMissingAreNamed) {
  State state = with_head(mine_, "");
  std::erase_if(state,
                [](const auto& item) { return item.first.find(".h.1.") != item.first.npos; });
  EXPECT_THAT([&] { load(state); },
              ThrowsMessage<DataError>(AllOf(HasSubstr("12 missing in the file: h.1.ln_1.weight"),
                                             Not(HasSubstr("h.0.")))));
}

TEST_F(HuggingFace, ConfigSaysTheModelOptions) {
  EXPECT_THAT(options_of(R"({"model_type": "gpt2", "n_head": 4, "n_embd": 64, "n_inner": 256,
                             "activation_function": "gelu", "resid_pdrop": 0.1})"),
              ElementsAre("bias=yes", "gelu=erf", "layers=12", "heads=4", "width=64",
                          "context=1024", "vocabulary=50257"));
  EXPECT_THAT(options_of(R"({"options": {"model": "gpt2"}})"), IsEmpty()) << "a run's own";
  const auto refused = [&](const std::string& text, const std::string& message) {
    EXPECT_THAT([&] { options_of(text); },
                ThrowsMessage<DataError>(AllOf(HasSubstr(config_), HasSubstr(message))));
  };
  refused(R"({"model_type": "llama"})", "'model_type' is \"llama\", but gpt2 requires \"gpt2\"");
  refused(R"({"model_type": "gpt2", "n_inner": 100})", "'n_inner' is 100, but gpt2 requires 3072");
  refused(R"({"model_type": "gpt2", "layer_norm_epsilon": 1e-6})", "'layer_norm_epsilon'");
  refused(R"({"model_type": "gpt2", "activation_function": "relu"})", "gelu_new, gelu_pytorch");
  refused(R"({"model_type": "gpt2", "scale_attn_weights": false})", "gpt2 requires true");
  refused(R"({"model_type": "gpt2", "tie_word_embeddings": false})", "gpt2 requires true");
  refused(R"({"model_type": "gpt2", "n_layer": 1.5})", "requires a whole number");
  refused(R"({"model_type": "gpt2", "n_embd": 1e30})", "requires a whole number");
  refused(R"({"model_type": "gpt2", "n_embd": 18446744073709551615, "n_inner": 1})",
          "'n_inner' is 1, but gpt2 requires");
  refused("[]", "is not a JSON object");
  refused("{", "is not a JSON object");
}

TEST_F(HuggingFace, ConfigIsWrittenAsItIsRead) {
  const std::vector<std::string> options{"bias=yes", "gelu=erf",   "layers=3",     "heads=2",
                                         "width=8",  "context=16", "vocabulary=11"};
  std::vector<std::string> assigned = options;
  assigned.back() = "vocabulary=0";  // the data's
  assigned.emplace_back("dropout=0.2");
  const std::string text =
      huggingface_config(resolve_settings(find("gpt2"), assigned), 11, std::nullopt);
  EXPECT_EQ(options_of(text), options);
  const auto json = nlohmann::json::parse(text);
  EXPECT_EQ(json["tie_word_embeddings"], true);
  EXPECT_EQ(json["resid_pdrop"], 0.2);
  EXPECT_EQ(json["eos_token_id"], nullptr);
  EXPECT_EQ(nlohmann::json::parse(
                huggingface_config(resolve_settings(find("gpt2")), 50257, 50256))["eos_token_id"],
            50256);
  std::mt19937 random(1);
  for (int i = 0; i < 300; ++i) {
    std::string other = text;
    for (int edits = 0; edits < 3; ++edits)
      other[random() % other.size()] = static_cast<char>(32 + random() % 95);
    try {
      options_of(other);
    } catch (const DataError& error) {
      ASSERT_THAT(error.what(), testing::StartsWith(config_));
    }
  }
}

TEST_F(HuggingFace, BiasesBelongToAllWeightsButTheTables) {
  EXPECT_EQ(huggingface_bias_of("h.0.attn.c_attn.weight"), "h.0.attn.c_attn.bias");
  EXPECT_EQ(huggingface_bias_of("ln_f.weight"), "ln_f.bias");
  for (const char* none : {"wte.weight", "wpe.weight", "ln_f.bias", "weight"})
    EXPECT_EQ(huggingface_bias_of(none), "") << none;
}

}  // namespace
}  // namespace warpstep::models
