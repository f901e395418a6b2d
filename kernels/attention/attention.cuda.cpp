// Attention and its adjoint on the GPU: by cuDNN's engines on tensor cores in 16 bits, else by our
// own kernels, which compute every dtype, mask and dropout. cuDNN's dropout draws other numbers
// than the engine defines, so that attention with dropout stays with our own kernels. The
// statistics are the same for both.
#include "kernels/attention/attention.cuda.h"

#include "engine/core/error.h"
#include "kernels/attention/attention_graph.cuda.h"
#include "kernels/attention/attention_rows.h"
#include "kernels/cuda/planned.h"

namespace warpstep::cuda {
namespace {

AttentionShape attention_shape(const Attention& op, const Operands& operands, int qkv, int o) {
  const AttentionRows rows(op, operands.in_shape(qkv));
  return {.sequences = rows.sequences,
          .heads = rows.heads,
          .length = rows.length,
          .features = rows.features,
          .qkv_pitch = operands.stored_in(qkv).back(),
          .o_pitch = o < 0 ? operands.stored_out().back() : operands.stored_in(o).back(),
          .causal = op.causal,
          .dropout = op.dropout,
          .layer = op.layer};
}

// The name of our own kernels, with the reason why cuDNN does not compute this.
std::string own_kernels(const Operands& operands, const AttentionShape& shape,
                        std::string_view kernels, const std::string& why_not) {
  if (shape.features > most_attention_features)
    fail<DeviceError>(
        "cuda: {} has {} features per head; cuDNN does not compute it ({}), and our own kernels "
        "have at most {}; use more heads",
        operands.node.title(), shape.features, why_not, most_attention_features);
  return fmt::format("without tensor cores ({:.60}): {}", why_not, kernels);
}

// Why, and what would make cuDNN compute it, if something would.
std::string note_of(const Operands& operands, const AttentionShape& shape, DType dtype,
                    const std::string& why_not) {
  const auto says = [&](std::string_view words) {
    return why_not.find(words) != std::string::npos;
  };
  std::string_view remedy;
  if (operands.context.settings.compute_capability < 80)
    remedy = "no setting changes that on this GPU";
  else if (size_bytes(dtype) != 2)
    remedy = "--precision bf16 or fp16 uses them";
  else if (shape.dropout > 0)
    remedy = "--model-option dropout=0 uses them";
  else if (says("features per head"))
    remedy = "another number of heads (--model-option heads=N) uses them";
  else if (says("needs cuDNN"))
    remedy = "pip install nvidia-cudnn-cu13 brings a newer one, which is then used";
  else if (says("workspace"))
    remedy = "a higher --workspace-mib may use them";
  return remedy.empty() ? why_not : fmt::format("{}; {}", why_not, remedy);
}

// Why cuDNN is not asked; empty if it is.
std::string not_for_cudnn(const AttentionShape& shape, DType dtype) {
  if (size_bytes(dtype) != 2) return std::string(name(dtype));
  return shape.dropout > 0 ? "dropout" : "";
}

void* offset(void* base, std::int64_t bytes) {
  return static_cast<std::byte*>(base) + bytes;
}

}  // namespace

std::unique_ptr<Kernel> bind(const Attention& op, const Operands& operands) {
  const AttentionShape shape = attention_shape(op, operands, 0, -1);
  const DType dtype = operands.dtype_out();
  std::string why_not = not_for_cudnn(shape, dtype);
  if (why_not.empty()) {
    dnn::Planned planned =
        operands.context.dnn->plan(attention_graph(operands.node.title(), shape, dtype));
    if (planned.plan)
      return planned_kernel(std::move(planned.plan), {AttentionUids::qkv},
                            {AttentionUids::o, AttentionUids::statistics});
    why_not = planned.why_not;
  }
  return launch_kernel(
      own_kernels(operands, shape, "attention", why_not),
      [op, shape, dtype](const Buffers& b, CudaStream& s) {
        attention(shape,
                  {.qkv = b.in[0],
                   .o = b.out[0],
                   .statistics = as<float>(b.out[1]),
                   .state = op.dropout > 0 ? as<StepState>(b.in[1]) : nullptr},
                  dtype, s.handle());
      },
      0, note_of(operands, shape, dtype, why_not));
}

namespace {

// The adjoint by cuDNN, in pieces of the batch whose workspace is within the cap. Without
// --deterministic it adds up the gradients of a piece's queries behind the plan's own workspace.
class GradientPieces {
 public:
  GradientPieces(const Operands& operands, const AttentionShape& shape, DType dtype)
      : shape_(shape),
        element_(static_cast<std::int64_t>(size_bytes(dtype))),
        adds_(!operands.context.settings.deterministic),
        each_(attention_piece(shape, dtype, operands.context.settings)) {
    if (each_ == 0) why_not_ = "a sequence needs more workspace than the cap";
    for (std::int64_t first = 0; first < shape.sequences && why_not_.empty(); first += each_) {
      const std::int64_t rest = shape.sequences - first;
      if (first == 0 || rest < each_) plan(operands, std::min(each_, rest), dtype);
    }
  }

  const std::string& why_not() const { return why_not_; }  // empty: all pieces have plans
  std::size_t workspace_bytes() const {
    const std::int64_t d_q = adds_ ? each_ * shape_.length * shape_.channels() : 0;
    return sums_ + idx(d_q) * sizeof(float);
  }
  std::string implementation() const {
    const std::int64_t pieces = (shape_.sequences + each_ - 1) / each_;
    const std::string engine = plans_.front()->implementation();
    return pieces == 1 ? engine : fmt::format("{} x {}", pieces, engine);
  }

  void operator()(const Buffers& b, CudaStream& s) const {
    const std::int64_t qkv = shape_.length * shape_.qkv_pitch * element_;
    const std::int64_t o = shape_.length * shape_.o_pitch * element_;
    const std::int64_t statistics =
        shape_.heads * shape_.length * static_cast<std::int64_t>(sizeof(float));
    for (std::int64_t first = 0; first < shape_.sequences; first += each_) {
      const std::array bindings{
          dnn::Binding{AttentionUids::d_o, offset(b.in[0], first * o)},
          dnn::Binding{AttentionUids::qkv, offset(b.in[1], first * qkv)},
          dnn::Binding{AttentionUids::o, offset(b.in[2], first * o)},
          dnn::Binding{AttentionUids::statistics, offset(b.in[3], first * statistics)},
          dnn::Binding{AttentionUids::d_qkv, offset(b.out[0], first * qkv)},
          dnn::Binding{AttentionUids::d_q_sums,
                       offset(b.workspace, static_cast<std::int64_t>(sums_))}};
      const bool is_last = first + each_ >= shape_.sequences;
      (is_last ? plans_.back() : plans_.front())
          ->execute(s, std::span(bindings).first(adds_ ? 6 : 5), b.workspace);
    }
  }

 private:
  void plan(const Operands& operands, std::int64_t sequences, DType dtype) {
    AttentionShape piece = shape_;
    piece.sequences = sequences;
    dnn::Planned planned = operands.context.dnn->plan(
        attention_gradient_graph(operands.node.title(), piece, dtype, !adds_));
    if (!planned.plan) {
      why_not_ = planned.why_not;
      return;
    }
    constexpr std::size_t alignment = 256;
    sums_ =
        std::max(sums_, (planned.plan->workspace_bytes() + alignment - 1) / alignment * alignment);
    plans_.push_back(std::move(planned.plan));
  }

  AttentionShape shape_;
  std::int64_t element_;
  bool adds_;
  std::int64_t each_;     // sequences of a piece; the last may have less
  std::size_t sums_ = 0;  // bytes of the workspace before the sums: those of the plans
  std::vector<std::shared_ptr<dnn::Plan>> plans_;  // of the first piece, and of a shorter last one
  std::string why_not_;
};

}  // namespace

std::unique_ptr<Kernel> bind(const AttentionGrad& op, const Operands& operands) {
  const AttentionShape shape = attention_shape(op.attention, operands, 1, 0);
  const DType dtype = operands.dtype_out();
  std::string why_not = not_for_cudnn(shape, dtype);
  if (why_not.empty()) {
    GradientPieces gradient(operands, shape, dtype);
    why_not = gradient.why_not();
    if (why_not.empty()) {
      const std::string implementation = gradient.implementation();
      const std::size_t workspace = gradient.workspace_bytes();
      return launch_kernel(implementation, std::move(gradient), workspace);
    }
  }
  return launch_kernel(
      own_kernels(operands, shape, "attention_means + attention_query_grad + attention_key_grad",
                  why_not),
      [op, shape, dtype](const Buffers& b, CudaStream& s) {
        attention_grad(shape,
                       {.d_o = b.in[0],
                        .qkv = b.in[1],
                        .o = b.in[2],
                        .statistics = as<float>(b.in[3]),
                        .state = op.attention.dropout > 0 ? as<StepState>(b.in[4]) : nullptr,
                        .d_qkv = b.out[0],
                        .means = as<float>(b.workspace)},
                       dtype, s.handle());
      },
      attention_grad_workspace(shape), note_of(operands, shape, dtype, why_not));
}

}  // namespace warpstep::cuda
