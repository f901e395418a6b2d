// The values in a tensor's bytes: conversion between bytes and numbers, statistics, the checksums
// in Warpstep's own files, and conversion of whole files. Large tensors are read in pieces.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/core/text.h"
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

// Calls `visit` with the tensor's values in pieces of at most 131,072. If the file has a checksum
// of them, it is checked: a wrong one throws DataError after the last piece.
void for_each_piece(const SafetensorsFile& file, const StoredTensor& tensor,
                    const std::function<void(std::span<const float>)>& visit);

// All values; DataError as above. The caller ensures that they fit in memory.
std::vector<float> read_values(const SafetensorsFile& file, const StoredTensor& tensor);

struct TensorStatistics {
  std::uint64_t nan = 0, infinite = 0, finite = 0;  // elements
  double min = 0, max = 0, mean = 0, std = 0;  // of the finite ones; std divides by their count
};
TensorStatistics statistics(const SafetensorsFile& file, const StoredTensor& tensor);

// FNV-1a over 32-bit words: any one changed word changes it. About 1 ns per value, less than the
// disk.
class ValueChecksum {
 public:
  void add(std::span<const float> values);
  std::string text() const;  // 16 hexadecimal digits

 private:
  std::uint64_t hash_ = 0xcbf29ce484222325;
};
// Of tensor names in Warpstep's checkpoints: the optimiser's tensors and the averaged weights.
inline constexpr std::string_view optimizer_prefix = "optimizer.";
inline constexpr std::string_view average_prefix = "ema.";

struct ConvertOptions {
  // F32, F16 or BF16: the new type of the floating-point tensors; none: unchanged.
  std::optional<StoredType> type;
  bool drop_optimizer = false;
  // Of a tensor that a checkpoint has an average of, the average. Goes with drop_optimizer, which
  // leaves out averages by their own names.
  bool use_average = false;
  std::string strip_prefix;  // from the names that begin with it
  // Of whole names, or of their beginning up to a dot: {"fc", "head"} renames fc.bias to head.bias.
  std::vector<std::pair<std::string, std::string>> renames;
  // Tensors to add after that, by name and shape; all elements are 0.
  std::vector<StoredTensor> zeros{};
};

struct ConvertReport {
  std::size_t tensors = 0, stripped = 0, renamed = 0, converted = 0;
  std::size_t dropped = 0;                 // tensors of the optimiser
  std::size_t averages = 0, averaged = 0;  // those that the file has, and those in place of weights
  std::uint64_t bytes = 0;                 // of the written file
  std::uint64_t infinite = 0;  // values that were finite and are beyond the new type's range
};

// For a person, if ConvertReport::infinite is above 0; `type`: "f16".
inline std::string infinite_warning(std::uint64_t infinite, std::string_view type) {
  return fmt::format(
      "warning: {} beyond the range of {} became infinite; bf16 has the range of f32",
      counted(infinite, "value"), type);
}

// Writes the tensors of `in` to `out` with other names or another precision: atomically, with one
// piece of a tensor in memory at a time, in the order of `in` but wide elements first. Of
// Warpstep's own metadata only the model's name is kept, as the rest describes the old values and
// names. Throws UsageError for `out` equal to `in`, a prefix or a name that no tensor has, and two
// tensors of one name; DataError if `in` cannot be read or fails a checksum, or `out` cannot be
// written.
ConvertReport convert_safetensors(const std::filesystem::path& in, const std::filesystem::path& out,
                                  const ConvertOptions& options);

}  // namespace warpstep
