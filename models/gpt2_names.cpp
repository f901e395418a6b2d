#include <string>
#include <string_view>

#include "models/zoo.h"

namespace warpstep::models {

// transformers keep causal masks as `attn.bias` and `attn.masked_bias`; these are no parameters.
// nanoGPT's linear layers have [out,in] where transformers have [in,out].
const WeightRules& gpt2_weight_rules() {
  static const WeightRules rules{.prefixes = {"transformer."},
                                 .ignored = {"attn.bias", "attn.masked_bias"},
                                 .tied = {{"lm_head.weight", "wte.weight"}},
                                 .transposed = {"attn.c_attn.weight", "attn.c_proj.weight",
                                                "mlp.c_fc.weight", "mlp.c_proj.weight"},
                                 .extents = {{"wte.weight", 0, "vocabulary"},
                                             {"wte.weight", 1, "width"},
                                             {"wpe.weight", 0, "context"}}};
  return rules;
}

const WeightRules& weight_rules_of(const Model& model) {
  static const WeightRules none;
  return model.table == gpt2_settings ? gpt2_weight_rules() : none;
}

std::string huggingface_bias_of(const std::string& weight) {
  constexpr std::string_view last = "weight";
  if (!weight.ends_with(".weight") || weight.starts_with("wte.") || weight.starts_with("wpe."))
    return {};
  return weight.substr(0, weight.size() - last.size()) + "bias";
}

}  // namespace warpstep::models
