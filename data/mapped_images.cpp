#include "data/mapped_images.h"

#include <utility>

#include "data/tier.h"
#include "engine/core/error.h"

namespace warpstep::data {

MappedImages::MappedImages(MappedParts parts) : parts_(std::move(parts)) {
  image_bytes_ = static_cast<std::uint64_t>(parts_.shape.count());
  const std::uint64_t samples = parts_.labels.size();
  const std::uint64_t file_bytes = parts_.file->bytes();
  if (samples == 0) fail<DataError>("{}: has no images", path());
  if (parts_.offset > file_bytes || samples > (file_bytes - parts_.offset) / image_bytes_)
    fail<DataError>("{}: has {} bytes, too few for {} images of {}; copy it again", path(),
                    file_bytes, samples, parts_.shape.text());
  asked_ = Asked(samples, file_bytes, host_budget_bytes());
  Hash hash;
  hash.add(samples * image_bytes_);
  for (const std::int64_t extent : parts_.shape.extents())
    hash.add(static_cast<std::uint64_t>(extent));
  for (const std::int32_t label : parts_.labels) hash.add(static_cast<std::uint64_t>(label));
  for (const std::string& name : parts_.classes) hash.add(name);
  fingerprint_ = hash.value();
}

std::string MappedImages::name(std::uint64_t index) const {
  return fmt::format("{}[{}]", path(), index);
}

Sample MappedImages::fetch(std::uint64_t index, Scratch& scratch) const {
  scratch.bytes_read += image_bytes_;
  return {parts_.file->view(parts_.offset + index * image_bytes_, image_bytes_, scratch.bytes),
          Encoding::pixels, parts_.shape};
}

std::span<const std::uint8_t> MappedImages::all_pixels() const {
  if (!parts_.file->is_mapped()) return {};
  std::vector<std::uint8_t> unused;
  return parts_.file->view(parts_.offset, image_bytes_ * size(), unused);
}

void MappedImages::will_need(std::uint64_t index) const {
  if (asked_.is_first(index))
    parts_.file->will_need(parts_.offset + index * image_bytes_, image_bytes_);
}

std::uint64_t MappedImages::max_fetched_bytes() const {
  return parts_.file->is_mapped() ? 0 : image_bytes_;
}

std::optional<std::uint32_t> MappedImages::stored_crc32c(std::uint64_t index) const {
  if (parts_.checksums.empty()) return std::nullopt;
  return parts_.checksums[index];
}

Shape image_shape_of(std::uint64_t height, std::uint64_t width, std::uint64_t channels,
                     const std::string& where) {
  constexpr auto max_side = static_cast<std::uint64_t>(max_image_side);
  if (height < 1 || width < 1 || height > max_side || width > max_side)
    fail<DataError>("{}: holds images of {} x {}, allowed are 1 to {} a side", where, height, width,
                    max_side);
  if (channels != 1 && channels != 3)
    fail<DataError>("{}: holds images of {} channels; 1 (gray) and 3 (RGB) are read", where,
                    channels);
  return Shape{static_cast<std::int64_t>(height), static_cast<std::int64_t>(width),
               static_cast<std::int64_t>(channels)};
}

}  // namespace warpstep::data
