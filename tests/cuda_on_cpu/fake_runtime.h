// How tests look into the CUDA runtime that libwarpstep_fake_cuda puts in place of libcudart: one
// device, whose memory is the host's and whose work runs at once in the order of its issue, or is
// recorded where a stream is captured, by CUDA's rules for captures.
#pragma once

#include <driver_types.h>

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace warpstep::fake_cuda {

// How often a function of the runtime was called, failed calls included: calls("cudaMalloc"). A
// kernel's launch is a "cudaLaunchKernelExC".
std::size_t calls(const std::string& function);
// How often a piece of work ran on the device: a kernel by its name, "memcpy", "memset", or what a
// library enqueued. Each replay of a graph counts.
std::size_t runs(const std::string& work);
void reset_counts();

// The call of this function after `skipped` more fails, and does nothing.
void fail_next(const std::string& function, cudaError_t status, std::size_t skipped = 0);

// What was made and not yet destroyed.
struct Live {
  std::size_t allocations = 0, bytes = 0;  // of device memory
  std::size_t pinned = 0, streams = 0, events = 0, graphs = 0, executables = 0;
  bool operator==(const Live&) const = default;
};
Live live();

void set_device_memory(std::size_t bytes);  // how much there is: 8 GiB until told otherwise

std::vector<std::string> node_names(cudaGraph_t graph);  // of its work, in the order of issue

// What a library does to put work on a stream: runs it now, or records it in the stream's capture.
// A graph replays its work in the order of issue; under another schedule than 0 (simt.h) in any
// order that its streams' events allow.
cudaError_t enqueue(cudaStream_t stream, const std::string& name, std::function<void()> work);

}  // namespace warpstep::fake_cuda
