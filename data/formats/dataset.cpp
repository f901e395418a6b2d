#include "data/formats/dataset.h"

#include <algorithm>
#include <exception>
#include <new>

#include "engine/core/caught.h"
#include "engine/core/clock.h"
#include "engine/core/error.h"

namespace warpstep::data {

Sample Dataset::checked_fetch(std::uint64_t index, Scratch& scratch) const {
  try {
    return fetch(index, scratch);
  } catch (const Error&) {
    throw;
  } catch (const std::bad_alloc&) {
    throw;
  } catch (...) {
    fail<Error>("{} (sample {} of {})", caught_text(), index, path());
  }
}

Shape Dataset::shape_of(std::uint64_t index, Scratch& scratch) const {
  const Sample sample = checked_fetch(index, scratch);
  return decoded_shape(sample, sample.encoding == Encoding::pixels ? std::string() : name(index));
}

void Dataset::read(std::uint64_t index, Scratch& scratch, std::span<std::uint8_t> pixels) const {
  const Sample sample = checked_fetch(index, scratch);
  const Shape expected = image_shape();
  const std::string file = name(index);
  const Shape shape = decoded_shape(sample, file);
  if (shape[0] != expected[0] || shape[1] != expected[1])
    fail<DataError>(
        "{}: is {} x {} pixels, but the first image of its set is {} x {}; scale the files to one "
        "size, or leave them as they are and train with {}",
        file, shape[1], shape[0], expected[1], expected[0], cropping_options(expected));
  decode(sample, file, shape, {0, 0, shape[0], shape[1]}, expected[2], scratch, pixels);
}

FirstSample first_readable(const Dataset& dataset) {
  constexpr std::uint64_t most = 100;
  Scratch scratch;
  std::exception_ptr first_error;
  for (std::uint64_t i = 0; i < std::min(dataset.size(), most); ++i) try {
      const Sample sample = dataset.checked_fetch(i, scratch);
      return {decoded_shape(sample, dataset.name(i)), sample.encoding};
    } catch (...) {
      if (!first_error) first_error = std::current_exception();
    }
  if (!first_error) fail<DataError>("{}: has no images", dataset.path());
  std::rethrow_exception(first_error);
}

void check_image_shape(const Shape& shape, const std::string& path) {
  if (shape.rank() != 3 || shape[0] < 1 || shape[1] < 1 || shape[2] < 1 || shape[2] > 3)
    fail<DataError>(
        "{}: has images of shape {}; must be [height, width, channels], with sides of at least 1 "
        "and 1 to 3 channels",
        path, shape.text());
}

void check_labels_of(const Dataset& dataset) {
  const auto classes = static_cast<std::int64_t>(dataset.classes().size());
  for (std::uint64_t i = 0; i < dataset.size(); ++i)
    if (const std::int32_t label = dataset.label(i); label < 0 || label >= classes)
      fail<DataError>("{}: has label {}, but labels of {} classes are 0 to {}", dataset.name(i),
                      label, classes, classes - 1);
}

std::string cropping_options(const Shape& image) {
  // ImageNet's 224 of 256, or less for smaller images.
  const std::int64_t side = std::clamp<std::int64_t>(std::min(image[0], image[1]) / 32, 1, 7) * 32;
  return fmt::format(
      "--transforms random-resized-crop={},flip,normalize --eval-transforms "
      "resize={},centre-crop={},normalize",
      side, side * 8 / 7, side);
}

}  // namespace warpstep::data
