#include "data/formats/memory.h"

#include <utility>

#include "data/formats/many.h"
#include "data/io/file.h"
#include "engine/core/error.h"

namespace warpstep::data {

MemoryDataset::MemoryDataset(MemoryParts parts) : parts_(std::move(parts)) {
  check_image_shape(parts_.shape, parts_.path);
  const auto image_bytes = static_cast<std::size_t>(parts_.shape.count());
  if (parts_.labels.empty() || parts_.pixels.size() != parts_.labels.size() * image_bytes) {
    fail<UsageError>("{}: {} bytes of pixels for {} samples of {}", parts_.path,
                     parts_.pixels.size(), parts_.labels.size(), parts_.shape.text());
  }
  check_labels(parts_.labels, parts_.classes.size(), parts_.path);
  Hash hash;
  hash.add(std::uint64_t{parts_.pixels.size()});
  for (const std::int64_t extent : parts_.shape.extents()) {
    hash.add(static_cast<std::uint64_t>(extent));
  }
  for (const std::int32_t label : parts_.labels) hash.add(static_cast<std::uint64_t>(label));
  for (const std::string& name : parts_.classes) hash.add(name);
  fingerprint_ = hash.value();
}

std::string MemoryDataset::name(std::uint64_t index) const {
  return fmt::format("{}[{}]", parts_.path, index);
}

Sample MemoryDataset::fetch(std::uint64_t index, Scratch& scratch) const {
  const auto image_bytes = static_cast<std::size_t>(parts_.shape.count());
  scratch.bytes_read += image_bytes;
  return {std::span(parts_.pixels).subspan(index * image_bytes, image_bytes), Encoding::pixels,
          parts_.shape};
}

}  // namespace warpstep::data
