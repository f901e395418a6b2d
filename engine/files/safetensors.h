// The safetensors format: named tensors and text in one file, read and written here. 8 bytes with
// the header's length, a JSON header {name: {dtype, shape, data_offsets}, "__metadata__": {text:
// text}}, then the data, all little-endian and row-major; see
// https://huggingface.co/docs/safetensors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/core/file.h"
#include "engine/core/types.h"

namespace warpstep {

// The element types that Warpstep writes and reads; others are refused with an error naming them.
enum class StoredType : std::uint8_t {
  f32,
  f16,
  bf16,
  f64,
  u8,
  u16,
  u32,
  u64,
  i8,
  i16,
  i32,
  i64,
  boolean
};

std::string_view name(StoredType type);   // as the format spells it: "F32"
std::size_t size_bytes(StoredType type);  // of one element
std::optional<StoredType> stored_type(std::string_view name);

using Metadata = std::map<std::string, std::string>;

// Metadata of Warpstep's own files: the checksums of tensors by their names, and under a name that
// no tensor can have that of the metadata, which covers all other entries "warpstep.*".
inline constexpr std::string_view checksum_prefix = "warpstep.checksum.";
inline constexpr const char* metadata_checksum_key = "warpstep.checksum.__metadata__";
std::string metadata_checksum(const Metadata& metadata);  // 8 hexadecimal digits

// A tensor to write; `bytes` are borrowed until the file is written. Of one of f32, `values` may
// fill them in when it is its turn, so that they are not in memory all the time.
struct TensorToStore {
  std::string name;
  StoredType type = StoredType::f32;
  std::vector<std::uint64_t> shape;  // outermost first
  std::span<const std::byte> bytes{};
  std::function<void(std::span<float>)> values{};
};

// Writes the tensors in the order given, atomically (core/file.h), without a copy of their bytes in
// memory. Equal arguments give equal files. Throws UsageError for a name that is duplicate,
// reserved or not UTF-8 and for bytes that do not fit the shape; DataError when writing fails.
// `seen` is called with each tensor that has `values`, and with them, and may replace entries of
// the metadata by others of the same length: the header is then written once more. With large ones
// it is called in a thread of its own, while they are written.
using SeeValues = std::function<void(const TensorToStore&, std::span<const float>, Metadata&)>;
void write_safetensors(const std::filesystem::path& path, std::span<const TensorToStore> tensors,
                       Metadata metadata = {}, const SeeValues& seen = {});

struct StoredTensor {
  std::string name;
  StoredType type = StoredType::f32;
  std::vector<std::uint64_t> shape;
  std::uint64_t offset = 0;  // of the first byte, in the file
  std::uint64_t bytes = 0;   // fits the shape
};

// The beginning of such a file, the length and the header, for tensors whose data follow each other
// in the order given (their offsets are ignored). Padded with spaces so that the data begins at a
// multiple of 8 and the beginning is at least `least_bytes` long: room for a shape that is known
// only after its data is written. Throws UsageError as write_safetensors does.
std::string safetensors_beginning(const std::filesystem::path& path,
                                  std::span<const StoredTensor> tensors, const Metadata& metadata,
                                  std::size_t least_bytes = 0);

// A file whose header is validated before any tensor is read: every tensor fits its shape, and
// together they cover the data without a hole or an overlap. Allocates in proportion to the
// header's actual size, even if the header claims another one. If the metadata has a checksum, it
// is checked.
class SafetensorsFile {
 public:
  // Throws DataError naming the file, the tensor and the byte.
  explicit SafetensorsFile(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return file_.path(); }
  const Metadata& metadata() const { return metadata_; }
  const std::vector<StoredTensor>& tensors() const { return tensors_; }  // in the data's order
  const StoredTensor* find(std::string_view name) const;                 // null when there is none
  const StoredTensor& at(std::string_view name) const;                   // throws DataError

  // Fills `out`, which must have tensor.bytes bytes. Throws DataError.
  void read(const StoredTensor& tensor, std::span<std::byte> out) const;
  // The same from the tensor's byte `begin`; the tensor must have out.size() bytes from there.
  void read_part(const StoredTensor& tensor, std::uint64_t begin, std::span<std::byte> out) const;

 private:
  InputFile file_;
  Metadata metadata_;
  std::vector<StoredTensor> tensors_;
  std::map<std::string, std::size_t, std::less<>> index_;
};

// A tensor's name for messages: quoted, made printable, cut when long.
std::string printable_name(std::string_view name);

}  // namespace warpstep
