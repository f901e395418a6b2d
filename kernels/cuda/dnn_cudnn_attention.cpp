// An attention in cuDNN's terms: matrix products, pointwise operations and reductions in the order
// and with the intermediate types that its engines for fused attention recognise (the operation
// SDPA_BACKWARD cannot have a causal mask before cuDNN 9.21, and these graphs serve every version).
// Intermediate tensors are f32 but for what a product reads, which has the type of q. Keys and
// values enter products as they lie in memory, with two strides exchanged.
#include <cmath>
#include <limits>
#include <optional>

#include "engine/core/error.h"
#include "kernels/cuda/dnn_cudnn_graph.h"

namespace warpstep::cuda::dnn {
namespace {

// uids in cuDNN's graph, beside those of the tensors of ours. The virtual ones follow.
enum Reserved : std::int64_t {
  q_uid = std::int64_t{1} << 20,
  k_uid,
  v_uid,
  d_q_uid,
  d_k_uid,
  d_v_uid,
  scale_uid,
  unseen_uid,
  one_uid,
  first_virtual_uid
};

// {B,H,T,D} from the {B,3H,T,D} of qkv.
Extents head_dims(const Tensor& qkv) {
  return {qkv.dims[0], qkv.dims[1] / 3, qkv.dims[2], qkv.dims[3]};
}

Extents exchanged(Extents axes) {
  std::swap(axes[2], axes[3]);
  return axes;
}

Extents packed(const Extents& dims) {
  return {dims[1] * dims[2] * dims[3], dims[2] * dims[3], dims[3], 1};
}

class PlannedLater final : public Plan {
 public:
  PlannedLater(std::string name, std::size_t workspace_bytes)
      : name_(std::move(name)), workspace_bytes_(workspace_bytes) {}
  std::size_t workspace_bytes() const override { return workspace_bytes_; }
  std::string implementation() const override { return "cudnn (chosen on the device)"; }
  void execute(CudaStream&, std::span<const Binding>, void*) const override {
    fail<DeviceError>("{}: planned for an assumed device; it cannot be executed", name_);
  }

 private:
  std::string name_;
  std::size_t workspace_bytes_;
};

}  // namespace

std::string attention_objection(const Graph& graph, const Settings& settings) {
  constexpr std::size_t oldest = 91600;
  const Tensor& qkv = graph.tensor(attention_of(graph)->qkv);
  const std::int64_t most = settings.compute_capability / 10 == 9 ? 256 : 128;
  if (const std::size_t version = cudnnGetVersion(); version < oldest)
    return fmt::format("attention needs cuDNN 9.16 or later, this is {}.{}.{}", version / 10000,
                       version / 100 % 100, version % 100);
  if (settings.compute_capability < 80) return "attention needs sm_80 or later";
  if (size_bytes(qkv.dtype) != 2) return "the adjoint of attention needs 16-bit values";
  if (qkv.dims[2] == 1) return "sequences of one position";
  if (qkv.dims[3] % 8 != 0 || qkv.dims[3] > most)
    return fmt::format("{} features per head are not a multiple of 8 up to {}", qkv.dims[3], most);
  return {};
}

std::unique_ptr<Plan> attention_planned_later(const Graph& graph, const Settings& settings) {
  return std::make_unique<PlannedLater>(graph.name,
                                        attention_workspace(graph, settings.compute_capability));
}

std::vector<BoundTensor> bound_parts(const Graph& graph, const Attention& attention) {
  const Tensor& qkv = graph.tensor(attention.qkv);
  const auto scale = static_cast<float>(1 / std::sqrt(static_cast<double>(qkv.dims[3])));
  const bool forward = attention.direction == Attention::Direction::forward;
  std::vector<BoundTensor> bound{{.uid = scale_uid, .value = scale}};
  if (attention.causal)
    bound.push_back({.uid = unseen_uid, .value = -std::numeric_limits<float>::infinity()});
  if (!forward) bound.push_back({.uid = one_uid, .value = 1});
  const auto parts = [&](std::int64_t uid, std::int64_t first) {
    const Tensor& tensor = graph.tensor(uid);
    const auto heads = static_cast<std::size_t>(tensor.dims[1] / 3 * tensor.strides[1]);
    for (std::size_t part = 0; part < 3; ++part)
      bound.push_back({.uid = first + static_cast<std::int64_t>(part),
                       .of = uid,
                       .offset = part * heads * size_bytes(tensor.dtype)});
  };
  parts(attention.qkv, q_uid);
  if (!forward) parts(attention.d_qkv, d_q_uid);
  return bound;
}

namespace {

// Writes the terms of one attention, in order.
class AttentionWriter {
 public:
  explicit AttentionWriter(const Graph& graph)
      : graph_(graph),
        op_(*attention_of(graph)),
        qkv_(graph.tensor(op_.qkv)),
        dims_(head_dims(qkv_)),
        type_(data_type(qkv_.dtype)) {
    scalar(scale_uid);
    if (op_.causal) scalar(unseen_uid);
    in_memory(q_uid, qkv_, false);
  }

  AttentionTerms written() {
    op_.direction == Attention::Direction::forward ? forward() : backward();
    return std::move(terms_);
  }

 private:
  void forward() {
    in_memory(k_uid, qkv_, true);
    in_memory(v_uid, qkv_, false);
    const std::int64_t s = masked_scores();
    const std::int64_t largest = rows(), shifted = pairs(), e = pairs(), sum = rows(), log = rows();
    reduce(CUDNN_REDUCE_TENSOR_MAX, s, largest);
    pointwise(CUDNN_POINTWISE_SUB, s, largest, shifted);
    pointwise(CUDNN_POINTWISE_EXP, shifted, e);
    reduce(CUDNN_REDUCE_TENSOR_ADD, e, sum);
    pointwise(CUDNN_POINTWISE_LOG, sum, log);
    pointwise(CUDNN_POINTWISE_ADD, largest, log, op_.statistics);
    const std::int64_t p = pairs(type_);
    pointwise(CUDNN_POINTWISE_DIV, e, sum, p);
    multiply(p, v_uid, op_.o);
  }

  void backward() {
    scalar(one_uid);
    in_memory(k_uid, qkv_, true);
    in_memory(v_uid, qkv_, true);
    const Tensor& d_qkv = graph_.tensor(op_.d_qkv);
    for (const std::int64_t uid : {d_q_uid, d_k_uid, d_v_uid}) in_memory(uid, d_qkv, false);
    const std::int64_t product = virtual_tensor(CUDNN_DATA_FLOAT, dims_, strides_of(op_.o));
    const std::int64_t sum = rows(), mean = rows();
    pointwise(CUDNN_POINTWISE_MUL, op_.d_o, op_.o, product);
    reduce(CUDNN_REDUCE_TENSOR_ADD, product, sum);
    pointwise(CUDNN_POINTWISE_MUL, sum, one_uid, mean);

    const std::int64_t s = masked_scores(), shifted = pairs(), p = pairs();
    pointwise(CUDNN_POINTWISE_SUB, s, op_.statistics, shifted);
    pointwise(CUDNN_POINTWISE_EXP, shifted, p);
    multiply(transposed_pairs(p), op_.d_o, d_v_uid);

    const std::int64_t d_p = pairs(), centred = pairs(), weighted = pairs(), d_s = pairs();
    multiply(op_.d_o, v_uid, d_p);
    pointwise(CUDNN_POINTWISE_SUB, d_p, mean, centred);
    pointwise(CUDNN_POINTWISE_MUL, centred, p, weighted);
    pointwise(CUDNN_POINTWISE_MUL, weighted, scale_uid, d_s);
    multiply(transposed_pairs(d_s), q_uid, d_k_uid);

    const std::int64_t k = virtual_tensor(CUDNN_DATA_FLOAT, dims_, qkv_.strides);
    reshape(k_uid, k);
    if (op_.d_q_sums == 0) {
      multiply(d_s, k, d_q_uid);
    } else {
      multiply(d_s, k, op_.d_q_sums);
      pointwise(CUDNN_POINTWISE_IDENTITY, op_.d_q_sums, d_q_uid);
    }
  }

  void tensor(const TensorTerms& terms) { terms_.tensors.push_back(terms); }
  void scalar(std::int64_t uid) {
    tensor({.uid = uid,
            .type = CUDNN_DATA_FLOAT,
            .dims = {1, 1, 1, 1},
            .strides = {1, 1, 1, 1},
            .by_value = true});
  }
  // The heads of q, k or v in a tensor like qkv, or the transposes of their matrices.
  void in_memory(std::int64_t uid, const Tensor& of, bool transposed) {
    tensor({.uid = uid,
            .type = type_,
            .dims = transposed ? exchanged(dims_) : dims_,
            .strides = transposed ? exchanged(of.strides) : of.strides});
  }
  Extents strides_of(std::int64_t uid) const { return graph_.tensor(uid).strides; }
  std::int64_t virtual_tensor(cudnnDataType_t type, const Extents& dims, const Extents& strides) {
    tensor({.uid = next_, .type = type, .dims = dims, .strides = strides, .is_virtual = true});
    return next_++;
  }
  Extents pair_dims() const { return {dims_[0], dims_[1], dims_[2], dims_[2]}; }
  std::int64_t pairs(cudnnDataType_t type = CUDNN_DATA_FLOAT) {
    return virtual_tensor(type, pair_dims(), packed(pair_dims()));
  }
  std::int64_t rows() {
    const Extents dims{dims_[0], dims_[1], dims_[2], 1};
    return virtual_tensor(CUDNN_DATA_FLOAT, dims, packed(dims));
  }
  std::int64_t transposed_pairs(std::int64_t x) {
    const std::int64_t y = virtual_tensor(type_, pair_dims(), exchanged(packed(pair_dims())));
    reshape(x, y);
    return y;
  }

  // q k^T / sqrt(D), and -inf where a causal position does not see another.
  std::int64_t masked_scores() {
    const std::int64_t products = pairs(), s = pairs();
    multiply(q_uid, k_uid, products);
    pointwise(CUDNN_POINTWISE_MUL, products, scale_uid, s);
    if (!op_.causal) return s;
    const std::int64_t row = pairs(CUDNN_DATA_INT32), column = pairs(CUDNN_DATA_INT32);
    index(s, row, 2);
    index(s, column, 3);
    const std::int64_t seen = pairs(CUDNN_DATA_BOOLEAN), masked = pairs();
    pointwise({.mode = CUDNN_POINTWISE_CMP_GE,
               .x = row,
               .b = column,
               .y = seen,
               .type = CUDNN_DATA_BOOLEAN});
    pointwise({.mode = CUDNN_POINTWISE_BINARY_SELECT,
               .x = s,
               .b = unseen_uid,
               .y = masked,
               .condition = seen});
    return masked;
  }

  void multiply(std::int64_t a, std::int64_t b, std::int64_t c) {
    terms_.operations.emplace_back(MatmulTerms{a, b, c});
  }
  void pointwise(const PointwiseTerms& terms) { terms_.operations.emplace_back(terms); }
  void pointwise(cudnnPointwiseMode_t mode, std::int64_t x, std::int64_t b, std::int64_t y) {
    pointwise({.mode = mode, .x = x, .b = b, .y = y});
  }
  void pointwise(cudnnPointwiseMode_t mode, std::int64_t x, std::int64_t y) {
    pointwise({.mode = mode, .x = x, .y = y});
  }
  void index(std::int64_t x, std::int64_t y, std::int64_t axis) {
    pointwise({.mode = CUDNN_POINTWISE_GEN_INDEX, .x = x, .y = y, .axis = axis});
  }
  void reduce(cudnnReduceTensorOp_t mode, std::int64_t x, std::int64_t y) {
    terms_.operations.emplace_back(ReductionTerms{mode, x, y});
  }
  void reshape(std::int64_t x, std::int64_t y) {
    terms_.operations.emplace_back(ReshapeTerms{x, y});
  }

  const Graph& graph_;
  const Attention& op_;
  const Tensor& qkv_;
  Extents dims_;  // {B,H,T,D}
  cudnnDataType_t type_;
  std::int64_t next_ = first_virtual_uid;
  AttentionTerms terms_;
};

}  // namespace

AttentionTerms attention_terms(const Graph& graph) {
  return AttentionWriter(graph).written();
}

}  // namespace warpstep::cuda::dnn
