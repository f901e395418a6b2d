// The adjoints of 3x3 convolutions over eight input channels, rows of channels on both sides.
// oneDNN fills half a vector register there (40 to 48 GFLOP/s where 100 are to be had); these loops
// fill all of it.
#pragma once

#include "kernels/cpu/onednn.h"

namespace warpstep::cpu {

// Kernel 3, stride 1, padding 1, 8 input channels, a multiple of 16 output channels, plain layouts,
// AVX2 with FMA.
bool takes_eight_channels(const Conv& op, const Value& x, const Value& z);

struct EightChannels {
  std::int64_t images, height, width, out;
};

// d_x [N,H,W,8] from d_z [N,H,W,out] and weight [out,3,3,8].
std::unique_ptr<Kernel> eight_channels_data_grad(const EightChannels& shape);
// d_weight [out,3,3,8], and d_bias [out] if asked for, from x and d_z.
std::unique_ptr<Kernel> eight_channels_weight_grad(const EightChannels& shape, bool bias);

}  // namespace warpstep::cpu
