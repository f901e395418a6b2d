// Files read whole or in pieces, and files that appear whole or not at all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace warpstep {

// The whole content. Throws DataError when the file cannot be read or is longer than max_bytes.
std::string read_file(const std::filesystem::path& path,
                      std::uint64_t max_bytes = std::uint64_t{1} << 32);

// A regular file read by position. Unlike a mapping, a file that another process shortens meanwhile
// gives an error and not a SIGBUS.
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
  // Fills `out` from byte `offset` on. Throws DataError when the file ends before. Thread-safe.
  void read(std::uint64_t offset, std::span<std::byte> out) const;
  // The same, but gives how many bytes there were: fewer than asked for only at the file's end.
  std::size_t read_some(std::uint64_t offset, std::span<std::byte> out) const;

 private:
  std::filesystem::path path_;
  int descriptor_ = -1;
  std::uint64_t bytes_ = 0;
};

// open(2), made again where a signal interrupts it.
int open_file(const char* path, int flags, unsigned mode = 0);

// Opens a new file to be written as one goes: a file or a link that has the name is replaced, and
// no link is followed, so that nobody can direct the bytes elsewhere. -1, with errno, without one.
int create_file(const std::filesystem::path& path);

// Why this is no folder of the calling user's alone: a link, another owner, or a mode with one of
// the bits of `not_for_others` (022: nobody else may change it; 077: nor look into it). Empty: it
// is.
std::string folder_problem(const std::filesystem::path& folder, unsigned not_for_others);

// Brings the directory of a file to the disk, so that a power cut does not take back the file's
// name. Throws DataError that says so; a file system that cannot do that is taken as it is.
void sync_name(const std::filesystem::path& path);

// Writes beside `path` under a temporary name; commit() makes the bytes durable and gives them the
// name in one step. Whoever opens `path` sees the old file or the new one, whole, even after a
// power cut. Without a commit the temporary is removed by the destructor; only a process that is
// killed leaves one behind, named .NAME.tmp-PID-N. Errors are DataErrors with the path, the bytes
// and the system's reason, and leave the old file as it was.
class AtomicFile {
 public:
  // `expected_bytes` is for the messages alone; 0 when unknown.
  explicit AtomicFile(std::filesystem::path path, std::uint64_t expected_bytes = 0);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(std::span<const std::byte> part);
  void write(std::string_view part) { write(std::as_bytes(std::span(part))); }
  // fsync, rename, fsync of the directory; call it once, last. Where only the last one fails, the
  // error says that the new file is whole and may lose its name in a power cut.
  void commit();

 private:
  [[noreturn]] void fail_with(int error, std::string_view doing) const;

  std::filesystem::path path_;
  std::filesystem::path temporary_;
  std::uint64_t expected_bytes_;
  std::uint64_t written_bytes_ = 0;
  int descriptor_ = -1;
};

// The parts one after the other, without gathering them in memory first.
void write_atomically(const std::filesystem::path& path,
                      std::span<const std::span<const std::byte>> parts);
void write_atomically(const std::filesystem::path& path, std::string_view content);

}  // namespace warpstep
