// GPT-2 as Hugging Face's transformers store it: a folder with config.json and model.safetensors.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "engine/files/weight_rules.h"
#include "models/settings.h"

namespace warpstep::models {

// Names and forms of GPT-2's weights in files of transformers and of nanoGPT.
const WeightRules& gpt2_weight_rules();

// The model options that this config.json means: {"layers=12", "heads=12", ...}, all but dropout,
// which belongs to a training. Empty if the file has no "model_type": it is another program's.
// DataError naming the file and the key for another kind of model, for values that our GPT-2
// cannot compute, and for a file that is no JSON.
std::vector<std::string> options_of_huggingface(const std::filesystem::path& file);

// The content of config.json for a model with these settings. `end_of_text` is the token that
// begins and ends a text, if there is one.
std::string huggingface_config(const Settings& settings, std::int64_t vocabulary,
                               std::optional<std::int64_t> end_of_text);

// The bias that transformers expect beside this weight; empty if it has none. Their GPT-2 cannot
// leave biases out, as `bias=no` does.
std::string huggingface_bias_of(const std::string& weight);

}  // namespace warpstep::models
