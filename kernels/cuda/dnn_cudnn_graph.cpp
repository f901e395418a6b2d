// Builds cuDNN's descriptors from a Graph, and executes plans.
#include "kernels/cuda/dnn_cudnn_graph.h"

#include <cuda_runtime_api.h>

#include <algorithm>

#include "engine/core/error.h"
#include "kernels/cuda/check.h"
#include "kernels/cuda/runtime.h"

namespace warpstep::cuda::dnn {
namespace {

constexpr std::int64_t alignment_bytes = 16;  // as documented for Binding
constexpr std::string_view handle_mark = "by handle: ";

// The engine's text in a saved plan.
std::string engine_of(std::string_view saved) {
  if (CudnnPlan::is_by_handle(saved)) saved.remove_prefix(handle_mark.size());
  return std::string(saved.substr(0, saved.find('\n')));
}

}  // namespace

cudnnDataType_t data_type(DType dtype) {
  switch (dtype) {
    case DType::f32: return CUDNN_DATA_FLOAT;
    case DType::f16: return CUDNN_DATA_HALF;
    case DType::bf16: return CUDNN_DATA_BFLOAT16;
    case DType::u8: return CUDNN_DATA_UINT8;
    case DType::i32: return CUDNN_DATA_INT32;
  }
  return CUDNN_DATA_FLOAT;
}

Descriptor tensor_descriptor(const TensorTerms& terms) {
  Descriptor descriptor(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  descriptor.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, terms.uid)
      .set(CUDNN_ATTR_TENSOR_DATA_TYPE, terms.type)
      .set_list<std::int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS, terms.dims)
      .set_list<std::int64_t>(CUDNN_ATTR_TENSOR_STRIDES, terms.strides)
      .set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, alignment_bytes)
      .set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, terms.is_virtual);
  if (terms.by_value) descriptor.set(CUDNN_ATTR_TENSOR_IS_BY_VALUE, true);
  descriptor.finalize("a tensor");
  return descriptor;
}

std::vector<BoundTensor> bound_tensors(const Graph& graph) {
  std::vector<BoundTensor> bound;
  std::vector<std::int64_t> in_parts;
  for (const Operation& operation : graph.operations) {
    const auto* attention = std::get_if<Attention>(&operation);
    if (!attention) continue;
    bound = bound_parts(graph, *attention);
    in_parts = {attention->qkv, attention->d_qkv};
  }
  for (const Tensor& tensor : graph.tensors)
    if (!tensor.is_virtual && std::ranges::find(in_parts, tensor.uid) == in_parts.end())
      bound.push_back({.uid = tensor.uid, .of = tensor.uid});
  return bound;
}

namespace {

Descriptor convolution_descriptor(const Convolution& conv) {
  const std::array padding{conv.padding, conv.padding}, stride{conv.stride, conv.stride},
      dilation{conv.dilation, conv.dilation};
  Descriptor descriptor(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
  descriptor.set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_DATA_FLOAT)
      .set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_CROSS_CORRELATION)
      .set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, std::int64_t{2})
      .set_list<std::int64_t>(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, padding)
      .set_list<std::int64_t>(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, padding)
      .set_list<std::int64_t>(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, stride)
      .set_list<std::int64_t>(CUDNN_ATTR_CONVOLUTION_DILATIONS, dilation)
      .finalize("a convolution's parameters");
  return descriptor;
}

// cuDNN has one operation per direction, each with its own names for the attributes.
struct ConvolutionNames {
  cudnnBackendDescriptorType_t operation;
  cudnnBackendAttributeName_t parameters, x, w, y, alpha, beta;
};

constexpr ConvolutionNames names(Convolution::Direction direction) {
  switch (direction) {
    case Convolution::Direction::forward: break;
    case Convolution::Direction::data_grad:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA};
    case Convolution::Direction::weight_grad:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA};
  }
  return {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA};
}

cudnnPointwiseMode_t mode_of(const Pointwise& pointwise) {
  switch (pointwise.mode) {
    case Pointwise::Mode::add: return CUDNN_POINTWISE_ADD;
    case Pointwise::Mode::subtract: return CUDNN_POINTWISE_SUB;
    case Pointwise::Mode::multiply: return CUDNN_POINTWISE_MUL;
    case Pointwise::Mode::relu: return CUDNN_POINTWISE_RELU_FWD;
    case Pointwise::Mode::relu_grad: break;
  }
  return CUDNN_POINTWISE_RELU_BWD;
}

}  // namespace

OperationGraph::OperationGraph(const Graph& graph, cudnnHandle_t handle)
    : described_(graph), graph_(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR) {
  if (handle != nullptr) graph_.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, handle);
  for (const Tensor& tensor : graph.tensors) {
    tensors_.push_back({tensor.uid, tensor_descriptor({.uid = tensor.uid,
                                                       .type = data_type(tensor.dtype),
                                                       .dims = tensor.dims,
                                                       .strides = tensor.strides,
                                                       .is_virtual = tensor.is_virtual})});
  }
  for (const Operation& operation : graph.operations) {
    std::visit([this](const auto& op) { add(op); }, operation);
  }
  graph_.set_list(CUDNN_ATTR_OPERATIONGRAPH_OPS, std::span<const Descriptor>(operations_))
      .finalize("the graph of operations");
}

const Descriptor& OperationGraph::tensor(std::int64_t uid) const {
  const auto found = std::ranges::find(tensors_, uid, &NamedTensor::uid);
  if (found == tensors_.end())
    fail<Error>("an operation refers to the tensor {}, which the graph does not have", uid);
  return found->descriptor;
}

void OperationGraph::add(const Convolution& conv) {
  const ConvolutionNames attributes = names(conv.direction);
  const Descriptor& parameters = parameters_.emplace_back(convolution_descriptor(conv));
  operations_.emplace_back(attributes.operation)
      .set(attributes.parameters, parameters)
      .set(attributes.x, tensor(conv.x))
      .set(attributes.w, tensor(conv.w))
      .set(attributes.y, tensor(conv.y))
      .set(attributes.alpha, 1.0F)
      .set(attributes.beta, 0.0F)
      .finalize("a convolution");
}

void OperationGraph::add(const Pointwise& pointwise) {
  using enum Pointwise::Mode;
  Descriptor& parameters = parameters_.emplace_back(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  parameters.set(CUDNN_ATTR_POINTWISE_MODE, mode_of(pointwise))
      .set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_DATA_FLOAT)
      .finalize("a pointwise operation's parameters");
  Descriptor& operation = operations_.emplace_back(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  operation.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, parameters)
      .set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, tensor(pointwise.x));
  if (pointwise.mode == relu_grad) {
    operation.set(CUDNN_ATTR_OPERATION_POINTWISE_DYDESC, tensor(pointwise.b))
        .set(CUDNN_ATTR_OPERATION_POINTWISE_DXDESC, tensor(pointwise.y));
  } else {
    if (pointwise.mode != relu)
      operation.set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, tensor(pointwise.b));
    operation.set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, tensor(pointwise.y));
  }
  operation.finalize("a pointwise operation");
}

void OperationGraph::add(const ChannelSums& sums) {
  operations_.emplace_back(CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR)
      .set(CUDNN_ATTR_OPERATION_GENSTATS_MODE, CUDNN_GENSTATS_SUM_SQSUM)
      .set(CUDNN_ATTR_OPERATION_GENSTATS_MATH_PREC, CUDNN_DATA_FLOAT)
      .set(CUDNN_ATTR_OPERATION_GENSTATS_XDESC, tensor(sums.x))
      .set(CUDNN_ATTR_OPERATION_GENSTATS_SUMDESC, tensor(sums.sum))
      .set(CUDNN_ATTR_OPERATION_GENSTATS_SQSUMDESC, tensor(sums.squares))
      .finalize("sums of channels");
}

void OperationGraph::add(const NormGradSums& sums) {
  operations_.emplace_back(CUDNN_BACKEND_OPERATION_BN_BWD_WEIGHTS_DESCRIPTOR)
      .set(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_MATH_PREC, CUDNN_DATA_FLOAT)
      .set(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_MEAN_DESC, tensor(sums.mean))
      .set(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_INVSTD_DESC, tensor(sums.inv_std))
      .set(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_BN_SCALE_DESC, tensor(sums.scale))
      .set(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_X_DESC, tensor(sums.x))
      .set(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_DY_DESC, tensor(sums.d_y))
      .set(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_DBN_SCALE_DESC, tensor(sums.d_scale))
      .set(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_DBN_BIAS_DESC, tensor(sums.d_bias))
      .set(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_EQ_DY_SCALE_DESC, tensor(sums.by_d_y))
      .set(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_EQ_X_SCALE_DESC, tensor(sums.by_x))
      .set(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_EQ_BIAS, tensor(sums.constant))
      .finalize("sums of a batch norm's gradient");
}

void OperationGraph::add(const Attention&) {
  if (attention_of(described_) == nullptr)
    fail<Error>("{}: an attention is alone in its graph, not with {} other operations",
                described_.name, described_.operations.size() - 1);
  const AttentionTerms terms = attention_terms(described_);
  for (const TensorTerms& tensor : terms.tensors)
    tensors_.push_back({tensor.uid, tensor_descriptor(tensor)});
  for (const OperationTerms& operation : terms.operations)
    std::visit([this](const auto& op) { add(op); }, operation);
}

void OperationGraph::add(const MatmulTerms& product) {
  Descriptor& parameters = parameters_.emplace_back(CUDNN_BACKEND_MATMUL_DESCRIPTOR);
  parameters.set(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_DATA_FLOAT).finalize("a product's parameters");
  operations_.emplace_back(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR)
      .set(CUDNN_ATTR_OPERATION_MATMUL_ADESC, tensor(product.a))
      .set(CUDNN_ATTR_OPERATION_MATMUL_BDESC, tensor(product.b))
      .set(CUDNN_ATTR_OPERATION_MATMUL_CDESC, tensor(product.c))
      .set(CUDNN_ATTR_OPERATION_MATMUL_DESC, parameters)
      .finalize("a product");
}

void OperationGraph::add(const PointwiseTerms& pointwise) {
  Descriptor& parameters = parameters_.emplace_back(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  parameters.set(CUDNN_ATTR_POINTWISE_MODE, pointwise.mode)
      .set(CUDNN_ATTR_POINTWISE_MATH_PREC, pointwise.type);
  if (pointwise.axis) parameters.set(CUDNN_ATTR_POINTWISE_AXIS, *pointwise.axis);
  parameters.finalize("a pointwise operation's parameters");
  Descriptor& operation = operations_.emplace_back(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  operation.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, parameters)
      .set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, tensor(pointwise.x))
      .set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, tensor(pointwise.y));
  if (pointwise.b) operation.set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, tensor(*pointwise.b));
  if (pointwise.condition)
    operation.set(CUDNN_ATTR_OPERATION_POINTWISE_TDESC, tensor(*pointwise.condition));
  operation.finalize("a pointwise operation");
}

void OperationGraph::add(const ReductionTerms& reduction) {
  Descriptor& parameters = parameters_.emplace_back(CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
  parameters.set(CUDNN_ATTR_REDUCTION_OPERATOR, reduction.mode)
      .set(CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_DATA_FLOAT)
      .finalize("a reduction's parameters");
  operations_.emplace_back(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR)
      .set(CUDNN_ATTR_OPERATION_REDUCTION_XDESC, tensor(reduction.x))
      .set(CUDNN_ATTR_OPERATION_REDUCTION_YDESC, tensor(reduction.y))
      .set(CUDNN_ATTR_OPERATION_REDUCTION_DESC, parameters)
      .finalize("a reduction");
}

void OperationGraph::add(const ReshapeTerms& reshape) {
  operations_.emplace_back(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR)
      .set(CUDNN_ATTR_OPERATION_RESHAPE_XDESC, tensor(reshape.x))
      .set(CUDNN_ATTR_OPERATION_RESHAPE_YDESC, tensor(reshape.y))
      .finalize("a reshape");
}

cudnnHandle_t handle_of(CudaStream& stream) {
  if (stream.dnn_handle) return static_cast<cudnnHandle_t>(stream.dnn_handle.get());
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  check(cudaStreamIsCapturing(stream.handle(), &capture), "cudaStreamIsCapturing");
  if (capture != cudaStreamCaptureStatusNone) {
    fail<DeviceError>(
        "a stream executes its first cuDNN plan within a capture, where no handle can be created; "
        "run the step once before it is captured");
  }
  cudnnHandle_t handle = nullptr;
  if (const cudnnStatus_t made = cudnnCreate(&handle); made != CUDNN_STATUS_SUCCESS) {
    if (is_nearly_full())
      fail<OutOfDeviceMemory>(
          "cudnnCreate: {} ({}): the device has no memory left for a handle of cuDNN; use a "
          "smaller --batch, or another device with --device cuda:N",
          cudnnGetErrorString(made), static_cast<int>(made));
    check(made, "cudnnCreate");
  }
  std::shared_ptr<void> owner(handle,
                              [](void* made) { cudnnDestroy(static_cast<cudnnHandle_t>(made)); });
  check(cudnnSetStream(handle, stream.handle()), "cudnnSetStream");
  stream.dnn_handle = std::move(owner);
  return handle;
}

CudnnPlan::CudnnPlan(const Graph& graph, std::string engine, const Target& target)
    : name_(graph.name),
      bound_(bound_tensors(graph)),
      engine_(std::move(engine)),
      plan_(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR),
      by_handle_(target.handle != nullptr),
      can_run_(target.can_run) {
  if (by_handle_)
    plan_.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, target.handle);
  else
    plan_.set(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, target.device);
}

CudnnPlan::CudnnPlan(const Graph& graph, const Target& target, EngineConfig config)
    : CudnnPlan(graph, config.text(), target) {
  config_ = std::move(config.descriptor);
  plan_.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, *config_).finalize("a plan");
  workspace_bytes_ =
      static_cast<std::size_t>(plan_.get<std::int64_t>(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE));
}

CudnnPlan::CudnnPlan(const Graph& graph, const Target& target, const std::string& saved)
    : CudnnPlan(graph, engine_of(saved), target) {
  const std::span<const char> json = std::span(saved).subspan(saved.find('\n') + 1);
  plan_.set_list<char>(CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, json)
      .finalize("a cached plan");
  workspace_bytes_ =
      static_cast<std::size_t>(plan_.get<std::int64_t>(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE));
}

std::string CudnnPlan::saved() const {
  return fmt::format("{}{}\n{}", by_handle_ ? handle_mark : "", engine_,
                     plan_.get_text(CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION));
}

bool CudnnPlan::is_by_handle(std::string_view saved) {
  return saved.starts_with(handle_mark);
}

void CudnnPlan::mark_measured() {
  engine_.insert(engine_.rfind(')'), ", measured");
}

void CudnnPlan::execute(CudaStream& stream, std::span<const Binding> bindings,
                        void* workspace) const {
  if (!can_run_) {
    fail<DeviceError>("{}: planned for an assumed device; it cannot be executed", name_);
  }
  const Descriptor& pack = variant_pack(bindings, workspace);
  check(cudnnBackendExecute(handle_of(stream), plan_.handle(), pack.handle()), name_.c_str());
}

const Descriptor& CudnnPlan::variant_pack(std::span<const Binding> bindings,
                                          void* workspace) const {
  const auto is_at = [&](const BoundTensor& bound, void* at) {
    return address(bound, bindings) == at;
  };
  if (pack_ && pack_->workspace == workspace &&
      std::ranges::equal(bound_, pack_->addresses, is_at)) {
    return pack_->descriptor;
  }
  std::vector<std::int64_t> uids;
  std::vector<void*> addresses;
  for (const BoundTensor& bound : bound_) {
    uids.push_back(bound.uid);
    addresses.push_back(address(bound, bindings));
  }
  Descriptor descriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  descriptor.set_list<std::int64_t>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, uids)
      .set_list<void*>(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, addresses)
      .set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, workspace)
      .finalize("a plan's addresses");
  pack_ = VariantPack{std::move(addresses), workspace, std::move(descriptor)};
  return pack_->descriptor;
}

void* CudnnPlan::address(const BoundTensor& bound, std::span<const Binding> bindings) const {
  if (bound.of == 0) return const_cast<float*>(&bound.value);  // only read
  const auto found = std::ranges::find(bindings, bound.of, &Binding::uid);
  if (found == bindings.end() || found->address == nullptr) {
    fail<Error>("{}: the graph's tensor {} is not bound to memory", name_, bound.of);
  }
  return static_cast<std::byte*>(found->address) + bound.offset;
}

}  // namespace warpstep::cuda::dnn
