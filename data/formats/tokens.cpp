#include "data/formats/tokens.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include "data/formats/npy.h"
#include "engine/core/error.h"

namespace warpstep::data {
namespace {

std::string safetensors_path(const std::string& spec, Split split) {
  return fmt::format("{}/{}.safetensors", spec, name(split));
}
std::string npy_path(const std::string& spec, Split split) {
  return fmt::format("{}/{}-tokens.npy", spec, name(split));
}

void check_tensor(const std::string& path, StoredType type,
                  const std::vector<std::uint64_t>& shape) {
  if ((type != StoredType::u16 && type != StoredType::u32) || shape.size() != 1 || shape[0] == 0)
    fail<DataError>("{}: tokens are {} [{}], but must be U16 or U32 [n], n at least 1", path,
                    name(type), fmt::join(shape, ","));
}

template <class Token>
void convert(std::span<const std::uint8_t> bytes, std::span<std::int32_t> tokens,
             const std::string& path, std::uint64_t begin) {
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    Token value = 0;
    std::memcpy(&value, bytes.data() + i * sizeof value, sizeof value);  // may be unaligned
    if (value > static_cast<std::uint32_t>(std::numeric_limits<std::int32_t>::max()))
      fail<DataError>("{}: token {} is {}; at most 2^31 - 1 is allowed", path, begin + i, value);
    tokens[i] = static_cast<std::int32_t>(value);
  }
}

}  // namespace

TokenSet::TokenSet(std::unique_ptr<MappedFile> file, StoredType type, std::uint64_t offset,
                   std::uint64_t size)
    : file_(std::move(file)), type_(type), offset_(offset), size_(size) {}

std::uint32_t TokenSet::token(std::uint64_t i) const {
  std::vector<std::uint8_t> scratch;
  const std::uint64_t bytes = size_bytes(type_);
  std::uint32_t value = 0;
  std::memcpy(&value, file_->view(offset_ + i * bytes, bytes, scratch).data(), bytes);
  return value;
}

std::uint64_t TokenSet::fingerprint() const {
  Hash hash;
  hash.add(size_);
  const std::uint64_t hashed = std::min<std::uint64_t>(size_, 65536);
  for (std::uint64_t i = 0; i < hashed; ++i) hash.add(std::uint64_t{token(size_ / hashed * i)});
  return hash.value();
}

void TokenSet::read(std::uint64_t begin, std::span<std::int32_t> tokens) const {
  if (begin > size_ || tokens.size() > size_ - begin)
    fail<DataError>("{}: has {} tokens, too few for {} from number {} on", path(), size_,
                    tokens.size(), begin);
  std::vector<std::uint8_t> scratch;
  const std::uint64_t bytes = size_bytes(type_);
  const auto view = file_->view(offset_ + begin * bytes, tokens.size() * bytes, scratch);
  if (type_ == StoredType::u16)
    convert<std::uint16_t>(view, tokens, path(), begin);
  else
    convert<std::uint32_t>(view, tokens, path(), begin);
}

bool has_tokens(const std::string& spec, Split split) {
  const std::string path = safetensors_path(spec, split);
  return exists(npy_path(spec, split)) ||
         (exists(path) && SafetensorsFile(path).find("token") != nullptr);
}

TokenSet open_tokens(const std::string& spec, Split split, const OpenOptions& options) {
  std::string path = npy_path(spec, split);
  if (exists(path)) {
    auto file = std::make_unique<MappedFile>(path, options.io);
    const NpyArray array = read_npy_header(*file);
    check_tensor(path, array.type, array.shape);
    return {std::move(file), array.type, array.offset, array.shape[0]};
  }
  path = safetensors_path(spec, split);
  if (!exists(path))
    fail<DataError>("{}: there is no such file, and no {}", path, npy_path(spec, split));
  const SafetensorsFile header(path);
  const StoredTensor& tensor = header.at("token");
  check_tensor(path, tensor.type, tensor.shape);
  return {std::make_unique<MappedFile>(path, options.io), tensor.type, tensor.offset,
          tensor.shape[0]};
}

}  // namespace warpstep::data
