#include "engine/safetensors.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <new>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "engine/core/error.h"
#include "engine/safetensors_header.h"

namespace warpstep {
namespace {

using namespace safetensors;

static_assert(std::endian::native == std::endian::little, "the format's bytes are little-endian");

std::string json_text(const std::filesystem::path& path, std::string_view text) {
  try {
    return nlohmann::json(text).dump();
  } catch (const nlohmann::json::exception&) {
    fail<UsageError>("{}: {} is not UTF-8; names and metadata of safetensors must be",
                     path.string(), printable(text));
  }
}

void check(const std::filesystem::path& path, const StoredTensor& tensor) {
  std::uint64_t needed = 0;
  if (tensor.name == metadata_name)
    fail<UsageError>("{}: a tensor cannot be called {}", path.string(), metadata_name);
  if (!size_of(tensor.type, tensor.shape, needed) || needed != tensor.bytes)
    fail<UsageError>("{}: tensor {} has {} bytes, but its shape [{}] of {} takes {}", path.string(),
                     printable(tensor.name), tensor.bytes, fmt::join(tensor.shape, ","),
                     name(tensor.type), needed);
}

// What torch.save() writes, a zip of pickles or one pickle, cannot be read without running what it
// says, so it is not read at all.
void refuse_pickles(const InputFile& file) {
  std::array<std::byte, 4> begin{};
  file.read(0, begin);
  const bool zip = begin == std::array{std::byte{'P'}, std::byte{'K'}, std::byte{3}, std::byte{4}};
  const bool pickle =
      begin[0] == std::byte{0x80} && begin[1] >= std::byte{2} && begin[1] <= std::byte{5};
  if (!zip && !pickle) return;
  const std::string path = file.path().string();
  const std::string out = std::filesystem::path(path).replace_extension(".safetensors").string();
  fail<DataError>(
      "{}: is a {}, as torch.save() writes, which can run code when it is loaded; make a "
      "safetensors file of its state_dict, once: python3 -c 'import torch, safetensors.torch as s; "
      "s.save_file({{k: v.contiguous() for k, v in torch.load(\"{}\", map_location=\"cpu\", "
      "weights_only=True).items()}}, \"{}\", {{\"format\": \"pt\"}})'",
      path, zip ? "zip of pickles" : "pickle", path, out);
}

Header read_header(const InputFile& file) {
  const std::string path = file.path().string();
  if (file.bytes() < length_bytes)
    fail<DataError>("{}: not a safetensors file: {} bytes, and the header's length alone takes {}",
                    path, file.bytes(), length_bytes);
  std::uint64_t length = 0;
  file.read(0, std::as_writable_bytes(std::span(&length, 1)));
  const std::uint64_t rest = file.bytes() - length_bytes;
  if (length > rest || length > max_header_bytes) {
    refuse_pickles(file);
    fail<DataError>(
        "{}: byte 0: a header of {} bytes, but {}; the file is truncated or not safetensors", path,
        length,
        length > rest ? fmt::format("only {} follow", rest)
                      : fmt::format("at most {} are allowed", max_header_bytes));
  }
  std::string text(length, '\0');
  file.read(length_bytes, std::as_writable_bytes(std::span(text)));
  return parse_header(path, text, rest - length);
}

}  // namespace

std::string_view name(StoredType type) {
  switch (type) {
    case StoredType::f32: return "F32";
    case StoredType::f16: return "F16";
    case StoredType::bf16: return "BF16";
    case StoredType::f64: return "F64";
    case StoredType::u8: return "U8";
    case StoredType::u16: return "U16";
    case StoredType::u32: return "U32";
    case StoredType::u64: return "U64";
    case StoredType::i8: return "I8";
    case StoredType::i16: return "I16";
    case StoredType::i32: return "I32";
    case StoredType::i64: return "I64";
    case StoredType::boolean: return "BOOL";
  }
  return "?";
}

std::size_t size_bytes(StoredType type) {
  switch (type) {
    case StoredType::u8:
    case StoredType::i8:
    case StoredType::boolean: return 1;
    case StoredType::f16:
    case StoredType::bf16:
    case StoredType::u16:
    case StoredType::i16: return 2;
    case StoredType::f32:
    case StoredType::u32:
    case StoredType::i32: return 4;
    case StoredType::f64:
    case StoredType::i64:
    case StoredType::u64: return 8;
  }
  return 0;
}

StoredType stored_type(DType dtype) {
  switch (dtype) {
    case DType::f32: return StoredType::f32;
    case DType::f16: return StoredType::f16;
    case DType::bf16: return StoredType::bf16;
    case DType::u8: return StoredType::u8;
    case DType::i32: return StoredType::i32;
  }
  fail<UsageError>("element type {} has no name in safetensors", static_cast<int>(dtype));
}

std::string safetensors_beginning(const std::filesystem::path& path,
                                  std::span<const StoredTensor> tensors, const Metadata& metadata,
                                  std::size_t least_bytes) {
  std::string text(length_bytes, '\0');
  std::vector<std::string> entries;
  if (!metadata.empty()) {
    for (const auto& [key, value] : metadata)
      entries.push_back(json_text(path, key) + ":" + json_text(path, value));
    entries = {fmt::format("\"{}\":{{{}}}", metadata_name, fmt::join(entries, ","))};
  }
  std::set<std::string_view> names;
  std::uint64_t begin = 0;
  for (const StoredTensor& tensor : tensors) {
    check(path, tensor);
    if (!names.insert(tensor.name).second)
      fail<UsageError>("{}: two tensors are called {}", path.string(), printable(tensor.name));
    const std::uint64_t end = begin + tensor.bytes;
    entries.push_back(fmt::format(R"({}:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})",
                                  json_text(path, tensor.name), name(tensor.type),
                                  fmt::join(tensor.shape, ","), begin, end));
    begin = end;
  }
  text += fmt::format("{{{}}}", fmt::join(entries, ","));
  text.resize((std::max(text.size(), least_bytes) + 7) / 8 * 8, ' ');
  const std::uint64_t length = text.size() - length_bytes;
  if (length > max_header_bytes)
    fail<UsageError>("{}: a header of {} bytes; readers accept at most {}", path.string(), length,
                     max_header_bytes);
  std::memcpy(text.data(), &length, length_bytes);
  return text;
}

void write_safetensors(const std::filesystem::path& path, std::span<const TensorToStore> tensors,
                       const Metadata& metadata) {
  std::vector<StoredTensor> stored;
  for (const TensorToStore& tensor : tensors)
    stored.push_back({tensor.name, tensor.type, tensor.shape, 0, tensor.bytes.size()});
  const std::string header = safetensors_beginning(path, stored, metadata);
  std::vector<std::span<const std::byte>> parts = {std::as_bytes(std::span(header))};
  for (const TensorToStore& tensor : tensors) parts.push_back(tensor.bytes);
  write_atomically(path, parts);
}

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path) try : file_(path) {
  Header header = read_header(file_);
  metadata_ = std::move(header.metadata);
  tensors_ = std::move(header.tensors);
  for (std::size_t i = 0; i < tensors_.size(); ++i) index_.emplace(tensors_[i].name, i);
} catch (const std::bad_alloc&) {
  fail<DataError>("{}: out of memory while its header was read", path.string());
}

const StoredTensor* SafetensorsFile::find(std::string_view name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &tensors_[found->second];
}

const StoredTensor& SafetensorsFile::at(std::string_view name) const {
  if (const StoredTensor* tensor = find(name)) return *tensor;
  std::vector<std::string> some;
  for (std::size_t i = 0; i < tensors_.size() && i < 8; ++i)
    some.push_back(printable(tensors_[i].name));
  fail<DataError>("{}: no tensor {} among its {}: {}{}", path().string(), printable(name),
                  tensors_.size(), fmt::join(some, ", "), tensors_.size() > 8 ? ", ..." : "");
}

void SafetensorsFile::read(const StoredTensor& tensor, std::span<std::byte> out) const {
  if (out.size() != tensor.bytes)
    fail<UsageError>("{}: tensor {} has {} bytes, {} were asked for", path().string(),
                     printable(tensor.name), tensor.bytes, out.size());
  file_.read(tensor.offset, out);
}

void SafetensorsFile::read_part(const StoredTensor& tensor, std::uint64_t begin,
                                std::span<std::byte> out) const {
  if (begin > tensor.bytes || out.size() > tensor.bytes - begin)
    fail<UsageError>("{}: tensor {} has {} bytes, {} from {} on were asked for", path().string(),
                     printable(tensor.name), tensor.bytes, out.size(), begin);
  file_.read(tensor.offset + begin, out);
}

}  // namespace warpstep
