// Random numbers on the device: the same as those of engine/core/random.h on the host.
#pragma once

#include "engine/core/random.h"
#include "kernels/cuda/launch.cuh"

namespace warpstep::cuda {

// philox({c0, c1, c2, c3}, {k0, k1}).
__device__ inline uint4 random_words(unsigned c0, unsigned c1, unsigned c2, unsigned c3,
                                     unsigned k0, unsigned k1) {
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    const unsigned a = c0 * 0xD2511F53U, a_high = __umulhi(c0, 0xD2511F53U);
    const unsigned b = c2 * 0xCD9E8D57U, b_high = __umulhi(c2, 0xCD9E8D57U);
    c0 = b_high ^ c1 ^ k0;
    c1 = b;
    c2 = a_high ^ c3 ^ k1;
    c3 = a;
    k0 += 0x9E3779B9U;
    k1 += 0xBB67AE85U;
  }
  return make_uint4(c0, c1, c2, c3);
}

}  // namespace warpstep::cuda
