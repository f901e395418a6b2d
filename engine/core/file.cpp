#include "engine/core/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <system_error>
#include <utility>
#include <vector>

#include "engine/core/error.h"
#include "engine/core/phase.h"
#include "engine/core/text.h"

namespace warpstep {
namespace {

std::string reason(int error) {
  return std::generic_category().message(error) +
         (error == EMFILE ? " (allow more with `ulimit -n`)" : "");
}

// Linux moves at most 0x7ffff000 bytes per call; smaller requests also keep the count in a ssize_t.
constexpr std::size_t max_request_bytes = std::size_t{1} << 30;

const record::Name& fsync_name() {
  static const record::Name name{"fsync"};
  return name;
}

std::filesystem::path directory_of(const std::filesystem::path& path) {
  return path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
}

// 0, or an errno of a failing disk: nothing can be done about file systems that refuse to sync a
// directory, and for users who may not read theirs.
int error_of_sync(const std::filesystem::path& folder, int (*sync)(int)) {
  const int directory = open_file(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (directory < 0) return errno == EACCES ? 0 : errno;
  const int error = sync(directory) == 0 ? 0 : errno;
  ::close(directory);
  return error == EINVAL || error == ENOSYS || error == EOPNOTSUPP ? 0 : error;
}

void sync_all(const std::filesystem::path& folder, int (*sync)(int)) {
  if (const int error = error_of_sync(folder, sync); error != 0)
    fail<DataError>("{}: cannot be flushed to the disk: {}; a power cut may lose files in it",
                    folder.string(), reason(error));
}

// Renaming a file over a device, a pipe, or /dev/stdout, would remove it.
void require_file(const std::filesystem::path& path, mode_t mode) {
  std::error_code no_link;
  const std::string link = std::filesystem::read_symlink(path, no_link).string();
  const char* const what = link.starts_with("/proc/") ? "name of an open file"
                           : S_ISREG(mode)            ? nullptr
                           : S_ISDIR(mode)            ? "directory"
                           : S_ISFIFO(mode)           ? "pipe"
                           : S_ISSOCK(mode)           ? "socket"
                                                      : "device";
  if (what != nullptr)
    fail<DataError>("{}: is a {}; results are written to files only, so give the path of a file",
                    path.string(), what);
}

// Gives a new file the owner, where the user may, and the permissions of the one that it will
// replace. 0, or the errno of permissions that differ.
int error_of_adopting(int file, const struct stat& old) {
  struct stat now = {};
  if (::fstat(file, &now) != 0) return errno;
  const bool is_others = now.st_uid != old.st_uid || now.st_gid != old.st_gid;
  if (is_others && ::fchown(file, old.st_uid, old.st_gid) != 0 && errno != EPERM) return errno;
  const bool is_same = (now.st_mode & 0777U) == (old.st_mode & 0777U);
  return is_same || ::fchmod(file, old.st_mode & 0777U) == 0 ? 0 : errno;
}

}  // namespace

InputFile::InputFile(std::filesystem::path path) : path_(std::move(path)) {
  // O_NONBLOCK: opening a pipe does not wait, and it is refused below; regular files ignore the
  // flag.
  descriptor_ = open_file(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor_ < 0) fail<DataError>("{}: cannot open: {}", path_.string(), reason(errno));
  struct stat status = {};
  const int error = ::fstat(descriptor_, &status) != 0 ? errno
                    : S_ISDIR(status.st_mode)          ? EISDIR
                    : S_ISREG(status.st_mode)          ? 0
                                                       : ESPIPE;
  if (error != 0) {
    ::close(std::exchange(descriptor_, -1));
    fail<DataError>("{}: cannot read as a file: {}", path_.string(), reason(error));
  }
  bytes_ = static_cast<std::uint64_t>(status.st_size);
}

InputFile::~InputFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

InputFile::InputFile(InputFile&& other) noexcept
    : path_(std::move(other.path_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      bytes_(other.bytes_) {}

std::size_t InputFile::read_some(std::uint64_t offset, std::span<std::byte> out) const {
  std::size_t done = 0;
  while (done < out.size()) {
    const std::size_t request = std::min(out.size() - done, max_request_bytes);
    const ssize_t got =
        ::pread(descriptor_, out.data() + done, request, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0)
      fail<DataError>("{}: cannot read {} bytes at byte {}: {}", path_.string(), request,
                      offset + done, reason(errno));
    if (got == 0) break;
    done += static_cast<std::size_t>(got);
  }
  return done;
}

void InputFile::read(std::uint64_t offset, std::span<std::byte> out) const {
  const std::size_t got = read_some(offset, out);
  if (got < out.size())
    fail<DataError>("{}: ends at byte {}, but {} bytes from byte {} on are needed", path_.string(),
                    offset + got, out.size(), offset);
}

std::string read_file(const std::filesystem::path& path, std::uint64_t max_bytes) {
  const InputFile file(path);
  const auto check = [&](std::uint64_t bytes) {
    if (bytes > max_bytes)
      fail<DataError>("{}: {} bytes, more than the limit of {} for such a file", path.string(),
                      bytes, max_bytes);
  };
  check(file.bytes());
  std::string content;
  // One byte more than the stated size detects the end; files in /proc state 0 but have content.
  for (std::size_t room = file.bytes() + 1;; room = 2 * content.size() + 4096) {
    const std::size_t filled = content.size();
    content.resize(room);
    const std::size_t got =
        file.read_some(filled, std::as_writable_bytes(std::span(content).subspan(filled)));
    content.resize(filled + got);
    check(content.size());
    if (content.size() < room) return content;
  }
}

int open_file(const char* path, int flags, unsigned mode) {
  int descriptor = -1;
  do descriptor = ::open(path, flags, mode);
  while (descriptor < 0 && errno == EINTR);
  return descriptor;
}

std::size_t write_all(int file, std::span<const std::byte> bytes, std::optional<std::uint64_t> at) {
  std::size_t done = 0;
  while (done < bytes.size()) {
    const std::byte* const from = bytes.data() + done;
    const std::size_t request = std::min(bytes.size() - done, max_request_bytes);
    const ssize_t put = at ? ::pwrite(file, from, request, static_cast<off_t>(*at + done))
                           : ::write(file, from, request);
    if (put < 0 && errno == EINTR) continue;
    if (put == 0) errno = ENOSPC;
    if (put <= 0) break;
    done += static_cast<std::size_t>(put);
  }
  return done;
}

int create_file(const std::filesystem::path& path) {
  struct stat status = {};
  const bool is_there = ::lstat(path.c_str(), &status) == 0;
  // A device is opened, not replaced; without O_NONBLOCK opening a pipe would wait.
  if (is_there && !S_ISREG(status.st_mode) && !S_ISLNK(status.st_mode))
    return open_file(path.c_str(), O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (is_there && ::unlink(path.c_str()) != 0) return -1;
  return open_file(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
}

std::string folder_problem(const std::filesystem::path& folder, unsigned not_for_others) {
  const auto problem = [&folder](std::string_view what) {
    return fmt::format("{}: {}", folder.string(), what);
  };
  struct stat status = {};
  if (::lstat(folder.c_str(), &status) != 0) return problem(reason(errno));
  if (!S_ISDIR(status.st_mode)) return problem("is not a folder");
  if (status.st_uid != ::geteuid()) return problem("belongs to somebody else");
  if ((status.st_mode & not_for_others) != 0)
    return problem("is open to others; remove it, or give it mode 0700");
  return {};
}

int sync_file(int file) {
  int result = -1;
  do result = ::fsync(file);
  while (result != 0 && errno == EINTR);
  return result;
}

void sync_name(const std::filesystem::path& path) {
  const record::PhasePart time(fsync_name());
  if (const int error = error_of_sync(directory_of(path), sync_file); error != 0)
    fail<DataError>(
        "{}: is complete, but its directory cannot be flushed to the disk: {}; a power cut may "
        "lose its name",
        path.string(), reason(error));
}

void sync_folder(const std::filesystem::path& folder) {
  sync_all(folder, sync_file);
}

void sync_files_in(const std::filesystem::path& folder) {
  sync_all(folder, ::syncfs);
}

AtomicFile::AtomicFile(std::filesystem::path path, std::uint64_t expected_bytes)
    : path_(std::move(path)), expected_bytes_(expected_bytes) {
  static std::atomic<unsigned> next_number = 0;
  struct stat old = {};
  const bool is_there = ::stat(path_.c_str(), &old) == 0;
  if (is_there) require_file(path_, old.st_mode);
  const unsigned mode = is_there ? old.st_mode & 0777U : 0666U;
  do {  // skips names that a killed process with the same number left behind
    temporary_ = directory_of(path_) /
                 fmt::format(".{}.tmp-{}-{}", path_.filename().string(), ::getpid(), next_number++);
    descriptor_ = open_file(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
  } while (descriptor_ < 0 && errno == EEXIST);
  if (descriptor_ < 0) fail_with(errno, "create a file in its directory");
  if (const int error = is_there ? error_of_adopting(descriptor_, old) : 0; error != 0) {
    ::close(std::exchange(descriptor_, -1));
    ::unlink(temporary_.c_str());
    fail_with(error, "keep its permissions");
  }
}

AtomicFile::~AtomicFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

void AtomicFile::fail_with(int error, std::string_view doing) const {
  const std::string size = expected_bytes_ > 0
                               ? fmt::format("{} of {} bytes", written_bytes_, expected_bytes_)
                               : fmt::format("{} bytes", written_bytes_);
  std::error_code ignored;
  const auto space = std::filesystem::space(directory_of(path_), ignored);
  const std::string room = ignored ? "" : fmt::format(", {} bytes are free there", space.available);
  fail<DataError>("{}: cannot {}: {} ({} were written{}); {}", path_.string(), doing, reason(error),
                  size, room,
                  std::filesystem::exists(path_, ignored) ? "the file of that name is unchanged"
                                                          : "no partial file is left");
}

void AtomicFile::write(std::span<const std::byte> part) {
  static const record::Name name{"write"};
  const record::PhasePart time(name);
  const std::size_t done = write_all(descriptor_, part);
  written_bytes_ += done;
  if (done < part.size()) fail_with(errno, "write");
}

void AtomicFile::rewrite_beginning(std::string_view part) {
  if (write_all(descriptor_, std::as_bytes(std::span(part)), 0) < part.size())
    fail_with(errno, "write");
}

void AtomicFile::commit() {
  {
    const record::PhasePart time(fsync_name());
    if (sync_file(descriptor_) != 0) fail_with(errno, "flush to the disk");
  }
  // After EINTR, Linux has closed the file; its bytes are on the disk.
  if (::close(std::exchange(descriptor_, -1)) != 0 && errno != EINTR) fail_with(errno, "close");
  {
    static const record::Name name{"rename"};
    const record::PhasePart time(name);
    if (::rename(temporary_.c_str(), path_.c_str()) != 0) fail_with(errno, "rename into place");
  }
  temporary_.clear();
  sync_name(path_);
}

void write_atomically(const std::filesystem::path& path,
                      std::span<const std::span<const std::byte>> parts) {
  std::uint64_t bytes = 0;
  for (const auto part : parts) bytes += part.size();
  AtomicFile file(path, bytes);
  for (const auto part : parts) file.write(part);
  file.commit();
}

void write_atomically(const std::filesystem::path& path, std::string_view content) {
  const std::span<const std::byte> part = std::as_bytes(std::span(content));
  write_atomically(path, std::span(&part, 1));
}

std::string nearest_folder(std::filesystem::path missing) {
  namespace fs = std::filesystem;
  if (!missing.has_filename()) missing = missing.parent_path();  // of "DIR/"
  std::vector<std::string> names;
  std::error_code unreadable;
  const fs::path above = missing.has_parent_path() ? missing.parent_path() : fs::path(".");
  for (fs::directory_iterator at(above, unreadable), end; !unreadable && at != end;
       at.increment(unreadable))
    if (std::error_code unknown; at->is_directory(unknown))
      names.push_back(at->path().filename().string());
  // suggestion() takes the first of those that begin as the missing one does, or are its beginning.
  const std::string typed = missing.filename().string();
  std::ranges::sort(names, {}, [&](const std::string& name) {
    return std::pair(edit_distance(typed, name), name);
  });
  const std::string parent = missing.has_parent_path() ? (missing.parent_path() / "").string() : "";
  return suggestion(typed, names, parent);
}

}  // namespace warpstep
