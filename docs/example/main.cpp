// A program of one's own on an installed Warpstep: which version it is, and what a batch of images
// weighs.
#include <fmt/format.h>

#include "engine/core/types.h"
#include "engine/core/version.h"

int main() {
  const warpstep::Type images{warpstep::DType::f32, {128, 32, 32, 3}};
  fmt::print("Warpstep {}: a batch of {} takes {} bytes\n", warpstep::version(), images.text(),
             images.bytes());
}
