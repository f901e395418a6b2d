// The device's limits for a kernel's launch, and launches through the emulated runtime.
#include <algorithm>
#include <atomic>
#include <utility>

#include "tests/cuda_on_cpu/fake_state.h"
#include "tests/cuda_on_cpu/simt.h"

namespace warpstep::simt {
namespace {
constexpr unsigned most_threads = 1024;  // of a block
std::atomic<std::size_t> allowed_shared_bytes = std::size_t{48} << 10;
}  // namespace

cudaError_t check_shape(dim3 grid, dim3 block, std::size_t shared_bytes) {
  const auto threads = std::uint64_t{block.x} * block.y * block.z;
  const bool block_fits = threads > 0 && threads <= most_threads && block.x <= most_threads &&
                          block.y <= most_threads && block.z <= 64;
  const bool grid_fits = grid.x > 0 && grid.x <= 0x7fffffffU && grid.y > 0 && grid.y <= 65535 &&
                         grid.z > 0 && grid.z <= 65535;
  if (!block_fits || !grid_fits) return cudaErrorInvalidConfiguration;
  return shared_bytes > allowed_shared_bytes ? cudaErrorInvalidValue : cudaSuccess;
}

void allow_shared_bytes(std::size_t bytes) {
  allowed_shared_bytes = std::max(allowed_shared_bytes.load(), bytes);
}

cudaError_t enqueue(const char* name, dim3 grid, dim3 block, std::size_t shared_bytes,
                    cudaStream_t stream, std::function<void()> thread) {
  return fake_cuda::call("cudaLaunchKernelExC", [&](fake_cuda::State& s) {
    const cudaError_t fits = check_shape(grid, block, shared_bytes);
    if (fits != cudaSuccess) return fits;
    return issue(s, stream, name,
                 [=, thread = std::move(thread)] { run(grid, block, shared_bytes, thread); });
  });
}

}  // namespace warpstep::simt
