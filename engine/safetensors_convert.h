// One safetensors file into another: other names, another precision, without an optimiser's
// tensors.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/safetensors.h"

namespace warpstep {

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
