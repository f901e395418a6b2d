// The CUDA backend: convolutions through cuDNN's graphs, matrix products through cublasLt, our own
// kernels for the rest.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/cuda/dnn.h"
#include "kernels/cuda/launch_kernel.h"
#include "kernels/cuda/matmul.h"
#include "kernels/kernel.h"

namespace warpstep::cuda {

struct Context {
  Settings settings;
  std::unique_ptr<dnn::Library> dnn;
  std::unique_ptr<MatmulLibrary> matmul;

  // Zero-filled memory of the device, or of the host for an assumed device.
  std::shared_ptr<std::byte> allocate(std::size_t bytes) const;
};

// Chooses the stored shape of every value and inserts uploads and reorders; see layouts.cpp.
void choose_layouts(Graph& graph);

// The stored shape of a value: its logical shape with some axes rounded up to 16 bytes of elements.
// The padding is zero, and every kernel keeps it zero.
const Shape& stored_shape(const Value& value);

struct Operands : warpstep::Operands {
  Context& context;

  const Shape& stored_in(int i) const { return stored_shape(in(i)); }
  const Shape& stored_out(int i = 0) const { return stored_shape(out(i)); }
  DType dtype_in(int i) const { return in(i).type.dtype; }
  DType dtype_out(int i = 0) const { return out(i).type.dtype; }
};

inline std::int64_t rows_of(const Shape& shape) {
  return shape.count() / std::max<std::int64_t>(1, shape.back());
}

// The tickets of a kernel's last_block() (kernels/cuda/reduce.cuh): one or more words of device
// memory that are 0 whenever no kernel runs.
class Ticket {
 public:
  explicit Ticket(const Context& context, std::size_t words = 1)
      : word_(context.allocate(words * sizeof(std::uint32_t))) {}
  std::uint32_t* word() const { return reinterpret_cast<std::uint32_t*>(word_.get()); }

 private:
  std::shared_ptr<std::byte> word_;
};

// Whether the library has an engine for an op of engine/graph/ops/norm_conv.h.
bool computes(const AnyOp& op, const Types& in, const Context& context);

// One overload an op, defined in kernels/*/*.cuda.cpp. An op without one does not compile, and the
// message names it.
std::unique_ptr<Kernel> bind(const Normalize&, const Operands&);
std::unique_ptr<Kernel> bind(const Augment&, const Operands&);
std::unique_ptr<Kernel> bind(const Conv&, const Operands&);
std::unique_ptr<Kernel> bind(const ConvDataGrad&, const Operands&);
std::unique_ptr<Kernel> bind(const ConvWeightGrad&, const Operands&);
std::unique_ptr<Kernel> bind(const Relu&, const Operands&);
std::unique_ptr<Kernel> bind(const ReluGrad&, const Operands&);
std::unique_ptr<Kernel> bind(const Add&, const Operands&);
std::unique_ptr<Kernel> bind(const Reorder&, const Operands&);
std::unique_ptr<Kernel> bind(const Upload&, const Operands&);
std::unique_ptr<Kernel> bind(const MaxPool&, const Operands&);
std::unique_ptr<Kernel> bind(const MaxPoolGrad&, const Operands&);
std::unique_ptr<Kernel> bind(const AvgPool&, const Operands&);
std::unique_ptr<Kernel> bind(const AvgPoolGrad&, const Operands&);
std::unique_ptr<Kernel> bind(const BatchNorm&, const Operands&);
std::unique_ptr<Kernel> bind(const BatchNormGrad&, const Operands&);
std::unique_ptr<Kernel> bind(const NormConv&, const Operands&);
std::unique_ptr<Kernel> bind(const NormFinalize&, const Operands&);
std::unique_ptr<Kernel> bind(const NormApply&, const Operands&);
std::unique_ptr<Kernel> bind(const NormConvDataGrad&, const Operands&);
std::unique_ptr<Kernel> bind(const NormGradApply&, const Operands&);
std::unique_ptr<Kernel> bind(const NormConvWeightGrad&, const Operands&);
std::unique_ptr<Kernel> bind(const Dropout&, const Operands&);
std::unique_ptr<Kernel> bind(const Linear&, const Operands&);
std::unique_ptr<Kernel> bind(const LinearDataGrad&, const Operands&);
std::unique_ptr<Kernel> bind(const LinearWeightGrad&, const Operands&);
std::unique_ptr<Kernel> bind(const LogSoftmax&, const Operands&);
std::unique_ptr<Kernel> bind(const LogSoftmaxGrad&, const Operands&);
std::unique_ptr<Kernel> bind(const Nll&, const Operands&);
std::unique_ptr<Kernel> bind(const NllGrad&, const Operands&);
std::unique_ptr<Kernel> bind(const Top1&, const Operands&);
std::unique_ptr<Kernel> bind(const SoftmaxXent&, const Operands&);
std::unique_ptr<Kernel> bind(const LossGrad&, const Operands&);
std::unique_ptr<Kernel> bind(const Clock&, const Operands&);
std::unique_ptr<Kernel> bind(const Update&, const Operands&);
std::unique_ptr<Kernel> bind(const UpdateAll&, const Operands&);
std::unique_ptr<Kernel> bind(const CheckGradients&, const Operands&);
std::unique_ptr<Kernel> bind(const Accumulate&, const Operands&);
std::unique_ptr<Kernel> bind(const LarsScale&, const Operands&);
std::unique_ptr<Kernel> bind(const Average&, const Operands&);
std::unique_ptr<Kernel> bind(const Report&, const Operands&);
std::unique_ptr<Kernel> bind(const Custom&, const Operands&);

}  // namespace warpstep::cuda
