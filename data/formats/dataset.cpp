#include "data/formats/dataset.h"

#include "engine/core/clock.h"
#include "engine/core/error.h"

namespace warpstep::data {

void Dataset::read(std::uint64_t index, Scratch& scratch, std::span<std::uint8_t> pixels) const {
  const Sample sample = fetch(index, scratch);
  const Shape expected = image_shape();
  const std::string file = sample.encoding == Encoding::pixels ? std::string() : name(index);
  const Shape shape = decoded_shape(sample, file);
  if (shape[0] != expected[0] || shape[1] != expected[1])
    fail<DataError>(
        "{}: is {} x {} pixels, but the first image of its set is {} x {}; all images must have "
        "one "
        "size, or be cropped or resized to one (--transforms)",
        name(index), shape[1], shape[0], expected[1], expected[0]);
  decode(sample, file, shape, {0, 0, shape[0], shape[1]}, expected[2], scratch, pixels);
}

}  // namespace warpstep::data
