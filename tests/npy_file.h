// Writes .npy files for tests.
#pragma once

#include <array>
#include <span>
#include <string>

#include "data/formats/npy.h"
#include "engine/core/file.h"

namespace warpstep::data::testing {

inline void write_npy(const std::string& path, StoredType type,
                      std::span<const std::uint64_t> shape, std::span<const std::uint8_t> bytes) {
  const std::string begin = npy_beginning(type, shape);
  write_atomically(path, std::array{std::as_bytes(std::span(begin)), std::as_bytes(bytes)});
}

}  // namespace warpstep::data::testing
