// Tests' access to the CUDA runtime that libwarpstep_fake_cuda provides in place of libcudart: one
// device or more, whose memory is host memory and whose work runs at once in the order of issue, or
// is recorded where a stream is captured, by CUDA's rules for captures.
#pragma once

#include <driver_types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace warpstep::fake_cuda {

// The number of calls of a function of the runtime, failed ones included: calls("cudaMalloc"). A
// kernel's launch counts as "cudaLaunchKernelExC".
std::size_t calls(const std::string& function);
// The number of times a piece of work ran on the device: a kernel by its name, "memcpy", "memset",
// or work enqueued by a library. Each replay of a graph counts.
std::size_t runs(const std::string& work);
void reset_counts();

// After `skipped` more calls, the next call of this function fails and does nothing.
void fail_next(const std::string& function, cudaError_t status, std::size_t skipped = 0);

// Objects created and not yet destroyed.
struct Live {
  std::size_t allocations = 0, bytes = 0;  // of device memory
  std::size_t pinned = 0, streams = 0, events = 0, graphs = 0, executables = 0;
  bool operator==(const Live&) const = default;
};
Live live();

void set_device_memory(std::size_t bytes);  // the size of device memory, 8 GiB by default

// 1 by default. Each has the memory that was allocated by a thread while it was current there.
void set_devices(int count);
int device_of(const void* memory);  // -1: of none
void set_compiled(int capability);  // what kernels are compiled for: 90 by default

// With a seed other than 0, and WARPSTEP_FAKE_DEFERRAL=seed, what a stream is given outside of a
// capture runs only when the host waits for it, or at random before.
void set_deferral(std::uint64_t seed);

std::vector<std::string> node_names(cudaGraph_t graph);  // of its work, in the order of issue

// Puts a library's work on a stream: runs it now, or records it in the stream's capture. A graph
// replays its work in the order of issue; under a schedule other than 0 (simt.h) in any order that
// its streams' events allow.
cudaError_t enqueue(cudaStream_t stream, const std::string& name, std::function<void()> work);

}  // namespace warpstep::fake_cuda
