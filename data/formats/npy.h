// NumPy's .npy files, one array per file, and the data set of an images file and a labels file.
// Described at https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "data/formats/dataset.h"
#include "data/io/mapped_file.h"
#include "engine/files/safetensors.h"

namespace warpstep::data {

struct NpyArray {
  StoredType type = StoredType::u8;  // u8, u16, u32, i32 or i64
  std::vector<std::uint64_t> shape;  // outermost first
  std::uint64_t offset = 0;          // of the first element in the file
  std::uint64_t bytes = 0;           // of all elements; the file ends after them
};

// Reads versions 1 to 3. Throws DataError naming the file and the byte for other types and byte
// orders, for Fortran order, and for data that is shorter or longer than the header says.
NpyArray read_npy_header(const MappedFile& file);

// The bytes before the elements, version 1: 128 for one extent below 2^60. UsageError for types
// other than NpyArray's.
std::string npy_beginning(StoredType type, std::span<const std::uint64_t> shape);

// spec/train-images.npy [n, h, w, 1 or 3] or [n, h, w] of uint8 with spec/train-labels.npy [n] of
// integers; test-... likewise. spec/classes.txt may name the classes.
bool has_npy_files(const std::string& spec, Split split);
std::unique_ptr<Dataset> open_npy(const std::string& spec, Split split, const OpenOptions& options);

}  // namespace warpstep::data
