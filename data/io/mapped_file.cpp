#include "data/io/mapped_file.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <string_view>
#include <utility>

#include "engine/core/error.h"
#include "engine/core/text.h"

namespace warpstep::data {
namespace {

// The table that the signal handler reads: fixed in size, written before a mapping is used and
// cleared before it is removed, so that the handler never sees an unmapped range.
struct Slot {
  std::atomic<bool> taken{false};
  std::atomic<std::uintptr_t> begin{0};  // 0 while there is no mapping
  std::atomic<std::size_t> bytes{0};
  std::atomic<const char*> path{nullptr};
};

constexpr int slot_count = 4096;  // 160 KB; one per shard, and 4096 shards of 256 MB are 1 TB
std::array<Slot, slot_count> slots;
struct sigaction previous_action;

// Text built on the stack and written with write(2): a signal handler may not allocate or lock.
class SignalText {
 public:
  void add(std::string_view text) {
    const std::size_t bytes = std::min(text.size(), room_.size() - used_);
    std::memcpy(room_.data() + used_, text.data(), bytes);
    used_ += bytes;
  }
  void add(std::uintptr_t number) {
    std::array<char, 20> digits;
    std::size_t at = digits.size();
    do digits[--at] = static_cast<char>('0' + number % 10);
    while ((number /= 10) > 0);
    add(std::string_view(digits.data() + at, digits.size() - at));
  }
  void write() const {
    for (std::size_t at = 0; at < used_;) {
      const ssize_t put = ::write(STDERR_FILENO, room_.data() + at, used_ - at);
      if (put <= 0) return;
      at += static_cast<std::size_t>(put);
    }
  }

 private:
  std::array<char, 4608> room_;  // PATH_MAX and the text around it
  std::size_t used_ = 0;
};

void on_bus_error(int signal, siginfo_t* info, void* context) {
  const auto address = reinterpret_cast<std::uintptr_t>(info->si_addr);
  for (const Slot& slot : slots) {
    const std::uintptr_t begin = slot.begin.load(std::memory_order_acquire);
    if (begin == 0 || info->si_code <= 0 || address - begin >= slot.bytes) continue;
    SignalText text;
    text.add(slot.path.load());
    text.add(": was truncated or its disk failed while it was mapped (byte ");
    text.add(address - begin);
    text.add("); copy it again, or train with --data-io pread\n");
    text.write();
    ::_exit(1);
  }
  if ((previous_action.sa_flags & SA_SIGINFO) != 0) {
    previous_action.sa_sigaction(signal, info, context);
  } else if (previous_action.sa_handler == SIG_DFL || previous_action.sa_handler == SIG_IGN) {
    ::signal(signal, SIG_DFL);  // the instruction runs again and ends the program
  } else {
    previous_action.sa_handler(signal);
  }
}

void install_handler() {
  static std::once_flag once;
  std::call_once(once, [] {
    struct sigaction action {};
    action.sa_sigaction = on_bus_error;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    ::sigemptyset(&action.sa_mask);
    ::sigaction(SIGBUS, &action, &previous_action);
  });
}

// Takes a free slot and returns its number; -1 when there is none.
int take_slot() {
  for (int i = 0; i < slot_count; ++i) {
    if (!slots[static_cast<std::size_t>(i)].taken.exchange(true)) return i;
  }
  return -1;
}

// For sets of many files that stay open; the soft limit is often 1024.
void allow_many_descriptors() {
  struct ::rlimit limit {};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);  // if it fails, opening a file reports the limit
}

}  // namespace

MappedFile::MappedFile(std::string path, Io io)
    : path_(std::move(path)), file_(open_regular(path_, &status_)) {
  bytes_ = static_cast<std::uint64_t>(status_.st_size);
  if (bytes_ > 0 && io == Io::mmap) slot_ = take_slot();
  if (slot_ < 0) {
    allow_many_descriptors();
    return;
  }
  install_handler();
  shown_path_ = printable(path_);
  void* memory = ::mmap(nullptr, bytes_, PROT_READ, MAP_SHARED, file_.number(), 0);
  Slot& slot = slots[static_cast<std::size_t>(slot_)];
  if (memory == MAP_FAILED) {
    const int error = errno;
    slot.taken.store(false);
    fail<DataError>("{}: cannot be mapped: {}; train and evaluate with --data-io pread", path_,
                    std::strerror(error));
  }
  memory_ = static_cast<const std::uint8_t*>(memory);
  slot.bytes.store(bytes_);
  slot.path.store(shown_path_.c_str());
  slot.begin.store(reinterpret_cast<std::uintptr_t>(memory), std::memory_order_release);
  file_.close();  // a mapping needs no descriptor, and a process often may have only 1024
}

MappedFile::~MappedFile() {
  if (memory_ == nullptr) return;
  Slot& slot = slots[static_cast<std::size_t>(slot_)];
  slot.begin.store(0);
  ::munmap(const_cast<std::uint8_t*>(memory_), bytes_);
  slot.taken.store(false);
}

std::span<const std::uint8_t> MappedFile::view(std::uint64_t offset, std::uint64_t bytes,
                                               std::vector<std::uint8_t>& scratch) const {
  if (offset > bytes_ || bytes > bytes_ - offset)
    fail<DataError>("{}: has {} bytes, too few for {} bytes from byte {} on; copy it again", path_,
                    bytes_, bytes, offset);
  if (memory_ != nullptr) return {memory_ + offset, bytes};
  if (scratch.size() < bytes) scratch.resize(bytes);
  for (std::uint64_t at = 0; at < bytes;) {
    const ssize_t got =
        ::pread(file_.number(), scratch.data() + at, bytes - at, static_cast<off_t>(offset + at));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0)
      fail<DataError>("{}: byte {}: cannot be read: {}", path_, offset + at, std::strerror(errno));
    if (got == 0)
      fail<DataError>("{}: was truncated at byte {} while it was read; copy it again", path_,
                      offset + at);
    at += static_cast<std::uint64_t>(got);
  }
  return {scratch.data(), bytes};
}

void MappedFile::will_need(std::uint64_t offset, std::uint64_t bytes) const {
  if (offset >= bytes_ || bytes == 0) return;
  bytes = std::min(bytes, bytes_ - offset);
  if (memory_ == nullptr) {
    ::posix_fadvise(file_.number(), static_cast<off_t>(offset), static_cast<off_t>(bytes),
                    POSIX_FADV_WILLNEED);
    return;
  }
  static const auto page_bytes = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  const std::uint64_t begin = offset / page_bytes * page_bytes;
  ::madvise(const_cast<std::uint8_t*>(memory_) + begin, offset + bytes - begin, MADV_WILLNEED);
}

void MappedFile::read_pages_alone() const {
  if (memory_ == nullptr || pages_alone_.load(std::memory_order_relaxed)) return;
  pages_alone_.store(true, std::memory_order_relaxed);
  ::madvise(const_cast<std::uint8_t*>(memory_), bytes_, MADV_RANDOM);
}

bool Readahead::first_request(std::uint64_t index) const {
  if (requested_.empty()) return true;
  std::atomic<std::uint8_t>& requested = requested_[static_cast<std::size_t>(index)];
  if (requested.load(std::memory_order_relaxed) != 0) return false;
  requested.store(1, std::memory_order_relaxed);
  return true;
}

void Readahead::request(std::uint64_t index, const MappedFile& file, std::uint64_t offset,
                        std::uint64_t bytes) const {
  if (!first_request(index)) return;
  if (requested_.empty()) file.read_pages_alone();
  file.will_need(offset, bytes);
}

void MappedFile::check_unchanged() const {
  struct ::stat now {};
  if (::stat(path_.c_str(), &now) != 0)
    fail<DataError>(
        "{}: was deleted after it was opened: {}; data sets must not change while they "
        "are read",
        path_, std::strerror(errno));
  if (now.st_size != status_.st_size)
    fail<DataError>(
        "{}: has {} bytes, but had {} when it was opened; data sets must not change "
        "while they are read",
        path_, now.st_size, status_.st_size);
  if (now.st_ino != status_.st_ino || now.st_dev != status_.st_dev ||
      now.st_mtim.tv_sec != status_.st_mtim.tv_sec ||
      now.st_mtim.tv_nsec != status_.st_mtim.tv_nsec)
    fail<DataError>(
        "{}: was replaced or modified after it was opened; data sets must not change while they "
        "are read",
        path_);
}

}  // namespace warpstep::data
