// A safetensors file whose last tensor grows while it is written.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "data/file.h"
#include "engine/safetensors.h"

namespace warpstep::data {

// Small tensors, held in memory, then one that is written as it comes. The file is whole after
// finish() alone: write it in a folder that is renamed then. Errors are DataErrors with the path.
class SafetensorsStream {
 public:
  struct Column {
    std::string name;
    StoredType type = StoredType::u8;
    std::vector<std::uint64_t> shape;
    std::span<const std::byte> bytes;  // borrowed; read by finish()
  };

  // The columns' names, types and shapes must be final. `grown` is the name of the last tensor, U8,
  // of shape [n, more_extents]: as many n as bytes are appended.
  SafetensorsStream(std::string path, std::span<const Column> columns, std::string grown,
                    std::vector<std::uint64_t> more_extents, Metadata metadata);

  void append(std::span<const std::uint8_t> bytes);
  // A value that is no longer than the constructor's.
  void set_metadata(const std::string& key, std::string value) {
    metadata_[key] = std::move(value);
  }
  // Writes the columns, which are those of the constructor with their content, and the header, and
  // brings all to the disk.
  void finish(std::span<const Column> columns);
  std::uint64_t bytes() const { return data_begin_ + appended_; }

 private:
  std::string beginning(std::span<const Column> columns, std::uint64_t rows,
                        std::size_t least_bytes) const;
  void put(std::uint64_t offset, std::span<const std::byte> bytes);
  void flush();
  [[noreturn]] void fail_with(int error) const;

  std::string path_;
  std::string grown_;
  std::vector<std::uint64_t> more_extents_;
  Metadata metadata_;
  Descriptor file_;
  std::size_t header_bytes_ = 0;
  std::uint64_t data_begin_ = 0;
  std::uint64_t appended_ = 0;
  std::vector<std::uint8_t> buffer_;
};

}  // namespace warpstep::data
