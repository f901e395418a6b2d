// CIFAR-10 in its binary version, decoded into memory when it is opened.
#include <array>
#include <string_view>
#include <vector>

#include "data/formats/formats.h"
#include "data/formats/memory.h"
#include "data/io/file.h"
#include "engine/core/error.h"

namespace warpstep::data {
namespace {

constexpr std::int64_t side = 32;
constexpr std::size_t plane_bytes = side * side;
constexpr std::size_t record_bytes = 1 + 3 * plane_bytes;  // label, then planes R, G, B
constexpr std::int32_t class_count = 10;

std::vector<Entry> batch_files(const std::string& folder, Split split) {
  std::vector<Entry> files = list_folder(folder);
  std::erase_if(files, [&](const Entry& file) {
    const bool train = file.name.starts_with("data_batch_") && file.name.ends_with(".bin");
    return split == Split::train ? !train : file.name != "test_batch.bin";
  });
  return files;
}

// `file` is overwritten: one buffer serves all files.
void append_batch(const std::string& path, std::vector<std::uint8_t>& file, MemoryParts& parts) {
  read_into(file, path);
  if (file.empty() || file.size() % record_bytes != 0) {
    fail<DataError>("{}: has {} bytes, not a multiple of a CIFAR-10 record's {}; copy it again",
                    path, file.size(), record_bytes);
  }
  for (std::size_t at = 0; at < file.size(); at += record_bytes) {
    if (file[at] >= class_count) {
      fail<DataError>("{}: byte {}: label {}, but CIFAR-10 has 0 to {}; is it another data set?",
                      path, at, file[at], class_count - 1);
    }
    parts.labels.push_back(file[at]);
    const std::uint8_t* planes = &file[at + 1];
    parts.pixels.resize(parts.pixels.size() + 3 * plane_bytes);
    std::uint8_t* pixels = parts.pixels.data() + parts.pixels.size() - 3 * plane_bytes;
    for (std::size_t i = 0; i < plane_bytes; ++i) {
      for (std::size_t c = 0; c < 3; ++c) pixels[3 * i + c] = planes[c * plane_bytes + i];
    }
  }
}

std::vector<std::string> class_names(const std::string& folder) {
  std::vector<std::string> names;
  const std::string path = folder + "/batches.meta.txt";
  if (!exists(path)) {
    for (int i = 0; i < class_count; ++i) names.push_back(std::to_string(i));
    return names;
  }
  std::vector<std::uint8_t> file;
  read_into(file, path, 65536);
  std::string_view rest(reinterpret_cast<const char*>(file.data()), file.size());
  while (!rest.empty()) {
    const std::size_t end = std::min(rest.find_first_of("\r\n"), rest.size());
    if (end > 0) names.emplace_back(rest.substr(0, end));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  if (names.size() != class_count) {
    fail<DataError>("{}: names {} classes, but CIFAR-10 has {}; copy it again", path, names.size(),
                    class_count);
  }
  return names;
}

}  // namespace

bool has_cifar_files(const std::string& folder, Split split) {
  return !batch_files(folder, split).empty();
}

std::unique_ptr<Dataset> open_cifar(const std::string& folder, Split split, const OpenOptions&) {
  MemoryParts parts{
      "CIFAR-10 binary",  fmt::format("{}:{}", folder, name(split)), Shape{side, side, 3}, {}, {},
      class_names(folder)};
  const std::vector<Entry> files = batch_files(folder, split);
  if (files.empty()) {
    fail<DataError>("{}: has no {}", folder,
                    split == Split::train ? "data_batch_*.bin" : "test_batch.bin");
  }
  std::uint64_t bytes = 0;
  for (const Entry& file : files) bytes += file.bytes;
  parts.pixels.reserve(bytes);
  std::vector<std::uint8_t> buffer;
  for (const Entry& file : files) append_batch(folder + "/" + file.name, buffer, parts);
  return std::make_unique<MemoryDataset>(std::move(parts));
}

}  // namespace warpstep::data
