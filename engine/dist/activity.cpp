#include "engine/dist/activity.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <new>
#include <utility>

#include "engine/core/clock.h"

namespace warpstep {

// Zeros are a rank that is not known.
struct alignas(64) Activities::Entry {
  std::atomic<std::int64_t> process;
  std::atomic<std::uint64_t> what;              // the step, with the kind in the uppermost byte
  std::atomic<std::uint64_t> since_ns;          // engine/core/clock.h, which all processes share
  std::atomic<std::uint64_t> waiting_since_ns;  // 0: does not wait
  std::atomic<bool> failed;
};

namespace {

constexpr int kind_shift = 56;

std::uint64_t packed(Activity activity) {
  return activity.step | static_cast<std::uint64_t>(activity.kind) << kind_shift;
}
Activity unpacked(std::uint64_t what) {
  return {static_cast<Activity::Kind>(what >> kind_shift),
          what & ((std::uint64_t{1} << kind_shift) - 1)};
}

std::string text_of(Activity activity) {
  switch (activity.kind) {
    case Activity::Kind::start: return "starts";
    case Activity::Kind::loading: return fmt::format("loads the batch of step {}", activity.step);
    case Activity::Kind::step: return fmt::format("computes step {}", activity.step);
    case Activity::Kind::results:
      return fmt::format("waits for the results of step {}", activity.step);
    case Activity::Kind::evaluation: return fmt::format("evaluates after step {}", activity.step);
    case Activity::Kind::checkpoint:
      return fmt::format("saves the checkpoint of step {}", activity.step);
    case Activity::Kind::end: return fmt::format("ends after step {}", activity.step);
  }
  return {};
}

// By the state in which the kernel has a process that should answer.
std::string process_text(std::int64_t process) {
  const std::string path = fmt::format("/proc/{}/stat", process);
  std::array<char, 512> text{};
  std::FILE* file = std::fopen(path.c_str(), "re");
  const std::size_t length = file ? std::fread(text.data(), 1, text.size() - 1, file) : 0;
  if (file) std::fclose(file);
  const std::string stat(text.data(), length);
  const std::size_t name_end = stat.rfind(") ");  // the name itself may have parentheses
  const char state = name_end == std::string::npos ? 'X' : stat[name_end + 2];
  switch (state) {
    case 'T': return ", and its process is stopped (SIGSTOP)";
    case 't': return ", and a debugger has stopped its process";
    case 'D': return ", and its process waits for a disk or a network file system";
    case 'X':
    case 'Z': return ", and its process has ended";
    default: return {};
  }
}

}  // namespace

std::string Activity::place() const {
  switch (kind) {
    case Kind::start: return "before the first step";
    case Kind::evaluation: return fmt::format("in the evaluation after step {}", step);
    case Kind::checkpoint: return fmt::format("in the checkpoint of step {}", step);
    case Kind::end: return fmt::format("after step {}, the last", step);
    default: return fmt::format("in step {}", step);
  }
}

Activities::Activities(int size, int rank)
    : rank_(static_cast<std::size_t>(rank)),
      bytes_(static_cast<std::size_t>(size) * sizeof(Entry)),
      name_(fmt::format("warpstep-ranks-{}", now_ns())) {
  file_ = ::memfd_create(name_.c_str(), MFD_CLOEXEC);
  void* memory = file_ < 0 || ::ftruncate(file_, static_cast<off_t>(bytes_)) != 0
                     ? MAP_FAILED
                     : ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0);
  if (memory == MAP_FAILED) {  // this rank then sees itself alone
    if (file_ >= 0) ::close(std::exchange(file_, -1));
    memory = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
  }
  entries_ = {static_cast<Entry*>(memory), static_cast<std::size_t>(size)};
  own_entry().process = ::getpid();
  set({});
}

Activities::~Activities() {
  ::munmap(entries_.data(), bytes_);
  if (file_ >= 0) ::close(file_);
}

Activities::Entry& Activities::own_entry() const {
  return entries_[rank_];
}

// The memory is reached through the process that made it: nothing is left behind by a killed job,
// and process numbers that mean another process here have no file of this name.
std::string Activities::offer() const {
  return file_ < 0 ? "" : fmt::format("/proc/{}/fd/{} {}", ::getpid(), file_, name_);
}

bool Activities::take(const std::string& offered) {
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
  const Activity now = own();
  ::munmap(entries_.data(), bytes_);
  if (file_ >= 0) ::close(std::exchange(file_, -1));
  entries_ = {static_cast<Entry*>(memory), entries_.size()};
  own_entry().process = ::getpid();
  set(now);
  return true;
}

void Activities::set(Activity activity) {
  own_entry().what = packed(activity);
  own_entry().since_ns = now_ns();
}

Activity Activities::own() const {
  return unpacked(own_entry().what);
}

void Activities::set_waiting(bool waiting) {
  own_entry().waiting_since_ns = waiting ? now_ns() : 0;
  if (!waiting) own_entry().since_ns = now_ns();
}

void Activities::set_failed() {
  own_entry().failed = true;
}

bool Activities::another_failed() const {
  for (const Entry& entry : entries_)
    if (&entry != &own_entry() && entry.failed) return true;
  return false;
}

std::string Activities::describe() const {
  std::string text;
  const std::uint64_t now = now_ns();
  for (std::size_t rank = 0; rank < entries_.size(); ++rank) {
    const Entry& entry = entries_[rank];
    if (entry.process == 0) continue;
    const Activity activity = unpacked(entry.what);
    const std::uint64_t waiting = entry.waiting_since_ns;
    const std::uint64_t since = waiting != 0 ? waiting : entry.since_ns.load();
    text += fmt::format("{}rank {} {} for {:.1f} s{}", text.empty() ? "" : "; ", rank,
                        entry.failed   ? "has failed " + activity.place()
                        : waiting != 0 ? "waits for other ranks " + activity.place()
                                       : text_of(activity),
                        static_cast<double>(now - std::min(now, since)) * 1e-9,
                        rank == rank_ ? "" : process_text(entry.process));
  }
  return text;
}

}  // namespace warpstep
