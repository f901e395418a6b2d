// The files that `warpstep data pack` and `tokenize` write: a folder that appears when it is
// complete, files that grow while they are written, tar shards with their indices.
#pragma once

#include <cstdint>
#include <filesystem>
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

// A temporary folder next to `out`, .NAME.tmp-RANDOM, which commit() renames to it; without that it
// is removed with its files. Throws DataError when `out` exists and is not an empty folder that can
// be replaced; other failures are std::filesystem::filesystem_error.
class NewFolder {
 public:
  explicit NewFolder(const std::string& out);
  NewFolder(const NewFolder&) = delete;
  NewFolder& operator=(const NewFolder&) = delete;
  ~NewFolder();
  std::string path() const { return folder_.string(); }
  void commit();

 private:
  std::filesystem::path out_, folder_;
};

// A new file whose beginning, of `begin` bytes, is written last. Complete only after finish().
// Throws DataError with the path, the bytes and the free space.
class StreamedFile {
 public:
  StreamedFile(std::string path, std::uint64_t begin);  // an error if it exists

  void append(std::span<const std::uint8_t> bytes);  // after the beginning
  std::uint64_t appended() const { return appended_; }
  void put(std::uint64_t offset, std::span<const std::byte> bytes);
  void finish();  // syncs the file to disk
  const std::string& path() const { return path_; }

 private:
  void flush();
  [[noreturn]] void fail_with(int error) const;

  std::string path_;
  std::uint64_t begin_ = 0;
  std::uint64_t appended_ = 0;
  Descriptor file_;
  std::vector<std::uint8_t> buffer_;
};

// Small tensors that are kept in memory (columns), then one that is appended to. The file is
// complete only after finish(): write it in a folder that is renamed afterwards. Throws DataError
// with the path.
class SafetensorsStream {
 public:
  struct Column {
    std::string name;
    StoredType type = StoredType::u8;
    std::vector<std::uint64_t> shape;
    std::span<const std::byte> bytes;  // not owned; read by finish()
  };

  // The columns' names, types and shapes must be final. `grown` is the name of the last tensor, U8
  // of shape [n, more_extents]; the appended bytes determine n.
  SafetensorsStream(std::string path, std::span<const Column> columns, std::string grown,
                    std::vector<std::uint64_t> more_extents, Metadata metadata);

  void append(std::span<const std::uint8_t> bytes) { file_.append(bytes); }
  // The value must not be longer than in the constructor's metadata.
  void set_metadata(const std::string& key, std::string value) {
    metadata_[key] = std::move(value);
  }
  // Writes the header and the columns, which are those of the constructor with their content, and
  // syncs the file to disk.
  void finish(std::span<const Column> columns);
  std::uint64_t bytes() const { return data_begin_ + file_.appended(); }

 private:
  std::string beginning(std::span<const Column> columns, std::uint64_t rows,
                        std::size_t least_bytes) const;

  std::string path_;
  std::string grown_;
  std::vector<std::uint64_t> more_extents_;
  Metadata metadata_;
  std::size_t header_bytes_;
  std::uint64_t data_begin_;
  StreamedFile file_;
};

// Shards PREFIX-000000.tar, PREFIX-000001.tar, ..., each with its .idx; a shard gets its name when
// it is complete (AtomicFile). Equal samples give equal shards.
class TarWriter {
 public:
  struct Member {
    std::string name;
    std::span<const std::uint8_t> bytes;
  };

  // Starts a new shard before the sample that would make one longer than `most_bytes`.
  TarWriter(std::string prefix, std::uint64_t most_bytes);

  // Adds the members of one sample. Throws DataError when writing fails.
  void add(std::span<const Member> sample);
  void finish();  // must be called last, once
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
  std::uint64_t at_ = 0;  // in the current shard
  std::string path_;      // of the current shard, without its ending
  std::unique_ptr<AtomicFile> file_;
  std::string buffer_;
  TarIndexText index_;
};

}  // namespace warpstep::data
