// Kernels with one fault each, which the emulator or a sanitizer must find.
#pragma once

#include <span>
#include <string_view>
#include <vector>

namespace warpstep::cuda {

inline constexpr int planted_threads = 64;  // of a block

// Reverses each block's part of `in`, a multiple of 64 elements, by a kernel with this fault:
//   none               a correct kernel
//   missing_barrier    reads what another warp writes, with no __syncthreads() between
//   missing_syncwarp   the same in a warp: shared memory between two lanes
//   reused_array       overwrites a shared array that others may still be reading
//   plain_update       += by all threads in place of an atomicAdd
//   divergent_barrier  half of the threads end before a __syncthreads()
//   ended_lane         a shuffle's mask names lanes that have ended
//   mask_without_caller, mask_of_others, two_shuffles, two_masks   of lanes that meet
//   past_global, past_dynamic, past_shared   one element after the end of an array
//   misaligned         a float4 at an address that is not aligned for it
//   uninitialised_dynamic, uninitialised_shared   one element is never written
std::vector<float> reverse_with(std::string_view fault, std::span<const float> in);

}  // namespace warpstep::cuda
