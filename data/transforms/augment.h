// Operations on a row's bytes with the definitions of torchvision's transforms (v2, of 8-bit
// tensors), of which randaugment and colour-jitter draw. They are pure functions, the same on every
// CPU.
#pragma once

#include <cstdint>
#include <string_view>

#include "data/transforms/transform.h"

namespace warpstep::data {

// In torchvision's order of RandAugment.
enum class Operation : std::uint8_t {
  identity,
  shear_x,  // by this many pixels per line below the top edge; outside are bytes of 0
  shear_y,
  translate_x,  // by this many pixels
  translate_y,
  rotate,      // by this many degrees
  brightness,  // these four: blended with black, gray, the mean gray or a blurred image; 0 keeps
               // the
  saturation,  // image, a negative magnitude moves it there, a positive one away
  contrast,
  sharpness,
  posterize,      // keeps this many high bits
  solarize,       // inverts bytes from this one on
  auto_contrast,  // of each channel the smallest byte becomes 0, the largest 255
  equalize        // the histogram of each channel
};
inline constexpr int operations = 14;
std::string_view name(Operation operation);

void operate(Operation operation, double magnitude, const RowImage& image);

// Moves the hue by this share of the circle. Images of one channel stay as they are.
void shift_hue(double share, const RowImage& image);

// The magnitude of RandAugment's bin `bin`, 0 to 30, for a row of this size; of operations with a
// sign the positive one.
double rand_augment_magnitude(Operation operation, int bin, const ImageExtent& row);
bool has_sign(Operation operation);

}  // namespace warpstep::data
