// The closed set of ops, and what can be asked of any of them.
#pragma once

#include <utility>
#include <variant>

#include "engine/graph/ops/attention.h"
#include "engine/graph/ops/conv.h"
#include "engine/graph/ops/custom.h"
#include "engine/graph/ops/decode.h"
#include "engine/graph/ops/dropout.h"
#include "engine/graph/ops/embed.h"
#include "engine/graph/ops/gelu.h"
#include "engine/graph/ops/layer_norm.h"
#include "engine/graph/ops/linear.h"
#include "engine/graph/ops/loss.h"
#include "engine/graph/ops/norm.h"
#include "engine/graph/ops/norm_conv.h"
#include "engine/graph/ops/norm_pool.h"
#include "engine/graph/ops/pixels.h"
#include "engine/graph/ops/pointwise.h"
#include "engine/graph/ops/pool.h"
#include "engine/graph/ops/statistics.h"
#include "engine/graph/ops/update.h"

namespace warpstep {

// Every op, by family. The variant, and the bind() that each backend declares for each op
// (kernels/kernel.h), follow from this list.
// clang-format off
#define WARPSTEP_EACH_OP(OP)                                                \
  OP(Normalize) OP(Relu) OP(ReluGrad) OP(Add) OP(Reshape)                   \
  OP(Upload) OP(Reorder)                                                    \
  OP(Augment)                                                               \
  OP(Conv) OP(ConvDataGrad) OP(ConvWeightGrad)                              \
  OP(Linear) OP(LinearDataGrad) OP(LinearWeightGrad)                        \
  OP(MaxPool) OP(MaxPoolGrad) OP(AvgPool) OP(AvgPoolGrad)                   \
  OP(BatchNorm) OP(BatchNormGrad)                                           \
  OP(NormConv) OP(NormFinalize) OP(NormApply)                               \
  OP(NormConvDataGrad) OP(NormGradApply) OP(NormConvWeightGrad)             \
  OP(NormPool) OP(NormPoolGrad)                                             \
  OP(Dropout)                                                               \
  OP(Gelu) OP(GeluGrad)                                                     \
  OP(Embed) OP(EmbedGrad) OP(LayerNorm) OP(LayerNormGrad)                   \
  OP(Attention) OP(AttentionGrad)                                           \
  OP(EmbedAt) OP(CachedAttention)                                           \
  OP(LogSoftmax) OP(LogSoftmaxGrad) OP(Nll) OP(NllGrad) OP(Top1)            \
  OP(SoftmaxXent) OP(LossGrad)                                              \
  OP(Clock) OP(Update) OP(UpdateAll) OP(CheckGradients) OP(Accumulate)      \
  OP(AllReduce) OP(AllGather)                                               \
  OP(LarsScale) OP(Average) OP(Report)                                      \
  OP(ActivationStatistics) OP(UpdateStatistics)                             \
  OP(Custom)
// clang-format on

namespace detail {
template <class First, class... Ops>
using VariantOf = std::variant<Ops...>;
}
#define WARPSTEP_NEXT_TYPE(Op) , Op
using OpVariant = detail::VariantOf<void WARPSTEP_EACH_OP(WARPSTEP_NEXT_TYPE)>;
#undef WARPSTEP_NEXT_TYPE

// One of them. A class, so that copying, moving and destroying one is compiled in any.cpp alone: of
// sixty alternatives it takes two seconds, and most files copy a graph.
class AnyOp : public OpVariant {
 public:
  AnyOp() = default;
  template <class Op>
  requires requires { Op::traits; }
  AnyOp(Op op) : OpVariant(std::in_place_type<Op>, std::move(op)) {}
  AnyOp(const AnyOp& op);
  AnyOp(AnyOp&& op) noexcept;
  AnyOp& operator=(const AnyOp& op);
  AnyOp& operator=(AnyOp&& op) noexcept;
  ~AnyOp();
  bool operator==(const AnyOp& op) const;
};

std::string_view name(const AnyOp& op);
std::string text(const AnyOp& op);  // its attributes; empty where there are none
Types infer(const AnyOp& op, const Types& in);
void grad(const AnyOp& op, Adjoint& adjoint);  // throws Error for an op without an adjoint
Cost cost(const AnyOp& op, const Types& in, const Types& out);

OpKind kind(const AnyOp& op);
int layout_of(const AnyOp& op);              // OpTraits::layout_of
bool has_f32_inputs(const AnyOp& op);        // F32::inputs
bool reads_f32_parameters(const AnyOp& op);  // F32::parameters
// The inputs whose buffer an output may take over when they are not needed any more, and that
// output: as a rule 0, -1 for none.
std::vector<int> in_place_inputs(const AnyOp& op);
int in_place_output(const AnyOp& op);
bool changes(const AnyOp& op, Role role);  // whether a call may change its inputs of it

// Sets the field `dtype` of an op whose output has the dtype that the step stores values in.
void set_storage_dtype(AnyOp& op, DType dtype);
// Sets the field `scaled` of an op that begins the backward half: its result is then times the loss
// scale of the state, an input more. False for other ops.
bool set_scaled(AnyOp& op);
bool is_scaled(const AnyOp& op);

inline bool is_measure(const AnyOp& op) {
  return kind(op) == OpKind::measure;
}
inline bool is_view(const AnyOp& op) {
  return kind(op) == OpKind::view;
}
// Changes parameters by their gradients.
inline bool is_update(const AnyOp& op) {
  return std::holds_alternative<Update>(op) || std::holds_alternative<UpdateAll>(op);
}
// Of which a rank does its share alone, where the optimiser is sharded (Graph::shards).
inline bool is_shared_out(const AnyOp& op) {
  return is_update(op) || std::holds_alternative<CheckGradients>(op);
}
// Of the steps that make an update together, only the last runs these.
inline bool runs_once_per_update(const AnyOp& op) {
  return kind(op) == OpKind::update && !std::holds_alternative<CheckGradients>(op);
}

}  // namespace warpstep
