// Data sets in safetensors files: decoded images, or encoded samples with their offsets.
#include <fmt/ranges.h>

#include <cstring>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>
#include <vector>

#include "data/decode/image.h"
#include "data/formats/formats.h"
#include "data/formats/labels.h"
#include "data/formats/many.h"
#include "engine/core/error.h"
#include "engine/core/json_text.h"
#include "engine/files/safetensors.h"

namespace warpstep::data {
namespace {

std::string path_of(const std::string& spec, Split split) {
  return fmt::format("{}/{}.safetensors", spec, name(split));
}

// A file and its mapped data; SafetensorsFile has checked the tensors' offsets against the size.
struct Open {
  Open(const std::string& path, Io io)
      : header(path), file(std::make_unique<MappedFile>(path, io)) {}

  std::span<const std::uint8_t> bytes(const StoredTensor& tensor) {
    return file->view(tensor.offset, tensor.bytes, scratch);
  }
  const std::string& path() const { return file->path(); }

  SafetensorsFile header;
  std::unique_ptr<MappedFile> file;
  std::vector<std::uint8_t> scratch;
};

// The tensor of this name, which must be `type` [count].
const StoredTensor& column(const Open& open, const char* tensor_name, StoredType type,
                           std::uint64_t count) {
  const StoredTensor& tensor = open.header.at(tensor_name);
  if (tensor.type != type || tensor.shape != std::vector{count})
    fail<DataError>("{}: tensor {} is {} [{}], but must be {} [{}]", open.path(), tensor_name,
                    name(tensor.type), fmt::join(tensor.shape, ","), name(type), count);
  return tensor;
}

std::vector<std::int32_t> labels_of(Open& open) {
  const StoredTensor& tensor = open.header.at("label");
  if (tensor.shape.size() != 1)
    fail<DataError>("{}: tensor label has the shape [{}]; labels must have one dimension",
                    open.path(), fmt::join(tensor.shape, ","));
  return read_labels(tensor.type, open.bytes(tensor), open.path());
}

// The metadata's class names; empty when it has none.
std::vector<std::string> class_names_of(const Open& open) {
  const auto found = open.header.metadata().find("classes");
  if (found == open.header.metadata().end()) return {};
  constexpr std::size_t most_bytes = std::size_t{1} << 24;  // as of classes.txt
  const std::string_view text = found->second;
  const auto json = parse_json<nlohmann::json>(text.size() <= most_bytes ? text : "");
  std::vector<std::string> names;
  if (json.is_array()) {
    for (const auto& entry : json) {
      if (!entry.is_string()) break;
      names.push_back(entry.get<std::string>());
    }
  }
  const std::set<std::string> different(names.begin(), names.end());
  if (names.empty() || names.size() != json.size() || different.size() != names.size())
    fail<DataError>("{}: the metadata's \"classes\" is not a JSON array of different names",
                    open.path());
  return names;
}

// Reads labels and classes. Where neither split names classes, the training split defines their
// number.
void read_columns(Open& open, const std::string& spec, Split split, const OpenOptions& options,
                  std::vector<std::int32_t>& labels, std::vector<std::string>& classes) {
  labels = labels_of(open);
  classes = class_names_of(open);
  const std::string train = path_of(spec, Split::train);
  if (split == Split::test && exists(train)) {
    Open other(train, options.io);
    const std::vector<std::string> deciding = class_names_of(other);
    if (!classes.empty() && !deciding.empty() && classes != deciding)
      fail<DataError>("{}: {}", open.path(), other_classes(classes, deciding));
    if (classes.empty()) classes = deciding.empty() ? numbered_classes(labels_of(other)) : deciding;
  }
  if (classes.empty()) classes = numbered_classes(labels);
  check_labels(labels, classes.size(), open.path());
}

std::vector<std::uint32_t> checksums_of(Open& open, std::uint64_t count) {
  std::vector<std::uint32_t> checksums;
  if (open.header.find("crc32c") == nullptr) return checksums;
  const auto bytes = open.bytes(column(open, "crc32c", StoredType::u32, count));
  checksums.resize(count);
  if (count > 0) std::memcpy(checksums.data(), bytes.data(), bytes.size());
  return checksums;
}

std::unique_ptr<Dataset> open_decoded(Open open, MappedParts parts) {
  const StoredTensor& image = open.header.at("image");
  if (image.type != StoredType::u8 || image.shape.size() != 4)
    fail<DataError>("{}: tensor image is {} [{}], but must be U8 [samples,height,width,channels]",
                    open.path(), name(image.type), fmt::join(image.shape, ","));
  if (image.shape[0] != parts.labels.size())
    fail<DataError>("{}: has {} images, but there are {} labels", open.path(), image.shape[0],
                    parts.labels.size());
  parts.kind = "safetensors";
  parts.shape = image_shape_of(image.shape[1], image.shape[2], image.shape[3], open.path());
  parts.offset = image.offset;
  parts.checksums = checksums_of(open, image.shape[0]);
  parts.file = std::move(open.file);
  return std::make_unique<MappedImages>(std::move(parts));
}

void read_offsets(Open& open, std::uint64_t begin, std::uint64_t end, PackedParts& parts) {
  const std::uint64_t count = parts.labels.size();
  const auto bytes = open.bytes(column(open, "offset", StoredType::u64, count + 1));
  const auto offset = [&](std::uint64_t i) {
    std::uint64_t value = 0;
    std::memcpy(&value, bytes.data() + i * sizeof value, sizeof value);
    return value;
  };
  if (offset(0) != 0 || offset(count) != end - begin)
    fail<DataError>("{}: offsets are from {} to {}, but must cover the data's {} bytes",
                    open.path(), offset(0), offset(count), end - begin);
  parts.offsets.reserve(count);
  parts.lengths.reserve(count);
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::uint64_t from = offset(i);
    const std::uint64_t to = offset(i + 1);
    if (to < from || to > end - begin || to - from > max_encoded_bytes)
      fail<DataError>("{}: sample {} is at data bytes {} to {}; offsets must rise, by {} at most",
                      open.path(), i, from, to, max_encoded_bytes);
    parts.offsets.push_back(begin + from);
    parts.lengths.push_back(static_cast<std::uint32_t>(to - from));
  }
}

std::unique_ptr<Dataset> open_encoded(Open open, PackedParts parts) {
  const StoredTensor& data = open.header.at("data");
  if (data.type != StoredType::u8 || data.shape.size() != 1)
    fail<DataError>("{}: tensor data is {} [{}], but must be U8 [bytes]", open.path(),
                    name(data.type), fmt::join(data.shape, ","));
  const auto found = open.header.metadata().find("encoding");
  if (found != open.header.metadata().end()) {
    if (found->second != "png" && found->second != "jpeg" && found->second != "mixed")
      fail<DataError>("{}: the metadata's encoding is '{}'; must be png, jpeg or mixed",
                      open.path(), shown(found->second));
    parts.jpeg = found->second != "png";
  }
  parts.kind = "safetensors of encoded samples";
  parts.path = open.path();
  read_offsets(open, data.offset, data.offset + data.bytes, parts);
  parts.checksums = checksums_of(open, parts.labels.size());
  parts.firsts = {0};
  parts.files.push_back(std::move(open.file));
  return std::make_unique<PackedSamples>(std::move(parts));
}

}  // namespace

std::string class_metadata(const std::vector<std::string>& names) try {
  std::string list;
  for (const std::string& name : names) list += (list.empty() ? "" : ",") + strictly_quoted(name);
  return "[" + list + "]";
} catch (const nlohmann::json::exception&) {
  return {};
}

bool has_safetensors(const std::string& spec, Split split) {
  return exists(path_of(spec, split));
}

std::unique_ptr<Dataset> open_safetensors(const std::string& spec, Split split,
                                          const OpenOptions& options) {
  Open open(path_of(spec, split), options.io);
  const bool decoded = open.header.find("image") != nullptr;
  if (!decoded && open.header.find("data") == nullptr) {
    if (open.header.find("token") != nullptr)
      fail<DataError>(
          "{}: holds tokens, not images; train a language model on them, such as gpt2-nano",
          open.path());
    fail<DataError>("{}: has neither a tensor image nor data; is it a checkpoint?", open.path());
  }
  if (decoded) {
    MappedParts parts;
    read_columns(open, spec, split, options, parts.labels, parts.classes);
    return open_decoded(std::move(open), std::move(parts));
  }
  PackedParts parts;
  read_columns(open, spec, split, options, parts.labels, parts.classes);
  if (split == Split::test && has_safetensors(spec, Split::train))
    parts.channels = open_safetensors(spec, Split::train, options)->image_shape()[2];
  return open_encoded(std::move(open), std::move(parts));
}

}  // namespace warpstep::data
