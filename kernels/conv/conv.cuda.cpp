// Convolutions and their adjoints on the GPU: the node as a graph for cuDNN, then its plan as a
// kernel; of few channels in 16 bits, kernels of our own. Bound by arithmetic on most layers;
// measured figures are in bench/RECORDS.md.
#include <fmt/format.h>

#include <optional>

#include "engine/core/error.h"
#include "kernels/conv/conv_graph.cuda.h"
#include "kernels/conv/narrow.cuda.h"
#include "kernels/conv/stem.cuda.h"
#include "kernels/cuda/planned.h"
#include "kernels/pointwise/pointwise.cuda.h"

namespace warpstep::cuda {

dnn::Tensor tensor_of(std::int64_t uid, DType dtype, const Shape& shape) {
  return dnn::nhwc(uid, dtype, shape[0], shape[1], shape[2], shape[3]);
}

dnn::Convolution convolution_of(const Conv& op, dnn::Convolution::Direction direction) {
  return {.direction = direction,
          .x = ConvShape::x_uid,
          .w = ConvShape::w_uid,
          .y = ConvShape::y_uid,
          .padding = op.padding,
          .stride = op.stride,
          .dilation = op.dilation};
}

dnn::Graph forward_graph(std::string name, const Conv& op, const ConvShape& shape, bool fused) {
  dnn::Convolution conv = convolution_of(op, dnn::Convolution::Direction::forward);
  const dnn::Tensor y = tensor_of(ConvShape::y_uid, shape.dtype, shape.y);
  dnn::Graph graph{.name = std::move(name),
                   .tensors = {tensor_of(ConvShape::x_uid, shape.dtype, shape.x),
                               tensor_of(ConvShape::w_uid, shape.dtype, shape.w), y},
                   .operations = {}};
  const bool bias = fused && op.bias, relu = fused && op.relu;
  std::int64_t next = ConvShape::bias_uid + 1;
  // The last operation writes y; the results before it are virtual and never reach memory.
  const auto intermediate = [&] {
    graph.tensors.push_back(dnn::virtual_like(y, next));
    return next++;
  };
  conv.y = bias || relu ? intermediate() : ConvShape::y_uid;
  graph.operations.push_back(conv);
  std::int64_t last = conv.y;
  if (bias) {
    graph.tensors.push_back(dnn::nhwc(ConvShape::bias_uid, shape.dtype, 1, 1, 1, shape.y[3]));
    const std::int64_t sum = relu ? intermediate() : ConvShape::y_uid;
    graph.operations.push_back(
        dnn::Pointwise{dnn::Pointwise::Mode::add, last, ConvShape::bias_uid, sum});
    last = sum;
  }
  if (relu)
    graph.operations.push_back(
        dnn::Pointwise{dnn::Pointwise::Mode::relu, last, 0, ConvShape::y_uid});
  return graph;
}

dnn::Graph gradient_graph(std::string name, const Conv& op, const ConvShape& shape,
                          dnn::Convolution::Direction direction) {
  return {.name = std::move(name),
          .tensors = {tensor_of(ConvShape::x_uid, shape.dtype, shape.x),
                      tensor_of(ConvShape::w_uid, shape.dtype, shape.w),
                      tensor_of(ConvShape::y_uid, shape.dtype, shape.y)},
          .operations = {convolution_of(op, direction)}};
}

namespace {

using Direction = dnn::Convolution::Direction;

std::shared_ptr<dnn::Plan> plan(const Operands& operands, const dnn::Graph& graph) {
  return require_plan(operands, graph, "another --precision may have one");
}

// Whether kernels of our own can compute in this type on this device.
bool has_products(DType dtype, const Settings& settings) {
  constexpr int with_tensor_cores = 80;  // that kernels/cuda/tensor_cores.cuh uses
  const bool is_16_bits = dtype == DType::f16 || dtype == DType::bf16;
  return is_16_bits && settings.kernel_capability >= with_tensor_cores;
}

// Channels of 16 bits are stored in whole vectors of 16 bytes.
std::int64_t stored_channels(std::int64_t channels) {
  constexpr std::int64_t vector = 8;
  return (channels + vector - 1) / vector * vector;
}
Shape as_stored(const Shape& x) {
  return {x[0], x[1], x[2], stored_channels(x[3])};
}

// The convolution for them, if it has their form. x and the outputs are as stored.
std::optional<NarrowConv> narrow(const Conv& op, DType dtype, const Shape& x, std::int64_t out,
                                 const Settings& settings) {
  if (!has_products(dtype, settings)) return {};
  if (op.kernel != 3 || op.stride != 1 || op.padding != 1 || op.dilation != 1 || op.groups != 1)
    return {};
  return NarrowConv{.images = x[0],
                    .height = x[1],
                    .width = x[2],
                    .in = x[3],
                    .out = out,
                    .pooled = op.pool.has_value(),
                    .pool_relu = op.pool && op.pool->relu};
}

std::optional<NarrowConv> narrow(const Conv& op, const ConvShape& shape, const Operands& operands) {
  return narrow(op, shape.dtype, shape.x, shape.y[3], operands.context.settings);
}

// The limits of our own kernels, besides few_products (narrow.cuda.h).
constexpr std::int64_t few_grad_products = 32 * 64;  // channels read times channels written
constexpr double little_work = 2.5e9;                // FLOPs

// That of images of shape x with its pool. Where there are both more channels and more work,
// cuDNN's kernels are so much faster that they outweigh the pool's passes.
std::optional<NarrowConv> pooled(const Conv& op, DType dtype, const Shape& x,
                                 const Settings& settings) {
  if (op.relu || op.pool->window != 2 || op.pool->stride != 2 || op.pool->padding != 0) return {};
  if (op.out != stored_channels(op.out)) return {};
  const std::optional<NarrowConv> conv = narrow(op, dtype, as_stored(x), op.out, settings);
  if (!conv || !has_narrow_product(*conv) || !has_narrow_weight_grad(*conv)) return {};
  if (conv->in * conv->out > few_products && conv->flops() > little_work) return {};
  if (narrow_weight_grad_workspace(*conv, settings.multiprocessors) > settings.workspace_cap)
    return {};
  return conv;
}

NarrowConv require_pooled(const Conv& op, const Shape& x, const Operands& operands) {
  const auto conv = pooled(op, operands.dtype_in(0), x, operands.context.settings);
  if (!conv)
    fail<Error>(
        "cuda: {} was fused with its pool ({}), but the CUDA backend has no kernel for this shape "
        "and dtype; disable it with --no-fuse {}",
        operands.node.title(), text(operands.node.op), fusion::conv_pool);
  return *conv;
}

// On an H200 the forward kernel takes 0.75 of cuDNN's time from 8 to 32 channels and 1.25 of it
// from 32 to 64, that of the data gradient 0.4 and 1.7: those it has are faster.
std::optional<NarrowConv> narrow_product(const Conv& op, const Shape& x, const ConvShape& shape,
                                         const Operands& operands) {
  if (op.pool) return require_pooled(op, x, operands);
  const std::optional<NarrowConv> conv = narrow(op, shape, operands);
  return conv && has_narrow_product(*conv) ? conv : std::nullopt;
}

// On an H200 it takes 0.2 of cuDNN's time from 8 to 8 channels, 0.4 from 8 to 32 and 0.6 from 32 to
// 64, of up to 1.2 GFLOP, and 1.0 from 64 to 128. Of more work cuDNN has whole tiles for every
// multiprocessor.
std::optional<NarrowConv> narrow_weight_grad(const Conv& op, const ConvShape& shape,
                                             const Operands& operands) {
  if (op.pool) return require_pooled(op, operands.in_shape(0), operands);
  const std::optional<NarrowConv> conv = narrow(op, shape, operands);
  if (!conv || !has_narrow_weight_grad(*conv)) return {};
  const std::int64_t channels = conv->in * conv->out;
  if (channels > few_grad_products) return {};
  if (channels > few_products && conv->flops() > little_work) return {};
  const Settings& settings = operands.context.settings;
  if (narrow_weight_grad_workspace(*conv, settings.multiprocessors) > settings.workspace_cap)
    return {};
  return conv;
}

// The stem of a residual network from up to 4 channels of input 0: 0.25 and 0.26 ms of an H200 at
// 256x224x224, where cuDNN takes 1.1 and 0.8.
std::optional<StemConv> stem(const Conv& op, const ConvShape& shape, const Operands& operands) {
  constexpr std::int64_t most_channels = 4, stored_channels = 8;
  if (!has_products(shape.dtype, operands.context.settings)) return {};
  if (op.kernel != 7 || op.stride != 2 || op.padding != 3 || op.dilation != 1 || op.groups != 1)
    return {};
  if (operands.in_shape(0)[3] > most_channels || shape.x[3] != stored_channels) return {};
  const StemConv conv{shape.x[0], shape.x[1], shape.x[2], shape.y[3]};
  return has_stem(conv) ? std::optional(conv) : std::nullopt;
}

std::optional<StemConv> stem_weight_grad(const Conv& op, const ConvShape& shape,
                                         const Operands& operands) {
  const std::optional<StemConv> conv = stem(op, shape, operands);
  const Settings& settings = operands.context.settings;
  if (conv && stem_weight_grad_workspace(*conv, settings.multiprocessors) > settings.workspace_cap)
    return {};
  return conv;
}

// Our kernel if there is one, unless cuDNN's was measured to be faster; it has none with a pool.
template <class Library>
std::unique_ptr<Kernel> own_or_cudnn(const Conv& op, const Operands& operands,
                                     std::unique_ptr<Kernel> own, const Library& cudnn) {
  if (!own) return cudnn();
  if (op.pool) return own;
  return operands.context.own_kernels->or_faster(std::move(own), operands, cudnn);
}

constexpr const char* stem_name = "stem 7x7 (tensor cores)";

std::string narrow_name(const NarrowConv& conv) {
  return fmt::format("narrow {} to {}{} (tensor cores)", conv.in, conv.out,
                     conv.pooled ? ", pool" : "");
}

// The gradient of the weights, without that of the bias.
std::unique_ptr<Kernel> stem_weight_kernel(const StemConv& conv, DType dtype,
                                           const Operands& operands) {
  const int multiprocessors = operands.context.settings.multiprocessors;
  return launch_kernel(
      stem_name,
      [=](const Buffers& b, CudaStream& s) {
        stem_weight_grad(conv, b.in[0], b.in[1], b.out[0], b.workspace, multiprocessors, dtype,
                         s.handle());
      },
      stem_weight_grad_workspace(conv, multiprocessors));
}

std::unique_ptr<Kernel> cudnn_weight_kernel(const Conv& op, const ConvShape& shape,
                                            const Operands& operands) {
  return planned_kernel(
      plan(operands, gradient_graph(operands.node.title(), op, shape, Direction::weight_grad)),
      {ConvShape::x_uid, ConvShape::y_uid}, {ConvShape::w_uid});
}

// A kernel of our own; null if there is none.
std::unique_ptr<Kernel> own_forward(const Conv& op, const ConvShape& shape,
                                    const Operands& operands) {
  const int multiprocessors = operands.context.settings.multiprocessors;
  if (const auto conv = narrow_product(op, operands.in_shape(0), shape, operands))
    return launch_kernel(
        narrow_name(*conv),
        [conv = *conv, op, multiprocessors, dtype = shape.dtype](const Buffers& b, CudaStream& s) {
          narrow_forward(conv,
                         {.x = b.in[0],
                          .w = b.in[1],
                          .bias = op.bias ? b.in[2] : nullptr,
                          .y = b.out[0],
                          .y_index = op.pool ? as<std::uint8_t>(b.out[1]) : nullptr},
                         op.relu, multiprocessors, dtype, s.handle());
        });
  if (const auto conv = stem(op, shape, operands))
    return launch_kernel(stem_name, [conv = *conv, op, multiprocessors, dtype = shape.dtype](
                                        const Buffers& b, CudaStream& s) {
      stem_forward(conv, b.in[0], b.in[1], op.bias ? b.in[2] : nullptr, op.relu, b.out[0],
                   multiprocessors, dtype, s.handle());
    });
  return nullptr;
}

// Bias and relu are part of cuDNN's graph if it has an engine for the whole graph; else they are a
// pass of our own over y, which listings show.
std::unique_ptr<Kernel> cudnn_forward(const Conv& op, const ConvShape& shape,
                                      const Operands& operands) {
  const std::string title = operands.node.title();
  Uids in{ConvShape::x_uid, ConvShape::w_uid};
  dnn::Planned fused = operands.context.dnn->plan(forward_graph(title, op, shape, true));
  if (fused.plan) {
    if (op.bias) in.push_back(ConvShape::bias_uid);
    return planned_kernel(std::move(fused.plan), std::move(in), {ConvShape::y_uid});
  }
  std::unique_ptr<Kernel> conv = planned_kernel(
      plan(operands, forward_graph(title, op, shape, false)), std::move(in), {ConvShape::y_uid});
  if (!op.bias && !op.relu) return conv;
  const std::string name = conv->implementation() + " + bias_relu";
  const std::size_t workspace = conv->workspace_bytes();
  return launch_kernel(
      name,
      [conv = std::move(conv), op, rows = rows_of(shape.y), channels = shape.y.back(),
       dtype = shape.dtype](const Buffers& b, CudaStream& s) {
        conv->enqueue(s, b);
        const auto add = are_whole_vectors(channels, dtype) ? bias_relu : bias_relu_unaligned;
        add(b.out[0], op.bias ? b.in[2] : nullptr, op.relu, rows, channels, dtype, s.handle());
      },
      workspace);
}

}  // namespace

std::unique_ptr<Kernel> bind(const Conv& op, const Operands& operands) {
  const ConvShape shape{.dtype = operands.dtype_in(0),
                        .x = operands.stored_in(0),
                        .w = operands.stored_in(1),
                        .y = operands.stored_out()};
  return own_or_cudnn(op, operands, own_forward(op, shape, operands),
                      [&] { return cudnn_forward(op, shape, operands); });
}

namespace {

std::unique_ptr<Kernel> narrow_data_kernel(const NarrowConv& conv, bool relu,
                                           const Operands& operands) {
  const int multiprocessors = operands.context.settings.multiprocessors;
  return launch_kernel(
      narrow_name(conv),
      [conv, relu, multiprocessors, dtype = operands.dtype_in(0)](const Buffers& b, CudaStream& s) {
        narrow_data_grad(conv,
                         {.w = b.in[1],
                          .d_y_index = conv.pooled ? as<std::uint8_t>(b.in[2]) : nullptr,
                          .d_y = b.in[0],
                          .mask = relu ? b.in.back() : nullptr,
                          .d_x = b.out[0]},
                         multiprocessors, dtype, s.handle());
      });
}

std::unique_ptr<Kernel> cudnn_data_grad(const ConvDataGrad& op, const ConvShape& shape,
                                        const Operands& operands) {
  return planned_kernel(
      plan(operands, gradient_graph(operands.node.title(), op.conv, shape, Direction::data_grad)),
      {ConvShape::y_uid, ConvShape::w_uid}, {ConvShape::x_uid});
}

}  // namespace

std::unique_ptr<Kernel> bind(const ConvDataGrad& op, const Operands& operands) {
  const ConvShape shape{.dtype = operands.dtype_in(0),
                        .x = operands.stored_out(),
                        .w = operands.stored_in(1),
                        .y = operands.stored_in(0)};
  const auto conv = narrow_product(op.conv, op.input, shape, operands);
  if (op.relu && !conv)
    fail<Error>(
        "cuda: {} was fused with the relu before it ({}), but the CUDA backend has no kernel for "
        "this shape and dtype; disable it with --no-fuse {}",
        operands.node.title(), text(op), fusion::conv_dgrad_relu);
  auto own = conv ? narrow_data_kernel(*conv, op.relu, operands) : nullptr;
  if (op.relu) return own;
  return own_or_cudnn(op.conv, operands, std::move(own),
                      [&] { return cudnn_data_grad(op, shape, operands); });
}

namespace {

std::unique_ptr<Kernel> narrow_weight_kernel(const NarrowConv& conv, bool bias,
                                             const Operands& operands) {
  const int multiprocessors = operands.context.settings.multiprocessors;
  return launch_kernel(
      narrow_name(conv),
      [conv, bias, multiprocessors, dtype = operands.dtype_in(0)](const Buffers& b, CudaStream& s) {
        narrow_weight_grad(conv,
                           {.x = b.in[0],
                            .d_y_index = conv.pooled ? as<std::uint8_t>(b.in[2]) : nullptr,
                            .d_y = b.in[1],
                            .d_w = b.out[0],
                            .d_bias = bias ? b.out[1] : nullptr},
                           b.workspace, multiprocessors, dtype, s.handle());
      },
      narrow_weight_grad_workspace(conv, multiprocessors));
}

// d_weight is written in the dtype of the inputs; d_bias is a pass of our own over d_z.
std::unique_ptr<Kernel> with_bias_grad(std::unique_ptr<Kernel> weight_grad,
                                       const ConvWeightGrad& op, const ConvShape& shape,
                                       const Operands& operands) {
  const std::int64_t rows = rows_of(shape.y), channels = shape.y.back();
  const std::size_t sums = op.conv.bias ? column_sums_workspace(rows, channels) : 0;
  const std::string name = weight_grad->implementation() + (op.conv.bias ? " + column_sums" : "");
  const std::size_t workspace = std::max(weight_grad->workspace_bytes(), sums);
  return launch_kernel(
      name,
      [weight_grad = std::move(weight_grad), rows, channels, bias = op.conv.bias,
       dtype = shape.dtype, tickets = Ticket(operands.context, column_sums_tickets(channels))](
          const Buffers& b, CudaStream& s) {
        weight_grad->enqueue(s, b);
        if (!bias) return;
        if (are_whole_vectors(channels, dtype))
          column_sums(b.in[1], b.out[1], rows, channels, dtype, b.workspace, tickets.word(),
                      s.handle());
        else
          column_sums_unaligned(b.in[1], channels, b.out[1], rows, channels, dtype, s.handle());
      },
      workspace);
}

std::unique_ptr<Kernel> own_weight_grad(const ConvWeightGrad& op, const ConvShape& shape,
                                        const Operands& operands) {
  if (const auto conv = narrow_weight_grad(op.conv, shape, operands))
    return narrow_weight_kernel(*conv, op.conv.bias, operands);
  if (const auto conv = stem_weight_grad(op.conv, shape, operands))
    return with_bias_grad(stem_weight_kernel(*conv, shape.dtype, operands), op, shape, operands);
  return nullptr;
}

}  // namespace

std::unique_ptr<Kernel> bind(const ConvWeightGrad& op, const Operands& operands) {
  const ConvShape shape{.dtype = operands.dtype_in(0),
                        .x = operands.stored_in(0),
                        .w = operands.stored_out(),
                        .y = operands.stored_in(1)};
  return own_or_cudnn(op.conv, operands, own_weight_grad(op, shape, operands), [&] {
    return with_bias_grad(cudnn_weight_kernel(op.conv, shape, operands), op, shape, operands);
  });
}

bool computes_pooled(const Conv& op, const Types& in, const Context& context) {
  return pooled(op, in[0].dtype, in[0].shape, context.settings).has_value();
}

bool computes_masked(const ConvDataGrad& op, const Types& in, const Context& context) {
  if (op.conv.pool) return pooled(op.conv, in[0].dtype, op.input, context.settings).has_value();
  const auto conv = narrow(op.conv, in[0].dtype, as_stored(op.input), stored_channels(op.conv.out),
                           context.settings);
  return conv && has_narrow_product(*conv);
}

}  // namespace warpstep::cuda
