// Linear layers and their adjoints as cublasLt's products; bias, relu, GELU and sums are fused
// where it has an algorithm, else passes of our own. Bound by arithmetic, or by the weights for
// small batches. With few outputs, kernels of our own.
#include <optional>

#include "engine/core/error.h"
#include "kernels/cuda/cuda.h"
#include "kernels/gelu/gelu.cuda.h"
#include "kernels/linear/few.cuda.h"
#include "kernels/pointwise/pointwise.cuda.h"

namespace warpstep::cuda {
namespace {

using Epilogue = Matmul::Epilogue;

std::shared_ptr<MatmulPlan> plan(const Operands& operands, const Matmul& matmul) {
  return operands.context.matmul->plan(matmul, operands.node.title());
}

// Null if cublasLt has no algorithm for it.
std::shared_ptr<MatmulPlan> plan_if_possible(const Operands& operands, const Matmul& matmul) {
  try {
    return plan(operands, matmul);
  } catch (const DeviceLost&) {
    throw;
  } catch (const DeviceError&) {
    return nullptr;
  }
}

// The layer of y [N,out] = x [N,K] weight^T for kernels of our own, if its outputs are few.
std::optional<FewOutputs> few_outputs(const Value& x, const Value& weight, const Value& y) {
  const FewOutputs layer{.rows = x.type.shape[0],
                         .inputs = stored_shape(x)[1],
                         .outputs = weight.type.shape[0],
                         .pitch = stored_shape(y)[1]};
  const bool is_padded = stored_shape(weight) == Shape{layer.pitch, layer.inputs};
  return is_padded && has_few_outputs(layer) ? std::optional(layer) : std::nullopt;
}

// That of a data gradient, whose operands are d_y and weight; it does not apply a GELU's slope.
std::optional<FewOutputs> few_outputs(const LinearDataGrad& op, const Graph& graph,
                                      const Node& node) {
  if (op.gelu) return {};
  const Value& d_y = graph.value(node.in[0]);
  return few_outputs(graph.value(node.out[0]), graph.value(node.in[1]), d_y);
}

constexpr const char* few_outputs_name = "few outputs";

// y [N,out] = x [N,K] weight^T: both operands are read along K, the best order for tensor cores.
Matmul product_of(const Linear& op, const Graph& graph, const Node& node) {
  const Shape &x = stored_shape(graph.value(node.in[0])),
              &w = stored_shape(graph.value(node.in[1]));
  return {.dtype = graph.value(node.in[0]).type.dtype,
          .rows = x[0],
          .columns = w[0],
          .depth = x[1],
          .transpose_b = true,
          .pitch_a = x[1],
          .pitch_b = w[1],
          .pitch_d = w[0],
          .epilogue = !op.bias  ? Epilogue::none
                      : op.relu ? Epilogue::relu_bias
                                : Epilogue::bias};
}

// Whether the gradient after a layer with a mask reads its output instead, as our kernels do.
bool is_mask_unread(const Graph& graph, const Node& layer) {
  for (const Node& node : graph.nodes)
    if (const auto* op = std::get_if<LinearDataGrad>(&node.op))
      if (op->relu && node.in[2] == layer.out[1]) return few_outputs(*op, graph, node).has_value();
  return false;
}

// The plan of a layer's product that also writes the relu's mask; null if cublasLt has none. Only
// cublasLt knows the order of the mask's bits, so our kernels can neither write nor read it.
// Without such a plan the mask is not written, and the gradient, which makes the same query for its
// layer, uses the layer's output instead.
std::shared_ptr<MatmulPlan> plan_with_mask(const Operands& operands, const Node& layer) {
  if (is_mask_unread(operands.graph, layer)) return nullptr;
  Matmul matmul = product_of(std::get<Linear>(layer.op), operands.graph, layer);
  matmul.epilogue = Epilogue::relu_bias_aux;
  matmul.aux_pitch = 8 * operands.graph.value(layer.out[1]).type.shape[1];
  return plan_if_possible(operands, matmul);
}

// The product with a GELU applied as it is written; null if cublasLt has none. Its aux has rows of
// whole 8 elements.
std::shared_ptr<MatmulPlan> plan_with_gelu(const Operands& operands, Matmul matmul,
                                           Epilogue epilogue) {
  if (matmul.columns % 8 != 0) return nullptr;
  matmul.epilogue = epilogue;
  if (epilogue != Epilogue::gelu_bias) matmul.aux_pitch = matmul.columns;
  return plan_if_possible(operands, matmul);
}

// Without such a plan the product is written where the unit reads it.
std::unique_ptr<Kernel> bind_with_gelu(const Linear& op, const Matmul& matmul,
                                       const Operands& operands) {
  const bool keep = op.keep;
  if (const auto planned =
          plan_with_gelu(operands, matmul, keep ? Epilogue::gelu_bias_aux : Epilogue::gelu_bias))
    return launch_kernel(
        planned->implementation(),
        [planned, keep](const Buffers& b, CudaStream& s) {
          planned->execute(s,
                           {.a = b.in[0],
                            .b = b.in[1],
                            .d = b.out[0],
                            .bias = b.in[2],
                            .aux = keep ? b.out[1] : nullptr},
                           b.workspace);
        },
        planned->workspace_bytes());
  const auto planned = plan(operands, matmul);
  return launch_kernel(
      planned->implementation() + " + gelu",
      [planned, keep, count = matmul.rows * matmul.columns, dtype = matmul.dtype](const Buffers& b,
                                                                                  CudaStream& s) {
        void* z = keep ? b.out[1] : b.out[0];
        planned->execute(s, {.a = b.in[0], .b = b.in[1], .d = z, .bias = b.in[2]}, b.workspace);
        gelu(true, z, b.out[0], count, dtype, s.handle());
      },
      planned->workspace_bytes());
}

std::unique_ptr<Kernel> cublaslt_forward(const Linear& op, const Matmul& matmul,
                                         const Operands& operands) {
  auto planned = op.mask ? plan_with_mask(operands, operands.node) : nullptr;
  const bool masked = planned != nullptr, relu_alone = op.relu && !op.bias;
  if (!planned) planned = plan(operands, matmul);
  return launch_kernel(
      planned->implementation() + (relu_alone ? " + relu" : ""),
      [planned, masked, relu_alone, bias = op.bias, count = matmul.rows * matmul.columns,
       dtype = matmul.dtype](const Buffers& b, CudaStream& s) {
        planned->execute(s,
                         {.a = b.in[0],
                          .b = b.in[1],
                          .d = b.out[0],
                          .bias = bias ? b.in[2] : nullptr,
                          .aux = masked ? b.out[1] : nullptr},
                         b.workspace);
        if (relu_alone) relu(b.out[0], b.out[0], count, dtype, s.handle());
      },
      planned->workspace_bytes());
}

}  // namespace

std::unique_ptr<Kernel> bind(const Linear& op, const Operands& operands) {
  const Matmul matmul = product_of(op, operands.graph, operands.node);
  if (op.gelu) return bind_with_gelu(op, matmul, operands);
  const auto few = few_outputs(operands.in(0), operands.in(1), operands.out(0));
  // Only cublasLt can write a mask.
  if (!few || op.mask) return cublaslt_forward(op, matmul, operands);
  auto own = launch_kernel(few_outputs_name,
                           [few = *few, op, dtype = matmul.dtype](const Buffers& b, CudaStream& s) {
                             few_forward(few, b.in[0], b.in[1], op.bias ? b.in[2] : nullptr,
                                         op.relu, b.out[0], dtype, s.handle());
                           });
  return operands.context.own_kernels->or_faster(
      std::move(own), operands, [&] { return cublaslt_forward(op, matmul, operands); });
}

namespace {

// The product, masked and summed by cublasLt if it has an algorithm for that, else by our kernel.
std::unique_ptr<Kernel> bind_with_relu(const Matmul& matmul, const Operands& operands) {
  const int mask = operands.node.in[2];
  const int layer = operands.graph.producers()[idx(mask)];
  Matmul fused = matmul;
  fused.epilogue = Epilogue::drelu_bias_gradient;
  fused.aux_pitch = 8 * operands.graph.value(mask).type.shape[1];
  std::shared_ptr<MatmulPlan> planned;
  if (plan_with_mask(operands, operands.graph.nodes[idx(layer)]))
    planned = plan_if_possible(operands, fused);
  if (planned)
    return launch_kernel(
        planned->implementation(),
        [planned](const Buffers& b, CudaStream& s) {
          planned->execute(
              s, {.a = b.in[0], .b = b.in[1], .d = b.out[0], .bias = b.out[1], .aux = b.in[2]},
              b.workspace);
        },
        planned->workspace_bytes());
  planned = plan(operands, matmul);
  return launch_kernel(
      planned->implementation() + " + relu_grad_sums",
      [planned, matmul, tickets = Ticket(operands.context, column_sums_tickets(matmul.columns))](
          const Buffers& b, CudaStream& s) {
        planned->execute(s, {.a = b.in[0], .b = b.in[1], .d = b.out[0]}, b.workspace);
        relu_grad_sums(b.out[0], b.in[3], b.out[0], b.out[1], matmul.rows, matmul.columns,
                       matmul.dtype, b.workspace, tickets.word(), s.handle());
      },
      std::max(planned->workspace_bytes(), column_sums_workspace(matmul.rows, matmul.columns)));
}

// Likewise with the slope of a GELU.
std::unique_ptr<Kernel> bind_with_gelu(const Matmul& matmul, const Operands& operands) {
  if (const auto planned = plan_with_gelu(operands, matmul, Epilogue::dgelu_bias_gradient))
    return launch_kernel(
        planned->implementation(),
        [planned](const Buffers& b, CudaStream& s) {
          planned->execute(
              s, {.a = b.in[0], .b = b.in[1], .d = b.out[0], .bias = b.out[1], .aux = b.in[2]},
              b.workspace);
        },
        planned->workspace_bytes());
  const auto planned = plan(operands, matmul);
  return launch_kernel(
      planned->implementation() + " + gelu_grad_sums",
      [planned, matmul, tickets = Ticket(operands.context, column_sums_tickets(matmul.columns))](
          const Buffers& b, CudaStream& s) {
        planned->execute(s, {.a = b.in[0], .b = b.in[1], .d = b.out[0]}, b.workspace);
        gelu_grad_sums(true, b.out[0], b.in[2], b.out[0], b.out[1], matmul.rows, matmul.columns,
                       matmul.dtype, b.workspace, tickets.word(), s.handle());
      },
      std::max(planned->workspace_bytes(), column_sums_workspace(matmul.rows, matmul.columns)));
}

// d_x [N,K] = d_z [N,out] weight [out,K].
std::unique_ptr<Kernel> cublaslt_data_grad(const LinearDataGrad& op, const Operands& operands) {
  const Shape &d_z = operands.stored_in(0), &w = operands.stored_in(1);
  const Matmul matmul{.dtype = operands.dtype_in(0),
                      .rows = d_z[0],
                      .columns = w[1],
                      .depth = w[0],
                      .pitch_a = d_z[1],
                      .pitch_b = w[1],
                      .pitch_d = w[1]};
  if (op.relu) return bind_with_relu(matmul, operands);
  if (op.gelu) return bind_with_gelu(matmul, operands);
  const auto planned = plan(operands, matmul);
  return launch_kernel(
      planned->implementation(),
      [planned](const Buffers& b, CudaStream& s) {
        planned->execute(s, {.a = b.in[0], .b = b.in[1], .d = b.out[0]}, b.workspace);
      },
      planned->workspace_bytes());
}

}  // namespace

std::unique_ptr<Kernel> bind(const LinearDataGrad& op, const Operands& operands) {
  const auto few = few_outputs(op, operands.graph, operands.node);
  if (!few) return cublaslt_data_grad(op, operands);
  auto own = launch_kernel(
      few_outputs_name,
      [few = *few, relu = op.relu, dtype = operands.dtype_in(0)](const Buffers& b, CudaStream& s) {
        few_data_grad(few, b.in[0], b.in[1], relu ? b.in[3] : nullptr, b.out[0],
                      relu ? b.out[1] : nullptr, dtype, s.handle());
      });
  if (op.relu) return own;  // the layer has not written its mask (is_mask_unread())
  return operands.context.own_kernels->or_faster(std::move(own), operands,
                                                 [&] { return cublaslt_data_grad(op, operands); });
}

namespace {

// On Hopper cublasLt appends a kernel of its own to the product, which sums the columns at 2.4 to
// 2.7 TB/s of an H200. It is taken to do so on later devices, too.
bool has_fast_bias_gradients(const Settings& settings) {
  return settings.compute_capability < 90;
}

// d_weight [out,K] = d_z^T [out,N] x [N,K]; d_bias, the sums of d_z's columns, is part of the
// product if cublasLt has an algorithm for both.
std::unique_ptr<Kernel> cublaslt_weight_grad(const LinearWeightGrad& op, const Operands& operands) {
  const Shape &x = operands.stored_in(0), &d_z = operands.stored_in(1);
  Matmul matmul{.dtype = operands.dtype_in(0),
                .rows = d_z[1],
                .columns = x[1],
                .depth = x[0],
                .transpose_a = true,
                .pitch_a = d_z[1],
                .pitch_b = x[1],
                .pitch_d = x[1],
                .epilogue = op.bias ? Epilogue::bias_gradient : Epilogue::none};
  const bool fused = op.bias && has_fast_bias_gradients(operands.context.settings);
  auto planned = fused ? plan_if_possible(operands, matmul) : nullptr;
  if (!planned) {
    matmul.epilogue = Epilogue::none;
    planned = plan(operands, matmul);
  }
  const bool sums = op.bias && matmul.epilogue == Epilogue::none;
  const std::size_t workspace =
      std::max(planned->workspace_bytes(), sums ? column_sums_workspace(d_z[0], d_z[1]) : 0);
  return launch_kernel(
      planned->implementation() + (sums ? " + column_sums" : ""),
      [planned, sums, bias = op.bias, rows = d_z[0], columns = d_z[1], dtype = matmul.dtype,
       tickets = Ticket(operands.context, column_sums_tickets(d_z[1]))](const Buffers& b,
                                                                        CudaStream& s) {
        void* d_bias = bias ? b.out[1] : nullptr;
        planned->execute(
            s, {.a = b.in[1], .b = b.in[0], .d = b.out[0], .bias = sums ? nullptr : d_bias},
            b.workspace);
        if (sums)
          column_sums(b.in[1], d_bias, rows, columns, dtype, b.workspace, tickets.word(),
                      s.handle());
      },
      workspace);
}

}  // namespace

std::unique_ptr<Kernel> bind(const LinearWeightGrad& op, const Operands& operands) {
  const auto few = few_outputs(operands.in(0), operands.out(0), operands.in(1));
  if (!few) return cublaslt_weight_grad(op, operands);
  auto own = launch_kernel(few_outputs_name, [few = *few, bias = op.bias,
                                              dtype = operands.dtype_in(0)](const Buffers& b,
                                                                            CudaStream& s) {
    few_weight_grad(few, b.in[0], b.in[1], b.out[0], bias ? b.out[1] : nullptr, dtype, s.handle());
  });
  return operands.context.own_kernels->or_faster(
      std::move(own), operands, [&] { return cublaslt_weight_grad(op, operands); });
}

}  // namespace warpstep::cuda
