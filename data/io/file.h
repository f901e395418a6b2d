// Files and folders with errors that name the path; hashes of their content.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace warpstep::data {

// How files that hold many samples are read.
enum class Io : std::uint8_t {
  mmap,  // views into the page cache, no copy; when the file is truncated meanwhile, the program
         // ends
  pread  // one copy per view; when the file is truncated meanwhile, a DataError; for network mounts
};

// An open file descriptor; closes it when it is destroyed.
class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor(Descriptor&& other) noexcept : number_(other.release()) {}
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (number_ >= 0) close();
  }
  int number() const { return number_; }  // -1: none
  int close();                            // returns the result of close(2)
  int release();                          // the caller closes it

 private:
  int number_;
};

// Opens a regular file for reading. Throws DataError at once for a FIFO or a device, which
// could block a reader. `status`, if not null, receives the result of fstat(2).
Descriptor open_regular(const std::string& path, struct ::stat* status = nullptr);

// Reads a whole regular file into `bytes` and keeps its capacity: the loader reads one file per
// sample. Throws DataError when it cannot be read or is longer than `limit_bytes`.
void read_into(std::vector<std::uint8_t>& bytes, const std::string& path,
               std::uint64_t limit_bytes = std::uint64_t{1} << 31);

// Writes a file without syncing it to disk: for many small files in a folder that is renamed when
// complete. After an error (DataError) no partial file is left.
void write_quickly(const std::string& path, std::span<const std::uint8_t> bytes);

struct Entry {
  std::string name;
  bool folder = false;
  std::uint64_t bytes = 0;
  std::int64_t modified_ns = 0;  // the last write, since 1970
};

// What list_folder() does with a name that leads to no file, as a link whose target was removed:
// refuses the folder, or lists it as an empty file, for a caller that reports each file it reads.
enum class Dangling : std::uint8_t { refuse, list };

// The entries of a folder, sorted by name, without names that begin with a dot. Throws DataError.
std::vector<Entry> list_folder(const std::string& path, Dangling dangling = Dangling::refuse);

// Whether a folder holds a name with this ending; false when there is no such folder. Reads only
// names: a folder of a million files takes 0.2 s.
bool has_name_ending(const std::string& path, std::string_view ending);

// The time of the last write, in ns since 1970.
std::int64_t modified_ns(const struct ::stat& status);

bool is_folder(const std::string& path);
bool exists(const std::string& path);
// Whether `path`, which need not exist, is `folder` or lies in it, also by way of links.
bool is_inside(const std::string& path, const std::string& folder);

// "a, b, c and 7 more", for messages.
std::string first_few(std::span<const std::string> names);

// Text from a file, safe to print: control characters as \xNN, cut at 200 bytes.
std::string shown(std::string_view text);

// Running 64-bit hash (FNV-1a) of everything that identifies a data set.
class Hash {
 public:
  void add(std::string_view text);  // with its length
  void add(std::uint64_t value);
  void add(std::span<const std::uint8_t> bytes);
  std::uint64_t value() const { return value_; }

 private:
  std::uint64_t value_ = 0xcbf29ce484222325;
};

}  // namespace warpstep::data
