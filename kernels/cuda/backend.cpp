#include <cuda_runtime_api.h>

#include <cstdlib>

#include "engine/core/error.h"
#include "kernels/cuda/check.h"
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/host_copy.h"
#include "kernels/cuda/ranges.h"

namespace warpstep::cuda {
namespace {

// Where there is no device: what is planned can be looked at, not run.
struct NoStream final : Stream {
  void wait() override {}
};

std::shared_ptr<std::byte> allocate_nothing_to_run_on(std::size_t bytes) {
  void* memory =
      std::calloc(std::max<std::size_t>(bytes, 1), 1);  // pages come with their first use
  if (!memory) fail<DeviceError>("cuda: {} bytes of memory are not to be had", bytes);
  return {static_cast<std::byte*>(memory), [](std::byte* p) { std::free(p); }};
}

class Cuda final : public Backend {
 public:
  explicit Cuda(const BackendOptions& options) {
    ranges::follow();
    context_.settings = open_device(options);
    context_.dnn = dnn::open_library(context_.settings);
    context_.matmul = open_matmul_library(context_.settings);
  }

  std::string_view name() const override { return "cuda"; }
  std::string describe() const override {
    return fmt::format("{}, {}, {}", describe_device(context_.settings), context_.dnn->version(),
                       context_.matmul->version());
  }
  std::string describe_surroundings() const override { return describe_optional_libraries(); }

  void choose_layouts(Graph& graph) const override { cuda::choose_layouts(graph); }

  std::unique_ptr<Kernel> bind(const Graph& graph, const Node& node) const override {
    const Operands operands{{graph, node}, context_};
    return bind_node(node, [&](const auto& op) { return cuda::bind(op, operands); });
  }

  bool computes(const AnyOp& op, const Types& in) const override {
    return cuda::computes(op, in, context_);
  }

  std::shared_ptr<std::byte> allocate(std::size_t bytes) const override {
    return context_.allocate(bytes);
  }
  std::shared_ptr<std::byte> allocate_host(std::size_t bytes) const override {
    return has_device() ? allocate_pinned(bytes) : allocate_nothing_to_run_on(bytes);
  }

  std::unique_ptr<Stream> make_stream() const override {
    if (!has_device()) return std::make_unique<NoStream>();
    return std::make_unique<CudaStream>();
  }
  int lanes() const override { return 2; }
  int steps_in_flight() const override { return 2; }
  void upload(Stream& stream, void* to, const void* from, std::size_t bytes) const override {
    // A thread that has called nothing of the runtime before is on device 0.
    check(cudaSetDevice(context_.settings.ordinal), "cudaSetDevice");
    check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault,
                          static_cast<CudaStream&>(stream).handle()),
          "cudaMemcpyAsync");
  }
  std::uint64_t free_bytes() const override { return has_device() ? free_device_bytes() : 0; }
  void fill(void* memory, std::uint8_t byte, std::size_t bytes) const override {
    if (has_device()) fill_now(memory, byte, bytes);
  }
  std::unique_ptr<Recording> record(Stream& stream,
                                    const std::function<void()>& enqueue) const override {
    return cuda::record(static_cast<CudaStream&>(stream), enqueue);
  }

  void write(const Value& value, void* stored, std::span<const std::byte> plain) const override {
    const std::vector<std::byte> bytes = packed(value, plain);
    if (!has_device()) return;
    copy_now(stored, bytes.data(), bytes.size());
  }
  void read(const Value& value, const void* stored, std::span<std::byte> plain) const override {
    if (!has_device()) fail<DeviceError>("cuda: nothing runs on an assumed device");
    std::vector<std::byte> bytes(value.layout.bytes);
    copy_now(bytes.data(), stored, bytes.size());
    if (value.layout.native)
      unpack(value, bytes, plain);
    else
      std::copy(bytes.begin(), bytes.end(), plain.begin());
  }

 private:
  bool has_device() const { return context_.settings.has_device(); }

  mutable Context context_;  // planning fills caches
};

}  // namespace

std::shared_ptr<std::byte> Context::allocate(std::size_t bytes) const {
  return settings.has_device() ? allocate_device(bytes) : allocate_nothing_to_run_on(bytes);
}

}  // namespace warpstep::cuda

extern "C" __attribute__((visibility("default"))) warpstep::Backend* warpstep_backend(
    const warpstep::BackendOptions& options) {
  return new warpstep::cuda::Cuda(options);
}
