// Files and folders, with errors that name the path.
#pragma once

#include <sys/stat.h>

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <vector>

#include "engine/core/error.h"
#include "engine/core/thread.h"

namespace warpstep::data {

// How the files of a set that holds many samples a file are read.
enum class Io : std::uint8_t {
  mmap,  // views into the page cache: no copy; a file that is cut meanwhile ends the program
  pread  // a copy a view; a file that is cut meanwhile is a DataError; for network mounts
};

// An open file's number, closed at the end.
class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor(Descriptor&& other) noexcept : number_(other.release()) {}
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (number_ >= 0) close();
  }
  int number() const { return number_; }  // -1: there is none
  int close();                            // what close(2) gives
  int release();                          // to another owner

 private:
  int number_;
};

// Opens a regular file for reading. Throws DataError at once for a FIFO or a device, which would
// keep a reader waiting. `status`, if not null, receives what fstat(2) says.
Descriptor open_regular(const std::string& path, struct ::stat* status = nullptr);

// Reads a whole regular file into `bytes`, whose capacity is kept: the loader reads a file for
// every sample. Throws DataError when it cannot be read or is longer than `limit_bytes`.
void read_into(std::vector<std::uint8_t>& bytes, const std::string& path,
               std::uint64_t limit_bytes = std::uint64_t{1} << 31);

// Writes a file that is not waited for: for many small ones in a folder that is renamed when whole.
// Throws DataError, and leaves nothing behind then.
void write_quickly(const std::string& path, std::span<const std::uint8_t> bytes);

struct Entry {
  std::string name;
  bool folder = false;
  std::uint64_t bytes = 0;
  std::int64_t modified_ns = 0;  // the last write, since 1970
};

// What a folder holds, sorted by name; names that begin with a dot are left out. Throws DataError.
std::vector<Entry> list_folder(const std::string& path);

// Whether a folder holds a name that ends so; false when there is no such folder. Looks at names
// alone: a folder of a million files takes 0.2 s.
bool has_name_ending(const std::string& path, std::string_view ending);

// The last write that fstat(2) tells of.
std::int64_t modified_ns(const struct ::stat& status);

bool is_folder(const std::string& path);
bool exists(const std::string& path);

// "a, b, c and 7 more", for messages.
std::string first_few(std::span<const std::string> names);

// Names out of a file, made fit for a message: control characters as \xNN, cut at 200 bytes.
std::string printable(std::string_view text);

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

// The same work for many indices on many threads.

// Calls work(thread, index) for every index below count, in any order, on `workers` threads (0: all
// cores). The first exception ends it and is thrown here.
inline void parallel_for(std::uint64_t count, int workers,
                         const std::function<void(int, std::uint64_t)>& work) {
  if (workers <= 0) workers = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  std::atomic<std::uint64_t> next{0};
  std::mutex mutex;
  std::exception_ptr error;
  const auto run = [&](int thread) {
    try {
      for (std::uint64_t i = next.fetch_add(1); i < count; i = next.fetch_add(1)) work(thread, i);
    } catch (...) {
      next.store(count);
      const std::lock_guard lock(mutex);
      if (!error) error = std::current_exception();
    }
  };
  {
    std::vector<std::jthread> threads;
    const SignalsBlocked blocked;  // no handler may run in them
    try {
      for (int thread = 1; thread < workers; ++thread) threads.emplace_back(run, thread);
    } catch (const std::system_error& reason) {
      next.store(count);
      fail<Error>("a thread cannot be started: {}; use fewer --workers", reason.code().message());
    }
    run(0);
  }
  if (error) std::rethrow_exception(error);
}

}  // namespace warpstep::data
