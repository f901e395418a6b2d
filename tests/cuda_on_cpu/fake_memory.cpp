// The emulated runtime: memory. Device memory is host memory, exact in size, so that
// AddressSanitizer guards its ends, and full of NaN.
#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "tests/cuda_on_cpu/fake_state.h"

namespace warpstep::fake_cuda {
namespace {

cudaError_t allocate(State& s, void** address, std::size_t bytes, bool pinned) {
  const cudaError_t unsafe = s.unsafe_in_capture();
  if (unsafe != cudaSuccess) return unsafe;
  if (address == nullptr) return cudaErrorInvalidValue;
  *address = nullptr;
  if (bytes == 0) return cudaSuccess;
  if (!pinned && s.used_bytes + bytes > s.device_bytes) return cudaErrorMemoryAllocation;
  constexpr std::size_t alignment = 256;  // as cudaMalloc's
  if (posix_memalign(address, alignment, bytes) != 0) return cudaErrorMemoryAllocation;
  std::memset(*address, 0xff, bytes);
  s.memory[static_cast<std::byte*>(*address)] = {bytes, pinned, current_device()};
  if (!pinned) s.used_bytes += bytes;
  return cudaSuccess;
}

cudaError_t release(State& s, void* address, bool pinned) {
  const cudaError_t unsafe = s.unsafe_in_capture();
  if (unsafe != cudaSuccess) return unsafe;
  if (address == nullptr) return cudaSuccess;
  const auto found = s.memory.find(static_cast<std::byte*>(address));
  if (found == s.memory.end() || found->second.pinned != pinned) return cudaErrorInvalidValue;
  finish_all(s);  // it waits for the device
  if (!pinned) s.used_bytes -= found->second.bytes;
  s.memory.erase(found);
  std::free(address);
  return cudaSuccess;
}

// The side that `kind` declares as the device's must be memory that the device can reach.
bool copy_is_possible(const State& s, const void* to, const void* from, std::size_t bytes,
                      cudaMemcpyKind kind) {
  const bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
  const bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
  return to != nullptr && from != nullptr && (!to_device || s.reachable(to, bytes)) &&
         (!from_device || s.reachable(from, bytes));
}

bool is_pinned(const State& s, const void* address) {
  if (!s.reachable(address, 1)) return false;
  auto* const plain = const_cast<void*>(address);
  return std::prev(s.memory.upper_bound(static_cast<std::byte*>(plain)))->second.pinned;
}

cudaError_t copy(State& s, void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                 cudaStream_t stream) {
  if (bytes == 0) return cudaSuccess;
  if (!copy_is_possible(s, to, from, bytes, kind)) return cudaErrorInvalidValue;
  const bool captures = !is_default(stream) && s.streams.contains(stream) && stream->capture;
  if (captures || s.deferral == 0 || s.reachable(from, bytes)) {
    const cudaError_t status = issue(s, stream, "memcpy", [=] { std::memmove(to, from, bytes); });
    // Memory that is not pinned has its bytes when the call returns.
    if (status == cudaSuccess && !captures && !s.reachable(to, bytes)) finish(s, so_far(s, stream));
    return status;
  }
  // From memory that is not pinned: copied at once to where the device reads it later.
  const auto* begin = static_cast<const std::byte*>(from);
  return issue(s, stream, "memcpy", [=, staged = std::vector<std::byte>(begin, begin + bytes)] {
    std::memcpy(to, staged.data(), bytes);
  });
}

cudaError_t fill(State& s, void* to, int value, std::size_t bytes, cudaStream_t stream) {
  if (bytes == 0) return cudaSuccess;
  if (!s.reachable(to, bytes)) return cudaErrorInvalidValue;
  return issue(s, stream, "memset", [=] { std::memset(to, value, bytes); });
}

}  // namespace
}  // namespace warpstep::fake_cuda

namespace fake = warpstep::fake_cuda;
using fake::call;
using fake::State;

extern "C" {

cudaError_t cudaMalloc(void** address, std::size_t bytes) {
  return call("cudaMalloc", [=](State& s) { return fake::allocate(s, address, bytes, false); });
}
cudaError_t cudaFree(void* address) {
  return call("cudaFree", [=](State& s) { return fake::release(s, address, false); });
}
cudaError_t cudaMallocHost(void** address, std::size_t bytes) {
  return call("cudaMallocHost", [=](State& s) { return fake::allocate(s, address, bytes, true); });
}
cudaError_t cudaHostAlloc(void** address, std::size_t bytes, unsigned) {
  return call("cudaHostAlloc", [=](State& s) { return fake::allocate(s, address, bytes, true); });
}
cudaError_t cudaFreeHost(void* address) {
  return call("cudaFreeHost", [=](State& s) { return fake::release(s, address, true); });
}

cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  return call("cudaMemcpy", [=](State& s) {
    const cudaError_t unsafe = s.unsafe_in_capture();
    if (unsafe != cudaSuccess) return unsafe;
    const cudaError_t status = fake::copy(s, to, from, bytes, kind, nullptr);
    if (status == cudaSuccess && (fake::is_pinned(s, to) || fake::is_pinned(s, from)))
      fake::finish(s, fake::so_far(s, nullptr));
    return status;
  });
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  return call("cudaMemcpyAsync",
              [=](State& s) { return fake::copy(s, to, from, bytes, kind, stream); });
}
cudaError_t cudaMemset(void* to, int value, std::size_t bytes) {
  return call("cudaMemset", [=](State& s) {
    const cudaError_t unsafe = s.unsafe_in_capture();
    return unsafe != cudaSuccess ? unsafe : fake::fill(s, to, value, bytes, nullptr);
  });
}
cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t stream) {
  return call("cudaMemsetAsync", [=](State& s) { return fake::fill(s, to, value, bytes, stream); });
}

cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  return call("cudaMemGetInfo", [=](State& s) {
    *free = s.device_bytes - std::min(s.used_bytes, s.device_bytes);
    *total = s.device_bytes;
    return cudaSuccess;
  });
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* address) {
  return call("cudaPointerGetAttributes", [=](State& s) {
    void* const plain = const_cast<void*>(address);
    *attributes = {};
    attributes->type = cudaMemoryTypeUnregistered;
    attributes->device = -1;
    attributes->hostPointer = plain;
    if (!s.reachable(address, 1)) return cudaSuccess;
    const bool pinned = fake::is_pinned(s, address);
    attributes->type = pinned ? cudaMemoryTypeHost : cudaMemoryTypeDevice;
    attributes->device = 0;
    attributes->devicePointer = plain;
    attributes->hostPointer = pinned ? plain : nullptr;
    return cudaSuccess;
  });
}

}  // extern "C"
