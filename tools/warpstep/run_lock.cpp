#include "tools/warpstep/run_lock.h"

#include <fcntl.h>
#include <fmt/chrono.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <string>
#include <utility>

#include "data/file.h"
#include "engine/core/error.h"
#include "tools/warpstep/say.h"

namespace warpstep::tools {

namespace fs = std::filesystem;

namespace {

std::string this_process() {
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  return fmt::format("process {} on {}, since {:%Y-%m-%d %H:%M:%S} UTC", ::getpid(), host.data(),
                     fmt::gmtime(std::time(nullptr)));
}

std::string content(int descriptor) {
  std::array<char, 512> text{};
  const ssize_t bytes = ::pread(descriptor, text.data(), text.size(), 0);
  const std::string_view line(text.data(), bytes > 0 ? static_cast<std::size_t>(bytes) : 0);
  return line.empty() ? "another process" : data::printable(line.substr(0, line.find('\n')));
}

// Whether `path` still names the open file: its last holder may have removed it meanwhile.
bool is_named(const fs::path& path, int descriptor) {
  struct ::stat open {
  }, named{};
  return ::fstat(descriptor, &open) == 0 && ::stat(path.c_str(), &named) == 0 &&
         open.st_dev == named.st_dev && open.st_ino == named.st_ino;
}

}  // namespace

RunLock::RunLock(const fs::path& run) : path_(run / lock_name) {
  const auto without_lock = [&run] {
    say("{}: cannot be locked ({}): let no other process train into it\n", run.string(),
        std::strerror(errno));
  };
  for (;;) {
    descriptor_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (descriptor_ < 0) {
      without_lock();
      return;
    }
    if (::flock(descriptor_, LOCK_EX | LOCK_NB) != 0) {
      const bool is_held = errno == EWOULDBLOCK;
      const std::string holder = is_held ? content(descriptor_) : "";
      if (!is_held) without_lock();
      ::close(std::exchange(descriptor_, -1));
      if (!is_held) return;
      fail<DataError>(
          "{}: {} trains into this directory; wait for its end, stop it with SIGTERM, which saves, "
          "or choose another --out",
          run.string(), holder);
    }
    if (is_named(path_, descriptor_)) break;
    ::close(descriptor_);
  }
  const std::string text = this_process();
  if (::ftruncate(descriptor_, 0) != 0 || ::pwrite(descriptor_, text.data(), text.size(), 0) <
                                              0)  // a full disk: locked, without a name
    return;
}

RunLock::~RunLock() {
  if (descriptor_ < 0) return;
  ::unlink(path_.c_str());  // while it is held, so that nobody else's is removed
  ::close(descriptor_);
}

RunLock::RunLock(RunLock&& other) noexcept
    : path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, -1)) {}

RunLock& RunLock::operator=(RunLock&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

RunLock lock_new_run(const fs::path& run) {
  std::error_code error;
  fs::create_directories(run, error);
  return error ? RunLock() : RunLock(run);
}

}  // namespace warpstep::tools
