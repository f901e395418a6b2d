#include "engine/dist/shared_memory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <new>
#include <utility>

#include "engine/core/clock.h"

namespace warpstep {

SharedMemory::SharedMemory(std::size_t bytes)
    : bytes_(bytes), name_(fmt::format("warpstep-ranks-{}", now_ns())) {
  file_ = ::memfd_create(name_.c_str(), MFD_CLOEXEC);
  void* memory = file_ < 0 || ::ftruncate(file_, static_cast<off_t>(bytes_)) != 0
                     ? MAP_FAILED
                     : ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0);
  if (memory == MAP_FAILED) {  // this process then has it alone
    if (file_ >= 0) ::close(std::exchange(file_, -1));
    memory = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
  }
  data_ = static_cast<std::byte*>(memory);
}

SharedMemory::~SharedMemory() {
  ::munmap(data_, bytes_);
  if (file_ >= 0) ::close(file_);
}

// The memory is reached through the process that made it. Where its number means another process,
// that one has no file of this name.
std::string SharedMemory::offer() const {
  return file_ < 0 ? "" : fmt::format("/proc/{}/fd/{} {}", ::getpid(), file_, name_);
}

bool SharedMemory::take(const std::string& offered) {
  const std::size_t space = offered.find(' ');
  if (space == std::string::npos) return false;
  const std::string path = offered.substr(0, space);
  std::array<char, 256> target{};
  if (::readlink(path.c_str(), target.data(), target.size() - 1) < 0 ||
      std::string(target.data()).find(offered.substr(space + 1)) == std::string::npos)
    return false;
  const int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) return false;
  struct stat found {};
  void* memory = ::fstat(file, &found) != 0 || static_cast<std::size_t>(found.st_size) != bytes_
                     ? MAP_FAILED
                     : ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  ::close(file);
  if (memory == MAP_FAILED) return false;
  ::munmap(data_, bytes_);
  if (file_ >= 0) ::close(std::exchange(file_, -1));
  data_ = static_cast<std::byte*>(memory);
  return true;
}

}  // namespace warpstep
