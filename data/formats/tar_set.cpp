// Data sets of tar shards, named as WebDataset does.
#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>
#include <vector>

#include "data/decode/image.h"
#include "data/formats/formats.h"
#include "data/formats/many.h"
#include "data/formats/tar.h"
#include "data/io/file.h"
#include "data/io/parallel.h"
#include "engine/core/cpus.h"
#include "engine/core/error.h"

namespace warpstep::data {
namespace {

class TarSet : public PackedSamples {
 public:
  using PackedSamples::PackedSamples;
  std::string name(std::uint64_t index) const override {
    // Read from the header before the data, so that no names are kept in memory.
    std::vector<std::uint8_t> scratch;
    const MappedFile& shard = file_of(index);
    const std::uint64_t offset = offset_of(index);
    const auto header =
        shard.view(offset - tar_block_bytes, tar_block_bytes, scratch).first<tar_block_bytes>();
    return fmt::format("{}:{} (sample {}, byte {})", shard.path(), shown(tar_name(header)), index,
                       offset);
  }
};

// The samples of one shard.
struct Shard {
  std::vector<std::uint64_t> offsets;
  std::vector<std::uint32_t> lengths;
  std::vector<std::int32_t> labels;
  std::vector<std::uint32_t> checksums;
  bool jpeg = false;
};

// Groups members into samples.
class Collector {
 public:
  Collector(const std::string& path, TarReader& reader) : path_(path), reader_(reader) {}

  void add(const TarMember& member) {
    const auto [key, extension] = split_tar_name(member.name);
    if (!began_ || key != key_) {
      finish_sample();
      began_ = true;
      key_ = key;
    }
    if (has_png_name(member.name) || has_jpeg_name(member.name)) {
      if (extension.find('.') == std::string_view::npos) add_image(member);
    } else if (extension == "cls") {
      if (label_) refuse("has two .cls members");
      label_ = number(member, 10, 65535, "a .cls");
    } else if (extension == "crc32c") {
      if (checksum_) refuse("has two .crc32c members");
      checksum_ = number(member, 16, 0xffffffff, "a .crc32c");
    }
  }

  Shard finish() {
    finish_sample();
    return std::move(shard_);
  }

 private:
  void add_image(const TarMember& member) {
    if (image_) refuse("has two images");
    if (member.bytes > max_encoded_bytes)
      refuse(fmt::format("has an image of {} bytes, at most {} are allowed", member.bytes,
                         max_encoded_bytes));
    image_ = {member.offset, static_cast<std::uint32_t>(member.bytes)};
    shard_.jpeg = shard_.jpeg || has_jpeg_name(member.name);
  }

  // The number in a small member, without spaces and line ends around it.
  std::uint32_t number(const TarMember& member, int base, std::uint64_t most, const char* what) {
    constexpr std::size_t most_bytes = 32;
    std::string text(std::min<std::size_t>(member.bytes, most_bytes + 1), '\0');
    reader_.read(member.offset, {reinterpret_cast<std::uint8_t*>(text.data()), text.size()});
    const std::size_t begin = std::min(text.find_first_not_of(" \n\r"), text.size());
    const std::size_t end = text.find_last_not_of(" \n\r") + 1;
    std::uint64_t value = 0;
    const auto [last, error] =
        std::from_chars(text.data() + begin, text.data() + std::max(begin, end), value, base);
    if (text.size() > most_bytes || error != std::errc() || last != text.data() + end ||
        value > most)
      refuse(fmt::format("has {} of '{}', but it must be one number from 0 to {}", what,
                         shown(text), most));
    return static_cast<std::uint32_t>(value);
  }

  void finish_sample() {
    if (!began_) return;
    if (!image_) refuse("has none of .png, .jpg and .jpeg");
    if (!label_) refuse("has no .cls member, which holds its label");
    if (!shard_.labels.empty() && checksum_.has_value() == shard_.checksums.empty())
      refuse(checksum_ ? "has a .crc32c, but samples before it have none"
                       : "has no .crc32c, but samples before it have one");
    shard_.offsets.push_back(image_->first);
    shard_.lengths.push_back(image_->second);
    shard_.labels.push_back(static_cast<std::int32_t>(*label_));
    if (checksum_) shard_.checksums.push_back(*checksum_);
    image_.reset(), label_.reset(), checksum_.reset();
  }

  [[noreturn]] void refuse(const std::string& what) const {
    fail<DataError>("{}: sample '{}' {}", path_, shown(key_), what);
  }

  const std::string& path_;
  TarReader& reader_;
  Shard shard_;
  bool began_ = false;
  std::string key_;
  std::optional<std::pair<std::uint64_t, std::uint32_t>> image_;
  std::optional<std::uint32_t> label_, checksum_;
};

// Checks the shard's index if there is one; otherwise writes it for other readers. A read-only
// folder is not an error.
void check_or_write_index(const std::string& shard_path, const std::string& expected) {
  if (expected.empty()) return;
  const std::string path = shard_path.substr(0, shard_path.size() - 4) + ".idx";
  if (exists(path)) {
    std::vector<std::uint8_t> found;
    read_into(found, path);
    check_tar_index({reinterpret_cast<const char*>(found.data()), found.size()}, path, expected);
    return;
  }
  try {
    write_atomically(path, expected);
  } catch (const DataError&) {
  }
}

Shard read_shard(const std::string& path) {
  TarReader reader(path);
  Collector collector(path, reader);
  TarIndexText index;
  for (TarMember member; reader.next(member);) {
    const std::string_view key = split_tar_name(member.name).key;
    if (key.empty() || key.ends_with('/')) continue;  // hidden
    collector.add(member);
    index.add(member);
  }
  Shard shard = collector.finish();
  if (shard.labels.empty()) fail<DataError>("{}: has no samples", path);
  check_or_write_index(path, index.text());
  return shard;
}

std::vector<std::string> shard_paths(const std::string& spec, Split split) {
  std::vector<std::string> paths;
  const std::string stem(name(split));
  for (const Entry& entry : list_folder(spec)) {
    const bool shard = entry.name == stem + ".tar" ||
                       (entry.name.starts_with(stem + "-") && entry.name.ends_with(".tar"));
    if (shard && !entry.folder) paths.push_back(spec + "/" + entry.name);
  }
  const std::string folder = spec + "/" + stem;
  if (!is_folder(folder) || !has_name_ending(folder, ".tar")) return paths;
  if (!paths.empty())
    fail<DataError>("{}: has shards both next to {}/ and in it; give each set its own folder", spec,
                    stem);
  for (const Entry& entry : list_folder(folder)) {
    if (entry.name.ends_with(".tar") && !entry.folder)
      paths.push_back(folder + "/" + entry.name);
    else if (!entry.name.ends_with(".idx") || entry.folder)
      fail<DataError>("{}/{}: is neither a shard (.tar) nor an index (.idx); move it elsewhere",
                      folder, entry.name);
  }
  return paths;
}

std::vector<Shard> read_shards(const std::vector<std::string>& paths) {
  std::vector<Shard> shards(paths.size());
  const auto cores = static_cast<std::size_t>(allowed_cores());
  parallel_for(paths.size(), static_cast<int>(std::min(cores, paths.size())),
               [&](int, std::uint64_t i) { shards[i] = read_shard(paths[i]); });
  return shards;
}

template <class T>
void append(std::vector<T>& all, const std::vector<T>& more) {
  all.insert(all.end(), more.begin(), more.end());
}

std::vector<std::string> classes_of(const std::string& spec, Split split,
                                    const std::vector<std::int32_t>& labels) {
  std::vector<std::string> names = read_class_names(spec);
  if (!names.empty()) return names;
  std::vector<std::int32_t> deciding;
  if (split == Split::test) {
    for (const Shard& shard : read_shards(shard_paths(spec, Split::train)))
      append(deciding, shard.labels);
  }
  return numbered_classes(deciding.empty() ? labels : deciding);
}

PackedParts parts_of(const std::vector<std::string>& paths, Io io) {
  const std::vector<Shard> shards = read_shards(paths);
  PackedParts parts;
  parts.kind = "tar shards";
  for (std::size_t i = 0; i < shards.size(); ++i) {
    if (shards[i].checksums.empty() != shards[0].checksums.empty())
      fail<DataError>(
          "{}: either this shard or {} has .crc32c members, the other does not; pack the set again",
          paths[i], paths[0]);
    parts.files.push_back(std::make_unique<MappedFile>(paths[i], io));
    parts.firsts.push_back(parts.labels.size());
    append(parts.offsets, shards[i].offsets);
    append(parts.lengths, shards[i].lengths);
    append(parts.labels, shards[i].labels);
    append(parts.checksums, shards[i].checksums);
    parts.jpeg = parts.jpeg || shards[i].jpeg;
  }
  return parts;
}

// As the first training shard tells them; 0 if there is none.
std::int64_t training_channels(const std::string& spec, Io io) {
  const std::vector<std::string> paths = shard_paths(spec, Split::train);
  return paths.empty() ? 0 : TarSet(parts_of({paths[0]}, io)).image_shape()[2];
}

}  // namespace

bool has_tar_shards(const std::string& spec, Split split) {
  return !shard_paths(spec, split).empty();
}

std::unique_ptr<Dataset> open_tar(const std::string& spec, Split split,
                                  const OpenOptions& options) {
  const std::vector<std::string> paths = shard_paths(spec, split);
  if (paths.empty())
    fail<DataError>("{}: has no shards {}.tar, {}-*.tar or {}/*.tar", spec, name(split),
                    name(split), name(split));
  PackedParts parts = parts_of(paths, options.io);
  parts.path = fmt::format("{}:{}", spec, name(split));
  if (split == Split::test) parts.channels = training_channels(spec, options.io);
  parts.classes = classes_of(spec, split, parts.labels);
  check_labels(parts.labels, parts.classes.size(), parts.path);
  return std::make_unique<TarSet>(std::move(parts));
}

}  // namespace warpstep::data
