// The execution model of CUDA on a CPU, for tests: kernel sources that nvcc compiles for a GPU are
// compiled by the host compiler and run here, one fiber per CUDA thread. Checks a kernel's results,
// its barriers and, under the sanitizers, each of its memory accesses; models neither time nor the
// order of memory beyond barriers and atomics.
//
// Blocks run one after another. In a block each warp runs until all its lanes wait at a block
// barrier or have ended; in a warp each lane runs until a warp operation. Nothing is in lock-step
// between those points, so code that needs a barrier it does not have breaks here.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <source_location>
#include <stdexcept>
#include <string>

#include "kernels/cuda/check.h"

// Of the running CUDA thread.
extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;
inline constexpr int warpSize = 32;

namespace warpstep::simt {

// A fault of the kernel, with the file and line that its threads have reached: a divergent barrier,
// a wrong mask.
struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// CUDA's status for a launch of this shape: cudaSuccess, or the reason of its refusal.
cudaError_t check_shape(dim3 grid, dim3 block);
// The most dynamic shared memory of a kernel's block on the current device: 48 KiB until it opts in
// to more. `kernel` is the function's address.
void allow_shared_bytes(const void* kernel, std::size_t bytes);

// Runs `thread` once for each thread of the grid. Throws Error and everything that `thread` throws.
// Launches of several host threads take turns.
void run(dim3 grid, dim3 block, std::size_t shared_bytes, const std::function<void()>& thread);

// Sets the order in which blocks, warps and lanes take turns, from the next run on: 0 is the order
// of their indices, every other seed gives another order. WARPSTEP_SIMT_SCHEDULE in the environment
// sets the first one.
void set_schedule(std::uint64_t seed);
std::uint64_t schedule();

// Enqueues a kernel on a stream of the emulated runtime, which defines it (launch.cpp).
cudaError_t enqueue(const char* name, const void* kernel, dim3 grid, dim3 block,
                    std::size_t shared_bytes, cudaStream_t stream, std::function<void()> thread);

// Called by kernels/cuda/launch.cuh.
inline void launch(const char* name, const void* kernel, dim3 grid, dim3 block,
                   std::size_t shared_bytes, cudaStream_t stream, std::function<void()> thread) {
  cuda::check(enqueue(name, kernel, grid, block, shared_bytes, stream, std::move(thread)), name);
}

// Everything below is for the device functions, inside a run.
inline std::uint64_t time_ns() {
  return static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
}
std::byte* dynamic_shared();
// Copies of 16 or 8 bytes to shared memory (kernels/cuda/tensor_cores.cuh): they take place where
// they are awaited, so that a kernel that does not wait reads what was there before; with an odd
// schedule at once, so that one that still reads what was there reads what came.
void begin_copy(void* shared, const void* global, std::size_t bytes, bool zeros,
                std::source_location where = std::source_location::current());
void end_group();
void await_groups(std::size_t running);
unsigned lane();
// Of the running CUDA thread: that it waited for the kernel before this one, and whether it did.
void note_awaited();
bool has_awaited();

enum class Operation : std::uint8_t {
  none,
  syncthreads,
  syncthreads_count,
  syncthreads_and,
  syncthreads_or,
  syncwarp,
  shfl,
  shfl_xor,
  shfl_down,
  shfl_up,
  ballot,
  any,
  all,
  load_matrices,
  multiply_add,
  begin_copy,
};

// Waits for every thread of the block; returns for how many of them the predicate holds.
unsigned block_barrier(Operation operation, bool predicate, std::source_location where);

using Gathered = std::array<std::uint64_t, 32>;
// Waits for every lane of `mask` to reach the same operation; returns the operand of each, and
// anything for other lanes. Valid until the lane's next operation.
const Gathered& gather(unsigned mask, std::uint64_t value, Operation operation,
                       std::source_location where);
// A lane's numbers of a tensor core's operands: 8 of the left one, then 4 of the right one.
using Fragments = std::array<float, 12>;
// Waits for every lane of the warp; adds the products for the lane's 4 places to `sums`. Not
// instrumented: it accesses nothing of the kernel's.
void multiply_fragments(float (&sums)[4], const Fragments& own, std::source_location where);
[[noreturn]] void fail_here(Operation operation, std::source_location where,
                            const std::string& why);

// The memory of a program's __shared__ arrays (shared_memory.ld): full of 0xff for each block.
class SharedArrays {
 public:
  SharedArrays(std::byte* begin, std::byte* end);
  ~SharedArrays();
  SharedArrays(const SharedArrays&) = delete;
  SharedArrays& operator=(const SharedArrays&) = delete;

 private:
  std::byte* begin_;
};

}  // namespace warpstep::simt

#include "tests/cuda_on_cpu/device_functions.h"
