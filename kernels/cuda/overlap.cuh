// Launches that overlap with the end of the kernel before them in their stream (programmatic
// dependent launch, from compute capability 9.0 on), where WARPSTEP_OVERLAP_LAUNCHES=1 asks for it.
//
// Without it a kernel's blocks are placed when all blocks of the kernel before have ended and its
// memory is flushed: 1 to 2 us between two small kernels. With it the next kernel is placed while
// the last blocks run, and waits in await_previous(), its first statement. Kernels of libraries
// have no such statement and are launched as before; so are kernels of custom ops.
#pragma once

#include "kernels/cuda/launch.cuh"

namespace warpstep::cuda {

// Whether launches overlap on the device that was opened last (device.cpp).
bool overlaps_launches();

// Waits until the kernels before this one in its stream are done and what they wrote can be read;
// then lets the next one's blocks be placed. The first statement of every kernel that launch_next()
// launches, in all threads: a block that ends without it would let the next kernel begin too early.
__device__ inline void await_previous() {
#if !defined(__CUDACC__)
  simt::note_awaited();
#elif __CUDA_ARCH__ >= 900  // earlier devices have nothing to wait for
  cudaGridDependencySynchronize();
  cudaTriggerProgrammaticLaunchCompletion();
#endif
}

// launch() of a kernel whose first statement is await_previous().
template <class... Params, class... Args>
void launch_next(const char* name, void (*kernel)(Params...), const LaunchShape& shape,
                 Args&&... args) {
#if defined(__CUDACC__)
  cudaLaunchAttribute overlap{};
  overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  overlap.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = shape.grid;
  config.blockDim = shape.block;
  config.dynamicSmemBytes = shape.shared_bytes;
  config.stream = shape.stream;
  config.attrs = &overlap;
  config.numAttrs = overlaps_launches() ? 1 : 0;
  check(cudaLaunchKernelEx(&config, kernel, static_cast<Params>(std::forward<Args>(args))...),
        name);
#else
  simt::launch(name, reinterpret_cast<const void*>(kernel), shape.grid, shape.block,
               shape.shared_bytes, shape.stream,
               [name, kernel, ... copies = static_cast<Params>(std::forward<Args>(args))] {
                 kernel(copies...);
                 if (!simt::has_awaited())
                   throw simt::Error(std::string(name) +
                                     ": a thread ended without await_previous(), the first "
                                     "statement of a kernel that launch_next() launches");
               });
#endif
}

}  // namespace warpstep::cuda
