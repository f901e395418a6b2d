// What the bytes of a tensor mean: numbers out of them and into them, their statistics, and the
// checksums that our own files keep. A tensor is read a piece at a time, however large it is.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "engine/safetensors.h"

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

}  // namespace warpstep
