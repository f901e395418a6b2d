#include <array>
#include <string>

#include "engine/core/error.h"
#include "kernels/cuda/launch.cuh"
#include "tests/cuda_on_cpu/planted.h"

namespace warpstep::cuda {
namespace {

enum class Fault {
  none,
  missing_barrier,
  missing_syncwarp,
  reused_array,
  plain_update,
  divergent_barrier,
  ended_lane,
  mask_without_caller,
  mask_of_others,
  two_shuffles,
  two_masks,
  past_global,
  past_dynamic,
  past_shared,
  misaligned,
  uninitialised_dynamic,
  uninitialised_shared,
};
constexpr std::array names{"none",
                           "missing_barrier",
                           "missing_syncwarp",
                           "reused_array",
                           "plain_update",
                           "divergent_barrier",
                           "ended_lane",
                           "mask_without_caller",
                           "mask_of_others",
                           "two_shuffles",
                           "two_masks",
                           "past_global",
                           "past_dynamic",
                           "past_shared",
                           "misaligned",
                           "uninitialised_dynamic",
                           "uninitialised_shared"};
constexpr unsigned all_lanes = 0xffffffffU;

// Wrong masks of the lanes of one warp.
template <Fault F>
__device__ void warp_faults(int lane) {
  if constexpr (F == Fault::mask_without_caller) __syncwarp(0xfffffffeU);
  if constexpr (F == Fault::mask_of_others) {
    if (lane % 2 == 0) __shfl_sync(all_lanes, lane, 0);  // the odd lanes do not arrive
  }
  if constexpr (F == Fault::two_masks) __syncwarp(lane < 2 ? all_lanes : all_lanes - 2);
  if constexpr (F == Fault::two_shuffles) {
    if (lane % 2 == 0)
      __shfl_xor_sync(all_lanes, lane, 2);
    else
      __shfl_down_sync(all_lanes, lane, 2);
  }
}

// The neighbour's value, through shared memory.
template <Fault F>
__device__ float swap_twice(float value, float* exchange) {
  const auto t = threadIdx.x;
  exchange[t] = value;
  if constexpr (F != Fault::missing_syncwarp) __syncwarp();
  const float other = exchange[t ^ 1U];
  __syncwarp();
  exchange[t] = other;
  __syncwarp();
  return exchange[t ^ 1U];
}

template <Fault F>
__global__ void __launch_bounds__(planted_threads)
    reverse(const float* __restrict__ in, float* __restrict__ out, float* __restrict__ sum) {
  __shared__ float tile[planted_threads];
  __shared__ float total;
  float* extra = dynamic_shared<float>();
  const int t = static_cast<int>(threadIdx.x);
  const int i = static_cast<int>(blockIdx.x) * planted_threads + t;
  if (F != Fault::uninitialised_dynamic || t != 5) extra[F == Fault::past_dynamic ? t + 1 : t] = 0;
  if (F != Fault::uninitialised_shared || t != 5) tile[F == Fault::past_shared ? t + 1 : t] = in[i];
  if (t == 0) total = 0;
  if (F == Fault::divergent_barrier && t >= 32) return;
  if (F != Fault::missing_barrier) __syncthreads();
  float value = tile[planted_threads - 1 - t] + extra[t];
  if (F != Fault::reused_array) __syncthreads();
  tile[t] = 0;
  warp_faults<F>(t % 32);
  if (F == Fault::ended_lane && t % 2 == 0) return;
  if (F == Fault::ended_lane) value = __shfl_down_sync(all_lanes, value, 2);
  if (F == Fault::misaligned) value += 0 * reinterpret_cast<const float4*>(in + 1)->x;
  if (F == Fault::plain_update)
    total += 1;
  else
    atomicAdd(&total, 1.0F);
  __syncthreads();
  if (t == 0) atomicAdd(sum, total);
  out[F == Fault::past_global ? i + 1 : i] = swap_twice<F>(value, extra);
}

template <Fault F>
void run_if(Fault fault, const LaunchShape& shape, const float* in, float* out, float* sum) {
  if (fault == F) launch("reverse", reverse<F>, shape, in, out, sum);
}

template <std::size_t... F>
void run_one_of(std::index_sequence<F...>, Fault fault, const LaunchShape& shape, const float* in,
                float* out, float* sum) {
  (run_if<static_cast<Fault>(F)>(fault, shape, in, out, sum), ...);
}

}  // namespace

std::vector<float> reverse_with(std::string_view fault, std::span<const float> in) {
  std::size_t which = 0;
  while (which < names.size() && names[which] != fault) ++which;
  if (which == names.size()) fail<Error>("no fault is called '{}'", fault);
  std::vector<float> out(in.size()), sum(1);
  const LaunchShape shape{.grid = static_cast<unsigned>(in.size() / planted_threads),
                          .block = planted_threads,
                          .shared_bytes = planted_threads * sizeof(float)};
  run_one_of(std::make_index_sequence<names.size()>(), static_cast<Fault>(which), shape, in.data(),
             out.data(), sum.data());
  return out;
}

}  // namespace warpstep::cuda
