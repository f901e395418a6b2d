// The device's limits for a kernel's launch, and launches through the emulated runtime.
#include <map>
#include <utility>

#include "tests/cuda_on_cpu/fake_state.h"
#include "tests/cuda_on_cpu/simt.h"

namespace warpstep::simt {
namespace {
constexpr unsigned most_threads = 1024;  // of a block
constexpr std::size_t shared_bytes_of_all = std::size_t{48} << 10;

// By device and kernel, of those that have opted in. Only within calls, which take turns.
std::map<std::pair<int, const void*>, std::size_t>& allowed_shared_bytes() {
  static std::map<std::pair<int, const void*>, std::size_t> allowed;
  return allowed;
}

bool allows(const void* kernel, std::size_t shared_bytes) {
  const auto own = allowed_shared_bytes().find({fake_cuda::current_device(), kernel});
  return shared_bytes <= (own == allowed_shared_bytes().end() ? shared_bytes_of_all : own->second);
}
}  // namespace

cudaError_t check_shape(dim3 grid, dim3 block) {
  const auto threads = std::uint64_t{block.x} * block.y * block.z;
  const bool block_fits = threads > 0 && threads <= most_threads && block.x <= most_threads &&
                          block.y <= most_threads && block.z <= 64;
  const bool grid_fits = grid.x > 0 && grid.x <= 0x7fffffffU && grid.y > 0 && grid.y <= 65535 &&
                         grid.z > 0 && grid.z <= 65535;
  return block_fits && grid_fits ? cudaSuccess : cudaErrorInvalidConfiguration;
}

void allow_shared_bytes(const void* kernel, std::size_t bytes) {
  allowed_shared_bytes()[{fake_cuda::current_device(), kernel}] = bytes;
}

cudaError_t enqueue(const char* name, const void* kernel, dim3 grid, dim3 block,
                    std::size_t shared_bytes, cudaStream_t stream, std::function<void()> thread) {
  return fake_cuda::call("cudaLaunchKernelExC", [&](fake_cuda::State& s) {
    const cudaError_t fits = check_shape(grid, block);
    if (fits != cudaSuccess) return fits;
    if (!allows(kernel, shared_bytes)) return cudaErrorInvalidValue;
    return issue(s, stream, name,
                 [=, thread = std::move(thread)] { run(grid, block, shared_bytes, thread); });
  });
}

}  // namespace warpstep::simt
