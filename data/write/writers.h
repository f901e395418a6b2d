// Writes shards of tar and their indices.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "data/formats/tar.h"
#include "data/io/file.h"
#include "engine/core/file.h"
#include "engine/files/safetensors.h"

namespace warpstep::data {

// A safetensors file whose last tensor grows while it is written.

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

// Shards PREFIX-000000.tar, PREFIX-000001.tar, ..., each with its .idx and each under its name only
// when it is whole (core/file.h). Equal samples give equal shards.
class TarWriter {
 public:
  struct Member {
    std::string name;
    std::span<const std::uint8_t> bytes;
  };

  // A shard is closed before the sample that would make it longer than `most_bytes`.
  TarWriter(std::string prefix, std::uint64_t most_bytes);

  // The members of one sample. Throws DataError when writing fails.
  void add(std::span<const Member> sample);
  void finish();  // call it once, last
  std::uint64_t shards() const { return shards_; }
  std::uint64_t bytes() const { return all_bytes_; }  // of the closed shards

 private:
  void open_shard();
  void close_shard();
  void put(std::span<const std::uint8_t> bytes);
  void flush();

  std::string prefix_;
  std::uint64_t most_bytes_;
  std::uint64_t shards_ = 0;
  std::uint64_t all_bytes_ = 0;
  std::uint64_t at_ = 0;  // in the open shard
  std::string path_;      // of the open shard, without its ending
  std::unique_ptr<AtomicFile> file_;
  std::string buffer_;
  TarIndexText index_;
};

}  // namespace warpstep::data
