// Files read whole or in pieces, and files that appear whole or not at all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace warpstep {

// The whole content. Throws DataError when the file cannot be read or is longer than max_bytes.
std::string read_file(const std::filesystem::path& path,
                      std::uint64_t max_bytes = std::uint64_t{1} << 32);

// A regular file read by position. Unlike a mapping, it gives an error and not a SIGBUS when
// another process shortens the file.
class InputFile {
 public:
  explicit InputFile(std::filesystem::path path);  // throws DataError
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;
  InputFile(InputFile&& other) noexcept;
  InputFile& operator=(InputFile&&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::uint64_t bytes() const { return bytes_; }  // when it was opened
  // Fills `out` from byte `offset` on. Throws DataError if the file ends before. Thread-safe.
  void read(std::uint64_t offset, std::span<std::byte> out) const;
  // The same, but returns the number of bytes read: fewer than requested only at the end of the
  // file.
  std::size_t read_some(std::uint64_t offset, std::span<std::byte> out) const;

 private:
  std::filesystem::path path_;
  int descriptor_ = -1;
  std::uint64_t bytes_ = 0;
};

// open(2), repeated when a signal interrupts it.
int open_file(const char* path, int flags, unsigned mode = 0);

// write(2) until all is written, or pwrite(2) to byte `at` on. Returns the bytes that were written:
// fewer only after an error, which errno names.
std::size_t write_all(int file, std::span<const std::byte> bytes,
                      std::optional<std::uint64_t> at = {});

// Opens a new file that is written bit by bit. An existing file or link of that name is replaced,
// and no link is followed, so that nobody can redirect the bytes. -1, with errno set, on failure.
int create_file(const std::filesystem::path& path);

// "; did you mean DIR?" for a folder beside the missing one whose name is nearly its own; else
// empty.
std::string nearest_folder(std::filesystem::path missing);

// Why this folder is not private to the calling user: a link, another owner, or a mode with one of
// the bits of `not_for_others` (022: nobody else may change it; 077: nor read it). Empty: it is
// private.
std::string folder_problem(const std::filesystem::path& folder, unsigned not_for_others);

// fsync(2), repeated when a signal interrupts it.
int sync_file(int file);

// Each flushes to the disk, for a power cut, and throws DataError on failure, but not for file
// systems that cannot do this, nor for a folder that the user may not read.
void sync_name(const std::filesystem::path& path);      // the name, in its directory
void sync_folder(const std::filesystem::path& folder);  // the names in it
// All files of the folder's file system: of very many small ones faster than each alone.
void sync_files_in(const std::filesystem::path& folder);

// Writes next to `path` under a temporary name; commit() makes the bytes durable and renames the
// file atomically. A reader of `path` sees either the old file or the new one, complete, even after
// a power cut. Without a commit the destructor removes the temporary; only a killed process leaves
// one behind, named .NAME.tmp-PID-N. Errors are DataErrors with the path, the bytes and the
// system's reason, and leave the old file unchanged; the new one takes over its permissions.
class AtomicFile {
 public:
  // Refuses what is no file, as a pipe. `expected_bytes` is for messages; 0 when unknown.
  explicit AtomicFile(std::filesystem::path path, std::uint64_t expected_bytes = 0);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(std::span<const std::byte> part);
  void write(std::string_view part) { write(std::as_bytes(std::span(part))); }
  // Over the first bytes that were written; not more than those.
  void rewrite_beginning(std::string_view part);
  // fsync, rename, fsync of the directory; call it once, last. If only the last one fails, the
  // error says that the new file is complete and may lose its name in a power cut.
  void commit();

 private:
  [[noreturn]] void fail_with(int error, std::string_view doing) const;

  std::filesystem::path path_;
  std::filesystem::path temporary_;
  std::uint64_t expected_bytes_;
  std::uint64_t written_bytes_ = 0;
  int descriptor_ = -1;
};

// Writes the parts one after the other, without joining them in memory first.
void write_atomically(const std::filesystem::path& path,
                      std::span<const std::span<const std::byte>> parts);
void write_atomically(const std::filesystem::path& path, std::string_view content);

}  // namespace warpstep
