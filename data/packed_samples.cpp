#include "data/packed_samples.h"

#include <algorithm>
#include <utility>

#include "data/encoding.h"
#include "data/tier.h"
#include "engine/core/error.h"

namespace warpstep::data {

PackedSamples::PackedSamples(PackedParts parts) : parts_(std::move(parts)) {
  if (size() == 0) fail<DataError>("{}: has no samples", parts_.path);
  Hash hash;
  hash.add(size());
  for (std::uint64_t i = 0; i < size(); ++i) {
    const std::uint64_t bytes = parts_.lengths[i];
    const std::uint64_t there = file_of(i).bytes();
    if (bytes > max_encoded_bytes || parts_.offsets[i] > there || bytes > there - parts_.offsets[i])
      fail<DataError>(
          "{}: sample {} of {} bytes at byte {}, but the file has {} and a sample at "
          "most {}",
          file_of(i).path(), i, bytes, parts_.offsets[i], there, max_encoded_bytes);
    longest_ = std::max(longest_, parts_.lengths[i]);
    hash.add(bytes);
    hash.add(static_cast<std::uint64_t>(parts_.labels[i]));
  }
  for (const std::string& name : parts_.classes) hash.add(name);
  fingerprint_ = hash.value();
  std::uint64_t bytes = 0;
  for (const auto& file : parts_.files) {
    mapped_ = mapped_ && file->is_mapped();
    bytes += file->bytes();
  }
  asked_ = Asked(size(), bytes, host_budget_bytes());
  Scratch scratch;
  const Sample first = PackedSamples::fetch(0, scratch);
  shape_ = decoded_shape(first, PackedSamples::name(0));
  if (parts_.jpeg || first.encoding == Encoding::jpeg) shape_ = Shape{shape_[0], shape_[1], 3};
}

const MappedFile& PackedSamples::file_of(std::uint64_t index) const {
  const auto next = std::upper_bound(parts_.firsts.begin(), parts_.firsts.end(), index);
  return *parts_.files[static_cast<std::size_t>(next - parts_.firsts.begin()) - 1];
}

std::string PackedSamples::name(std::uint64_t index) const {
  return fmt::format("{}[{}] (byte {})", file_of(index).path(), index, offset_of(index));
}

Sample PackedSamples::fetch(std::uint64_t index, Scratch& scratch) const {
  const auto bytes =
      file_of(index).view(parts_.offsets[index], parts_.lengths[index], scratch.bytes);
  scratch.bytes_read += bytes.size();
  return {bytes, encoding_of(bytes, parts_.jpeg ? ".jpg" : ".png"), {}};
}

void PackedSamples::will_need(std::uint64_t index) const {
  if (asked_.is_first(index))
    file_of(index).will_need(parts_.offsets[index], parts_.lengths[index]);
}

void PackedSamples::check_unchanged() const {
  for (const auto& file : parts_.files) file->check_unchanged();
}

std::uint64_t PackedSamples::max_fetched_bytes() const {
  return mapped_ ? 0 : longest_;
}

std::optional<std::uint32_t> PackedSamples::stored_crc32c(std::uint64_t index) const {
  if (parts_.checksums.empty()) return std::nullopt;
  return parts_.checksums[index];
}

}  // namespace warpstep::data
