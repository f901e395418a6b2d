// Convolutions over images of a few pixels, as the last stages of a ResNet have them for small
// images, as matrix products. oneDNN's convolutions work on rows of pixels there are not: a product
// is 2 to 13 times faster (1x1 and 2x2 pixels, batch 128).
#pragma once

#include "kernels/cpu/onednn.h"

namespace warpstep::cpu {

// One group, no bias, plain layouts, and at most four pixels in and out.
bool takes_small_maps(const Conv& op, const Value& x, const Value& z);
// The same of shapes alone: whether it would with plain layouts.
bool suits_small_maps(const Conv& op, const Shape& x, const Shape& z);

std::unique_ptr<Kernel> small_map_conv(const dnnl::engine& engine, const Conv& op, const Shape& x,
                                       const Shape& z);
std::unique_ptr<Kernel> small_map_data_grad(const dnnl::engine& engine, const Conv& op,
                                            const Shape& x, const Shape& z);
std::unique_ptr<Kernel> small_map_weight_grad(const dnnl::engine& engine, const Conv& op,
                                              const Shape& x, const Shape& z);

}  // namespace warpstep::cpu
