// What the bytes of a tensor mean: numbers out of them and into them, their statistics, and the
// checksums that our own files keep. A tensor is read a piece at a time, however large it is.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/files/safetensors.h"

namespace warpstep {

bool is_float(StoredType type);

// IEEE 754 binary16 and bfloat16 as numbers, and the nearest of them to a number, ties to even;
// beyond the largest it is infinite.
float from_f16(std::uint16_t bits);
float from_bf16(std::uint16_t bits);
std::uint16_t to_f16(float value);
std::uint16_t to_bf16(float value);

// `bytes` hold exactly as many elements of `type` as the other span has numbers. Integers of 64
// bits, and F64 as floats, are rounded.
void decode(StoredType type, std::span<const std::byte> bytes, std::span<float> values);
void decode(StoredType type, std::span<const std::byte> bytes, std::span<double> values);
// F32, F16 or BF16; UsageError for others.
void encode(StoredType type, std::span<const float> values, std::span<std::byte> bytes);

// The tensor's values, a piece of at most some 100,000 at a time. Where the file has a checksum of
// them it is checked, and a DataError follows the last piece when it is wrong.
void for_each_piece(const SafetensorsFile& file, const StoredTensor& tensor,
                    const std::function<void(std::span<const float>)>& visit);

// All of them; DataError as above. The caller knows that so many fit.
std::vector<float> read_values(const SafetensorsFile& file, const StoredTensor& tensor);

struct TensorStatistics {
  std::uint64_t nan = 0, infinite = 0, finite = 0;  // elements
  double min = 0, max = 0, mean = 0, std = 0;  // of the finite ones; std divides by their count
};
TensorStatistics statistics(const SafetensorsFile& file, const StoredTensor& tensor);

// FNV-1a over 32-bit words: any one changed word changes it. Some 1 ns a value, less than the disk.
class ValueChecksum {
 public:
  void add(std::span<const float> values);
  std::string text() const;  // 16 hexadecimal digits

 private:
  std::uint64_t hash_ = 0xcbf29ce484222325;
};
inline constexpr std::string_view checksum_prefix = "warpstep.checksum.";  // of metadata
// The optimiser's tensors in our checkpoints, and the average of the weights.
inline constexpr std::string_view optimizer_prefix = "optimizer.";
inline constexpr std::string_view average_prefix = "ema.";

// One safetensors file into another: other names, another precision, without an optimiser's
// tensors.

struct ConvertOptions {
  // F32, F16 or BF16, of the floating-point tensors; none: as they are. Others stay as they are.
  std::optional<StoredType> type;
  bool drop_optimizer = false;
  std::string strip_prefix;  // from the names that begin with it
  // Of whole names, or of their beginning up to a dot: {"fc", "head"} makes fc.bias head.bias.
  std::vector<std::pair<std::string, std::string>> renames;
};

struct ConvertReport {
  std::size_t tensors = 0, dropped = 0, stripped = 0, renamed = 0, converted = 0;
  std::uint64_t bytes = 0;     // of the file that was written
  std::uint64_t infinite = 0;  // values that were finite and are beyond the new type's range
};

// Writes `out` whole or not at all, a piece of a tensor in memory at a time, in the order of `in`
// but for wide elements first. Our own metadata stay behind, but for the model's name: values and
// names are not those that they speak of. Throws UsageError for `out` that is `in`, a prefix or a
// name that no tensor has, and two tensors of one name; DataError for what cannot be read, has
// another checksum than it was saved with, or cannot be written.
ConvertReport convert_safetensors(const std::filesystem::path& in, const std::filesystem::path& out,
                                  const ConvertOptions& options);

}  // namespace warpstep
