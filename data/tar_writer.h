// Writes shards of tar and their indices.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "data/tar_index.h"
#include "engine/core/file.h"

namespace warpstep::data {

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
