#include "data/label_array.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <string_view>

#include "data/file.h"
#include "engine/core/error.h"

namespace warpstep::data {
namespace {

constexpr std::uint64_t max_classes = 65536;

template <class Integer>
std::vector<std::int32_t> convert(std::span<const std::uint8_t> bytes, const std::string& where) {
  std::vector<std::int32_t> labels(bytes.size() / sizeof(Integer));
  for (std::size_t i = 0; i < labels.size(); ++i) {
    Integer value = 0;
    std::memcpy(&value, bytes.data() + i * sizeof value, sizeof value);  // may be unaligned
    if (static_cast<std::uint64_t>(value) >= max_classes)  // negative ones are huge then
      fail<DataError>("{}: sample {} has label {}; labels go from 0 to {} at most", where, i, value,
                      max_classes - 1);
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
    default: fail<DataError>("{}: labels of {}; they must be integers", where, name(type));
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
      fail<DataError>("{}: line {} is empty; each names a class", path, names.size() + 1);
    if (!seen.insert(line).second)
      fail<DataError>("{}: line {}: the name '{}' stands twice", path, names.size() + 1,
                      printable(line));
    names.emplace_back(line);
  }
  if (names.empty() || names.size() > max_classes)
    fail<DataError>("{}: names {} classes, allowed are 1 to {}", path, names.size(), max_classes);
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
    if (static_cast<std::size_t>(labels[i]) >= classes)
      fail<DataError>("{}: sample {} has label {}, but the data set has {} classes: 0 to {}", where,
                      i, labels[i], classes, classes - 1);
  }
}

}  // namespace warpstep::data
