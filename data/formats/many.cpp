#include "data/formats/many.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <string_view>
#include <utility>

#include "data/decode/image.h"
#include "data/formats/cached.h"
#include "data/io/file.h"
#include "engine/core/clock.h"
#include "engine/core/error.h"

namespace warpstep::data {
namespace {

constexpr std::uint64_t max_array_classes = 65536;

// A view of a mapped file takes no time: its pages are read when they are used.
std::span<const std::uint8_t> read_from(const MappedFile& file, std::uint64_t offset,
                                        std::uint64_t bytes, Scratch& scratch) {
  if (file.is_mapped()) {
    scratch.bytes_read += bytes;
    return file.view(offset, bytes, scratch.bytes);
  }
  const std::uint64_t begin = now_ns();
  const auto view = file.view(offset, bytes, scratch.bytes);
  scratch.note_read(begin, bytes);
  return view;
}

template <class Integer>
std::vector<std::int32_t> convert(std::span<const std::uint8_t> bytes, const std::string& where) {
  std::vector<std::int32_t> labels(bytes.size() / sizeof(Integer));
  for (std::size_t i = 0; i < labels.size(); ++i) {
    Integer value = 0;
    std::memcpy(&value, bytes.data() + i * sizeof value, sizeof value);  // may be unaligned
    if (static_cast<std::uint64_t>(value) >= max_array_classes)  // negative values become huge
      fail<DataError>("{}: sample {} has label {}; labels must be from 0 to {}", where, i, value,
                      max_array_classes - 1);
    labels[i] = static_cast<std::int32_t>(value);
  }
  return labels;
}

}  // namespace

std::vector<std::int32_t> read_labels(StoredType type, std::span<const std::uint8_t> bytes,
                                      const std::string& where) {
  switch (type) {
    case StoredType::u8: return convert<std::uint8_t>(bytes, where);
    case StoredType::u16: return convert<std::uint16_t>(bytes, where);
    case StoredType::u32: return convert<std::uint32_t>(bytes, where);
    case StoredType::u64: return convert<std::uint64_t>(bytes, where);
    case StoredType::i8: return convert<std::int8_t>(bytes, where);
    case StoredType::i16: return convert<std::int16_t>(bytes, where);
    case StoredType::i32: return convert<std::int32_t>(bytes, where);
    case StoredType::i64: return convert<std::int64_t>(bytes, where);
    default: fail<DataError>("{}: labels of {}; must be integers", where, name(type));
  }
}

std::vector<std::string> read_class_names(const std::string& folder) {
  const std::string path = folder + "/classes.txt";
  std::vector<std::string> names;
  if (!exists(path)) return names;
  std::vector<std::uint8_t> file;
  read_into(file, path, std::uint64_t{1} << 24);
  std::string_view rest(reinterpret_cast<const char*>(file.data()), file.size());
  std::set<std::string_view> seen;
  while (!rest.empty()) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty())
      fail<DataError>("{}: line {} is empty; each line names a class", path, names.size() + 1);
    if (!seen.insert(line).second)
      fail<DataError>("{}: line {}: the name '{}' occurs twice", path, names.size() + 1,
                      shown(line));
    names.emplace_back(line);
  }
  if (names.empty() || names.size() > max_array_classes)
    fail<DataError>("{}: names {} classes; 1 to {} are allowed", path, names.size(),
                    max_array_classes);
  return names;
}

std::vector<std::string> numbered_classes(std::span<const std::int32_t> labels) {
  std::vector<std::string> names;
  const std::int32_t highest = labels.empty() ? 0 : *std::max_element(labels.begin(), labels.end());
  for (std::int32_t i = 0; i <= highest; ++i) names.push_back(std::to_string(i));
  return names;
}

void check_labels(std::span<const std::int32_t> labels, std::size_t classes,
                  const std::string& where) {
  for (std::size_t i = 0; i < labels.size(); ++i) {
    if (static_cast<std::size_t>(labels[i]) < classes) continue;
    if (classes == 0) fail<DataError>("{}: the data set has no classes", where);
    fail<DataError>("{}: sample {} has label {}, but the data set has {} classes: 0 to {}", where,
                    i, labels[i], classes, classes - 1);
  }
}

MappedImages::MappedImages(MappedParts parts) : parts_(std::move(parts)) {
  image_bytes_ = static_cast<std::uint64_t>(parts_.shape.count());
  const std::uint64_t samples = parts_.labels.size();
  const std::uint64_t file_bytes = parts_.file->bytes();
  if (samples == 0) fail<DataError>("{}: has no images", path());
  if (parts_.offset > file_bytes || samples > (file_bytes - parts_.offset) / image_bytes_)
    fail<DataError>("{}: has {} bytes, too few for {} images of {}; copy it again", path(),
                    file_bytes, samples, parts_.shape.text());
  readahead_ = Readahead(samples, file_bytes, host_budget_bytes());
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
  return {read_from(*parts_.file, parts_.offset + index * image_bytes_, image_bytes_, scratch),
          Encoding::pixels, parts_.shape};
}

std::span<const std::uint8_t> MappedImages::all_pixels() const {
  if (!parts_.file->is_mapped()) return {};
  std::vector<std::uint8_t> unused;
  return parts_.file->view(parts_.offset, image_bytes_ * size(), unused);
}

void MappedImages::will_need(std::uint64_t index) const {
  readahead_.request(index, *parts_.file, parts_.offset + index * image_bytes_, image_bytes_);
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
    fail<DataError>("{}: has images of {} x {}; 1 to {} per side are allowed", where, height, width,
                    max_side);
  if (channels != 1 && channels != 3)
    fail<DataError>("{}: has images of {} channels; must be 1 (gray) or 3 (RGB)", where, channels);
  return Shape{static_cast<std::int64_t>(height), static_cast<std::int64_t>(width),
               static_cast<std::int64_t>(channels)};
}

PackedSamples::PackedSamples(PackedParts parts) : parts_(std::move(parts)) {
  if (size() == 0) fail<DataError>("{}: has no samples", parts_.path);
  Hash hash;
  hash.add(size());
  for (std::uint64_t i = 0; i < size(); ++i) {
    const std::uint64_t bytes = parts_.lengths[i];
    const std::uint64_t file_bytes = file_of(i).bytes();
    if (bytes > max_encoded_bytes || parts_.offsets[i] > file_bytes ||
        bytes > file_bytes - parts_.offsets[i])
      fail<DataError>(
          "{}: sample {} has {} bytes at byte {}, but the file has {} bytes and a sample at most "
          "{}; "
          "copy it again",
          file_of(i).path(), i, bytes, parts_.offsets[i], file_bytes, max_encoded_bytes);
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
  readahead_ = Readahead(size(), bytes, host_budget_bytes());
  const FirstSample first = first_readable(*this);
  const bool jpeg = parts_.jpeg || first.encoding == Encoding::jpeg;
  shape_ = Shape{first.shape[0], first.shape[1],
                 parts_.channels > 0 ? parts_.channels
                 : jpeg              ? 3
                                     : first.shape[2]};
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
      read_from(file_of(index), parts_.offsets[index], parts_.lengths[index], scratch);
  return {bytes, encoding_of(bytes, parts_.jpeg ? ".jpg" : ".png"), {}};
}

void PackedSamples::will_need(std::uint64_t index) const {
  readahead_.request(index, file_of(index), parts_.offsets[index], parts_.lengths[index]);
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
