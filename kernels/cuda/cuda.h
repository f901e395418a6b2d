// The CUDA backend: convolutions through cuDNN's graphs, matrix products through cublasLt, our own
// kernels for the rest.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/cuda/dnn.h"
#include "kernels/cuda/launch_kernel.h"
#include "kernels/cuda/matmul.h"
#include "kernels/cuda/nccl.h"
#include "kernels/cuda/own_kernels.h"
#include "kernels/kernel.h"

namespace warpstep::cuda {

struct Context {
  Settings settings;
  std::unique_ptr<dnn::Library> dnn;
  std::unique_ptr<MatmulLibrary> matmul;
  std::unique_ptr<OwnKernels> own_kernels;
  std::shared_ptr<Nccl> nccl;  // null outside of a data-parallel job

  // Zero-filled memory of the device for a kernel, or of the host where kernels cannot run: for an
  // assumed device, or while the backend only plans.
  std::shared_ptr<std::byte> allocate(std::size_t bytes) const;
  void only_plan(bool on);  // Backend::only_plan()

 private:
  int only_plans_ = 0;
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
// Whether there are kernels for a convolution with a pool, and for its gradients.
bool computes_pooled(const Conv& op, const Types& in, const Context& context);
// Whether there are kernels for a norm with this pool after it, and for its gradient.
bool computes_normed(const MaxPool& pool);
// Whether there is one for a convolution's data gradient with the relu before it.
bool computes_masked(const ConvDataGrad& op, const Types& in, const Context& context);

// bind() of every op, defined in kernels/*/*.cuda.cpp.
WARPSTEP_EACH_OP(WARPSTEP_DECLARE_BIND)

}  // namespace warpstep::cuda
