// Rewrites of neighbouring ops into one. fusion_table() has all of them; each row has a test that
// the step computes the same with and without it.
#pragma once

#include <functional>
#include <set>
#include <span>
#include <string>
#include <string_view>

#include "engine/graph/graph.h"

namespace warpstep {

// The names of the rows: for --no-fuse, and for backends, which say by name what pays.
namespace fusion {
inline constexpr std::string_view relu_pool = "relu+pool";
inline constexpr std::string_view conv_relu = "conv+relu";
inline constexpr std::string_view linear_relu = "linear+relu";
inline constexpr std::string_view linear_gelu = "linear+gelu";
inline constexpr std::string_view softmax_xent = "softmax+xent";
inline constexpr std::string_view linear_dgrad_relu = "linear.dgrad+relu";
inline constexpr std::string_view linear_dgrad_gelu = "linear.dgrad+gelu";
inline constexpr std::string_view dgrad_bias = "dgrad+bias";
inline constexpr std::string_view norm_relu = "norm+relu";
inline constexpr std::string_view norm_add_relu = "norm+add+relu";
inline constexpr std::string_view add_norm_dgrad = "add+norm.dgrad";
inline constexpr std::string_view add_layer_norm = "add+layer_norm";
inline constexpr std::string_view conv_statistics = "conv+statistics";
inline constexpr std::string_view norm_conv = "norm+conv";
inline constexpr std::string_view join_conv = "join+conv";
inline constexpr std::string_view conv_pool = "conv+pool";
inline constexpr std::string_view norm_pool = "norm+pool";
inline constexpr std::string_view conv_dgrad_relu = "conv.dgrad+relu";
inline constexpr std::string_view dgrad_norm_dgrad = "dgrad+norm.dgrad";
inline constexpr std::string_view norm_dgrad_norm_dgrad = "norm.dgrad+norm.dgrad";
inline constexpr std::string_view updates = "updates";
}  // namespace fusion

// Whether an op can be computed on inputs of these types.
using Computes = std::function<bool(const AnyOp&, const Types& in)>;

struct FuseOptions {
  bool training = true;
  std::set<std::string, std::less<>> disabled;  // names of rows
  // Asked for each place that a row of FuseStage::lowered fits; what it refuses is left as it is.
  Computes computes{};
};

// What a row works on.
enum class FuseStage : std::uint8_t {
  forward,   // the forward half, before it is differentiated
  backward,  // the whole graph after differentiate(); gradients keep their ids
  updates,   // the updates that add_optimizer() made
  lowered,   // the whole step after apply_precision(): what backends fuse depends on the dtypes
};

struct FusionRow {
  std::string_view name;
  std::string_view effect;  // what becomes of the ops, for `warpstep explain`
  FuseStage stage;
  void (*apply)(Graph& graph, const FuseOptions& options);
};
std::span<const FusionRow> fusion_table();

// Applies the rows of a stage that are not disabled, in the order of the table. Throws UsageError
// for a disabled row that does not exist.
Graph fuse(Graph graph, FuseStage stage, const FuseOptions& options);

}  // namespace warpstep
