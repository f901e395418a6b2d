// The CUDA backend as the engine sees it: opens the device and the libraries, binds nodes, and
// copies values between the host and the device.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime_api.h>
#include <sys/mman.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <system_error>

#include "engine/core/error.h"
#include "engine/core/version.h"
#include "engine/passes/fuse.h"
#include "kernels/cuda/check.h"
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/ranges.h"
#include "kernels/cuda/readback.h"

namespace warpstep::cuda {
namespace {

// For an assumed device: plans can be printed, but nothing runs.
struct NoStream final : Stream {
  void wait() override {}
};

// Address space alone: pages come with their first use, and a listing uses few, so that a step for
// a large GPU can be listed on a small machine.
std::shared_ptr<std::byte> allocate_without_device(std::size_t bytes) {
  const std::size_t size = std::max<std::size_t>(bytes, 1);
  void* memory = ::mmap(nullptr, size, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) fail<DeviceError>("cuda: cannot allocate {} bytes of memory", bytes);
  return {static_cast<std::byte*>(memory), [size](std::byte* at) { ::munmap(at, size); }};
}

// The host has values as rows of the logical shape, floating-point numbers in f32; the device
// stores them in the value's dtype, padded.

void convert(float number, DType dtype, std::byte* stored) {
  if (dtype == DType::f16) {
    const __half half = __float2half(number);
    std::memcpy(stored, &half, sizeof half);
  } else if (dtype == DType::bf16) {
    const __nv_bfloat16 half = __float2bfloat16(number);
    std::memcpy(stored, &half, sizeof half);
  } else {
    std::memcpy(stored, &number, sizeof number);
  }
}

// Calls visit(plain element, stored element) for every element of the logical shape.
template <class Visit>
void for_each_element(const Shape& logical, const Shape& stored, Visit visit) {
  const int rank = logical.rank();
  std::array<std::int64_t, Shape::max_rank> at{};
  for (std::int64_t plain = 0, count = logical.count(); plain < count; ++plain) {
    std::int64_t element = 0;
    for (int axis = 0; axis < rank; ++axis) element = element * stored[axis] + at[idx(axis)];
    visit(idx(plain), idx(element));
    for (int axis = rank - 1; axis >= 0 && ++at[idx(axis)] == logical[axis]; --axis)
      at[idx(axis)] = 0;
  }
}

// The stored bytes of `plain`: in the value's dtype, zero in the padding.
std::vector<std::byte> packed(const Value& value, std::span<const std::byte> plain) {
  const DType dtype = value.type.dtype;
  const std::size_t bytes = size_bytes(dtype);
  if (!is_float(dtype)) return {plain.begin(), plain.end()};
  std::vector<std::byte> stored(value.layout.bytes);
  for_each_element(value.type.shape, stored_shape(value), [&](std::size_t p, std::size_t s) {
    float number = 0;
    std::memcpy(&number, &plain[p * sizeof number], sizeof number);
    convert(number, dtype, &stored[s * bytes]);
  });
  return stored;
}

// Tensor cores have bf16 and tf32 since Ampere. On earlier devices cublasLt computes tf32 in f32
// without a word, and neither library has all of bf16's operations. Moments in bf16 are widened by
// our own kernels.
void require_precision(const Graph& graph, const Settings& settings) {
  constexpr int ampere = 80;
  if (settings.compute_capability >= ampere) return;
  const bool has_bf16 = std::ranges::any_of(graph.values, [](const Value& value) {
    return value.type.dtype == DType::bf16 && value.role != Role::moment;
  });
  if (!settings.tf32 && !has_bf16) return;
  fail<DeviceError>(
      "cuda: {} (sm_{}) does not compute in {}, which needs sm_{} or later; use --precision fp16 "
      "or fp32",
      settings.device_name, settings.compute_capability, settings.tf32 ? "tf32" : "bf16", ampere);
}

// The current device is per thread and starts as device 0: the feeder's thread, for one, allocates,
// and any thread may run steps.
void use_device(const Settings& settings) {
  check(cudaSetDevice(settings.ordinal), "cudaSetDevice");
}

// Large enough for the bandwidth of a link, small enough that little remains to be exchanged when
// the backward half ends; PyTorch's default.
std::size_t bucket_bytes() {
  constexpr double mib = 1 << 20, by_default = 25, most = 65'536;
  const char* const chosen = std::getenv("WARPSTEP_BUCKET_MIB");
  if (!chosen) return static_cast<std::size_t>(by_default * mib);
  double value = -1;
  const char* const end = chosen + std::strlen(chosen);
  const auto [at, error] = std::from_chars(chosen, end, value);
  if (error != std::errc{} || at != end || !(value >= 0 && value <= most))  // nan is refused, too
    fail<UsageError>(
        "WARPSTEP_BUCKET_MIB is '{}'; it must be from 0 (all gradients at once) to {} (the default "
        "is {})",
        chosen, most, by_default);
  return static_cast<std::size_t>(value * mib);
}

class Cuda final : public Backend {
 public:
  explicit Cuda(const BackendOptions& options) {
    ranges::follow();
    context_.settings = open_device(options);
    if (options.communicator && options.communicator->world().size > 1 && has_device()) {
      if (options.is_trial)
        Nccl::require_library();
      else
        context_.nccl = std::make_shared<Nccl>(options.communicator, context_.settings);
    }
    context_.dnn = dnn::open_library(context_.settings);
    context_.matmul = open_matmul_library(context_.settings);
    context_.own_kernels = std::make_unique<OwnKernels>(
        context_.settings, fmt::format("{} beside {}, {}", commit(), context_.dnn->version(),
                                       context_.matmul->version()));
  }

  std::string_view name() const override { return "cuda"; }
  std::string describe() const override {
    return fmt::format("{}, {}, {}{}", describe_device(context_.settings), context_.dnn->version(),
                       context_.matmul->version(),
                       context_.nccl ? ", " + context_.nccl->version() : "");
  }
  std::string describe_surroundings() const override { return describe_optional_libraries(); }

  void choose_layouts(Graph& graph) const override {
    require_precision(graph, context_.settings);
    cuda::choose_layouts(graph);
  }

  std::unique_ptr<Kernel> bind(const Graph& graph, const Node& node) const override {
    if (has_device()) use_device(context_.settings);  // libraries plan for the current one
    const Operands operands{{graph, node}, context_};
    return bind_node(node, [&](const auto& op) { return cuda::bind(op, operands); });
  }

  void only_plan(bool on) const override { context_.only_plan(on); }

  bool wants(std::string_view fusion) const override {
    if (fusion == fusion::linear_gelu) return has_fast_gelu_epilogues();
    // On compute capability 9 the adjoint's epilogue makes its product five times as slow.
    if (fusion == fusion::linear_dgrad_gelu) return context_.settings.compute_capability / 10 == 10;
    return true;
  }

  bool computes(const AnyOp& op, const Types& in) const override {
    if (has_device()) use_device(context_.settings);  // as in bind()
    if (const auto* conv = std::get_if<Conv>(&op))
      return conv->pool && computes_pooled(*conv, in, context_);
    if (const auto* dgrad = std::get_if<ConvDataGrad>(&op))
      return dgrad->relu && computes_masked(*dgrad, in, context_);
    if (const auto* norm = std::get_if<NormPool>(&op)) return computes_normed(norm->pool);
    if (const auto* grad = std::get_if<NormPoolGrad>(&op)) return computes_normed(grad->pool);
    return cuda::computes(op, in, context_);
  }

  std::shared_ptr<std::byte> allocate(std::size_t bytes) const override {
    if (!has_device()) return allocate_without_device(bytes);
    use_device(context_.settings);
    return allocate_device(bytes);
  }
  std::shared_ptr<std::byte> allocate_host(std::size_t bytes) const override {
    if (!has_device()) return allocate_without_device(bytes);
    use_device(context_.settings);
    return allocate_pinned(bytes);
  }

  std::unique_ptr<Stream> make_stream(Precedence precedence) const override {
    if (!has_device()) return std::make_unique<NoStream>();
    use_device(context_.settings);
    if (!context_.nccl) return std::make_unique<CudaStream>(precedence);
    return std::make_unique<CudaStream>(
        precedence,
        [nccl = context_.nccl](const std::function<bool()>& done) { nccl->wait_until(done); });
  }
  void begin_step() const override {
    if (has_device()) use_device(context_.settings);
  }
  bool has_side_lanes() const override { return true; }
  Exchange exchange() const override { return {.in_f32 = false, .bucket_bytes = bucket_bytes()}; }
  void give_up_exchanges(const RankError& error) const override {
    if (context_.nccl) context_.nccl->give_up(error);
  }
  int steps_in_flight() const override { return 2; }
  void upload(Stream& stream, void* to, const void* from, std::size_t bytes) const override {
    use_device(context_.settings);
    check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault,
                          static_cast<CudaStream&>(stream).handle()),
          "cudaMemcpyAsync");
  }
  std::uint64_t free_bytes() const override {
    if (!has_device()) return 0;
    use_device(context_.settings);
    return free_device_bytes();
  }
  void fill(void* memory, std::uint8_t byte, std::size_t bytes) const override {
    if (!has_device()) return;
    use_device(context_.settings);
    fill_now(memory, byte, bytes);
  }
  std::unique_ptr<Recording> record(Stream& stream,
                                    const std::function<void()>& enqueue) const override {
    return cuda::record(static_cast<CudaStream&>(stream), enqueue);
  }

  void write(const Value& value, void* stored, std::span<const std::byte> plain) const override {
    const std::vector<std::byte> bytes = packed(value, plain);
    if (!has_device()) return;
    use_device(context_.settings);
    copy_now(stored, bytes.data(), bytes.size());
  }
  void read(const Value& value, const void* stored, std::span<std::byte> plain) const override {
    if (!has_device()) fail<DeviceError>("cuda: nothing runs on an assumed device");
    use_device(context_.settings);
    readback_.read(value, stored, plain);
  }
  std::optional<Accelerator> accelerator() const override {
    if (!has_device()) return std::nullopt;
    return Accelerator{context_.settings.ordinal, bus_of(context_.settings)};
  }

 private:
  bool has_device() const { return context_.settings.has_device(); }
  // Elsewhere cublasLt appends a kernel of its own to the product, which moves more than ours.
  bool has_fast_gelu_epilogues() const {
    const int generation = context_.settings.compute_capability / 10;
    return generation == 9 || generation == 10;
  }

  mutable Context context_;  // planning fills caches
  mutable Readback readback_;
};

}  // namespace

std::shared_ptr<std::byte> Context::allocate(std::size_t bytes) const {
  if (!settings.has_device() || only_plans_ > 0) return allocate_without_device(bytes);
  use_device(settings);
  return allocate_device(bytes);
}

void Context::only_plan(bool on) {
  only_plans_ += on ? 1 : -1;
  dnn->only_plan(only_plans_ > 0);
  matmul->only_plan(only_plans_ > 0);
  own_kernels->only_plan(only_plans_ > 0);
}

}  // namespace warpstep::cuda

extern "C" __attribute__((visibility("default"))) warpstep::Backend* warpstep_backend(
    const warpstep::BackendOptions& options) {
  return new warpstep::cuda::Cuda(options);
}
