// Preloaded into a program, makes one system call fail, or all from one on; environment variables
// say which. Counts and injected failures are in a file that survives any end of the program.
//
//   WARPSTEP_FAULT_BELOW   a folder: only calls whose path lies below it; "thread" has no path
//   WARPSTEP_FAULT_CALL    open, read, write, fsync, rename, link, unlink, close, mmap or thread
//   WARPSTEP_FAULT_AT      which call fails, from 1 on; 0: none, they are only counted
//   WARPSTEP_FAULT_ERROR   an errno; 0: reads and writes are cut short
//   WARPSTEP_FAULT_STICKY  1: all later ones fail too
//   WARPSTEP_FAULT_REPORT  the file: see Report
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

enum Call {
  c_open,
  c_read,
  c_write,
  c_fsync,
  c_rename,
  c_link,
  c_unlink,
  c_close,
  c_mmap,
  c_thread,
  calls
};
constexpr const char* names[calls] = {"open", "read",   "write", "fsync", "rename",
                                      "link", "unlink", "close", "mmap",  "thread"};

struct Report {
  std::atomic<std::uint64_t> counts[calls];  // in the order above
  std::atomic<std::uint64_t> failed;         // how many calls were made to fail
  char path[512];                            // of the first
};

struct Setting {
  int call = -1;
  std::uint64_t at = 0;
  int error = 0;
  bool sticky = false;
  char below[PATH_MAX] = "";
  std::size_t below_size = 0;
  Report* report = nullptr;
};
Setting setting;

const char* variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

__attribute__((constructor)) void begin() {
  const char* call = variable("WARPSTEP_FAULT_CALL");
  for (int i = 0; i < calls; ++i)
    if (std::strcmp(call, names[i]) == 0) setting.call = i;
  setting.at = std::strtoull(variable("WARPSTEP_FAULT_AT"), nullptr, 10);
  setting.error = std::atoi(variable("WARPSTEP_FAULT_ERROR"));
  setting.sticky = *variable("WARPSTEP_FAULT_STICKY") == '1';
  std::snprintf(setting.below, sizeof setting.below, "%s", variable("WARPSTEP_FAULT_BELOW"));
  setting.below_size = std::strlen(setting.below);
  const long file =
      ::syscall(SYS_openat, AT_FDCWD, variable("WARPSTEP_FAULT_REPORT"), O_RDWR | O_CLOEXEC, 0);
  if (file < 0) return;
  void* report = reinterpret_cast<void*>(
      ::syscall(SYS_mmap, nullptr, sizeof(Report), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0));
  ::syscall(SYS_close, file);
  if (report != MAP_FAILED) setting.report = static_cast<Report*>(report);
}

bool is_below(const char* path) {
  return std::strncmp(path, setting.below, setting.below_size) == 0 &&
         path[setting.below_size] == '/';
}

// Whether this call is to fail. It counts where its path lies below the folder.
bool fails(Call call, const char* path) {
  if (!setting.report || (call != c_thread && !is_below(path))) return false;
  const std::uint64_t number = ++setting.report->counts[call];
  if (call != setting.call || setting.at == 0 || number < setting.at ||
      (number > setting.at && !setting.sticky))
    return false;
  if (setting.report->failed++ == 0)
    std::snprintf(setting.report->path, sizeof setting.report->path, "%s", path);
  return true;
}

// The folder is given as an absolute path, and so are the program's.
bool fails_at(Call call, int directory, const char* path) {
  if (*path == '/') return fails(call, path);
  char whole[2 * PATH_MAX] = "";
  char link[64];
  if (directory == AT_FDCWD)
    std::snprintf(link, sizeof link, "/proc/self/cwd");
  else
    std::snprintf(link, sizeof link, "/proc/self/fd/%d", directory);
  const long size = ::syscall(SYS_readlinkat, AT_FDCWD, link, whole, PATH_MAX);
  if (size < 0) return false;
  std::snprintf(whole + size, sizeof whole - static_cast<std::size_t>(size), "/%s", path);
  return fails(call, whole);
}

bool fails_of(Call call, int file) {
  if (!setting.report || file < 0) return false;
  char link[64], path[PATH_MAX] = "";
  std::snprintf(link, sizeof link, "/proc/self/fd/%d", file);
  return ::syscall(SYS_readlinkat, AT_FDCWD, link, path, PATH_MAX - 1) > 0 && fails(call, path);
}

int error() {
  errno = setting.error;
  return -1;
}

// What is left of a transfer of `bytes` that is cut short; at least 1.
std::size_t part(std::size_t bytes) {
  return std::max<std::size_t>(bytes / 2, std::min<std::size_t>(bytes, 1));
}

int open_at(int directory, const char* path, int flags, mode_t mode) {
  if (fails_at(c_open, directory, path)) return error();
  return static_cast<int>(::syscall(SYS_openat, directory, path, flags, mode));
}

ssize_t read_at(int file, void* to, std::size_t bytes, off_t at) {
  if (fails_of(c_read, file)) {
    if (setting.error != 0) return error();
    bytes = part(bytes);
  }
  return at < 0 ? ::syscall(SYS_read, file, to, bytes)
                : ::syscall(SYS_pread64, file, to, bytes, at);
}

ssize_t write_at(int file, const void* from, std::size_t bytes, off_t at) {
  if (fails_of(c_write, file)) {
    if (setting.error != 0) return error();
    bytes = part(bytes);
  }
  return at < 0 ? ::syscall(SYS_write, file, from, bytes)
                : ::syscall(SYS_pwrite64, file, from, bytes, at);
}

void* map(void* at, std::size_t bytes, int protection, int flags, int file, off_t offset) {
  if ((flags & MAP_ANONYMOUS) == 0 && fails_of(c_mmap, file)) {
    error();
    return MAP_FAILED;
  }
  return reinterpret_cast<void*>(::syscall(SYS_mmap, at, bytes, protection, flags, file, offset));
}

std::FILE* open_stream(const char* name, const char* path, const char* mode) {
  if (fails_at(c_open, AT_FDCWD, path)) {
    error();
    return nullptr;
  }
  using Function = std::FILE* (*)(const char*, const char*);
  return reinterpret_cast<Function>(::dlsym(RTLD_NEXT, name))(path, mode);
}

// The mode is there only where a file may be made.
mode_t mode_of(int flags, std::va_list list) {
  return (flags & (O_CREAT | __O_TMPFILE)) != 0 ? va_arg(list, mode_t) : 0;
}

}  // namespace

#define WITH_MODE(call)                     \
  std::va_list list;                        \
  va_start(list, flags);                    \
  const mode_t mode = mode_of(flags, list); \
  va_end(list);                             \
  return call

extern "C" {

int open(const char* path, int flags, ...) {
  WITH_MODE(open_at(AT_FDCWD, path, flags, mode));
}
int open64(const char* path, int flags, ...) {
  WITH_MODE(open_at(AT_FDCWD, path, flags, mode));
}
int openat(int at, const char* path, int flags, ...) {
  WITH_MODE(open_at(at, path, flags, mode));
}
int openat64(int at, const char* path, int flags, ...) {
  WITH_MODE(open_at(at, path, flags, mode));
}
int creat(const char* path, mode_t mode) {
  return open_at(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode);
}
std::FILE* fopen(const char* path, const char* mode) {
  return open_stream("fopen", path, mode);
}
std::FILE* fopen64(const char* path, const char* mode) {
  return open_stream("fopen64", path, mode);
}

ssize_t read(int file, void* to, size_t bytes) {
  return read_at(file, to, bytes, -1);
}
ssize_t pread(int file, void* to, size_t bytes, off_t at) {
  return read_at(file, to, bytes, at);
}
ssize_t pread64(int file, void* to, size_t bytes, off64_t at) {
  return read_at(file, to, bytes, at);
}
ssize_t write(int file, const void* from, size_t bytes) {
  return write_at(file, from, bytes, -1);
}
ssize_t pwrite(int file, const void* from, size_t bytes, off_t at) {
  return write_at(file, from, bytes, at);
}
ssize_t pwrite64(int file, const void* from, size_t bytes, off64_t at) {
  return write_at(file, from, bytes, at);
}
ssize_t writev(int file, const iovec* parts, int count) {
  if (fails_of(c_write, file)) {
    if (setting.error != 0) return error();
    return ::syscall(SYS_write, file, parts[0].iov_base, part(parts[0].iov_len));
  }
  return ::syscall(SYS_writev, file, parts, count);
}

int fsync(int file) {
  return fails_of(c_fsync, file) ? error() : static_cast<int>(::syscall(SYS_fsync, file));
}
int fdatasync(int file) {
  return fails_of(c_fsync, file) ? error() : static_cast<int>(::syscall(SYS_fdatasync, file));
}
// A failed close() has closed the file anyway. The report's path says if it was only read.
int close(int file) {
  const bool failed = fails_of(c_close, file);
  const int flags = failed ? ::fcntl(file, F_GETFL) : 0;
  if (failed && (flags & O_ACCMODE) == O_RDONLY && setting.report->failed == 1) {
    char* path = setting.report->path;
    std::snprintf(path + std::strlen(path), sizeof setting.report->path - std::strlen(path),
                  " (only read)");
  }
  const int result = static_cast<int>(::syscall(SYS_close, file));
  return failed ? error() : result;
}

int rename(const char* from, const char* to) noexcept {
  return fails_at(c_rename, AT_FDCWD, to)
             ? error()
             : static_cast<int>(::syscall(SYS_renameat, AT_FDCWD, from, AT_FDCWD, to));
}
int link(const char* from, const char* to) noexcept {
  return fails_at(c_link, AT_FDCWD, to)
             ? error()
             : static_cast<int>(::syscall(SYS_linkat, AT_FDCWD, from, AT_FDCWD, to, 0));
}
int unlink(const char* path) noexcept {
  return fails_at(c_unlink, AT_FDCWD, path)
             ? error()
             : static_cast<int>(::syscall(SYS_unlinkat, AT_FDCWD, path, 0));
}
int remove(const char* path) noexcept {
  if (fails_at(c_unlink, AT_FDCWD, path)) return error();
  const long result = ::syscall(SYS_unlinkat, AT_FDCWD, path, 0);
  return static_cast<int>(result < 0 && errno == EISDIR
                              ? ::syscall(SYS_unlinkat, AT_FDCWD, path, AT_REMOVEDIR)
                              : result);
}

void* mmap(void* at, size_t bytes, int protection, int flags, int file, off_t offset) noexcept {
  return map(at, bytes, protection, flags, file, offset);
}
void* mmap64(void* at, size_t bytes, int protection, int flags, int file, off64_t offset) noexcept {
  return map(at, bytes, protection, flags, file, offset);
}

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*run)(void*),
                   void* argument) noexcept {
  if (fails(c_thread, "a thread")) return setting.error;
  using Function = int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  static const auto next = reinterpret_cast<Function>(::dlsym(RTLD_NEXT, "pthread_create"));
  return next(thread, attributes, run, argument);
}

}  // extern "C"
