// Labels and class names out of arrays and text files.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/safetensors.h"

namespace warpstep::data {

// Little-endian integers of any StoredType but floats and truth values, as labels. Throws DataError
// naming `where` and the sample for one outside [0, 65536).
std::vector<std::int32_t> read_labels(StoredType type, std::span<const std::uint8_t> bytes,
                                      const std::string& where);

// The names in folder/classes.txt, one a line, that of class 0 first; empty when there is no such
// file. Throws DataError for an empty line, a name twice and more than 65536 names.
std::vector<std::string> read_class_names(const std::string& folder);

// "0", "1", ... up to the highest label.
std::vector<std::string> numbered_classes(std::span<const std::int32_t> labels);

// Throws DataError naming `where` and the sample when a label is not below `classes`.
void check_labels(std::span<const std::int32_t> labels, std::size_t classes,
                  const std::string& where);

}  // namespace warpstep::data
