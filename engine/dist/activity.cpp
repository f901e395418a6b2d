#include "engine/dist/activity.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <string_view>

#include "engine/core/clock.h"

namespace warpstep {

// Zeros are a rank that is not known.
struct alignas(64) Activities::Entry {
  std::atomic<std::int64_t> process;
  std::atomic<std::uint64_t> what;              // the step, with the kind in the uppermost byte
  std::atomic<std::uint64_t> since_ns;          // engine/core/clock.h, which all processes share
  std::atomic<std::uint64_t> waiting_since_ns;  // 0: does not wait
  std::atomic<int> failed;                      // its exit code
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

constexpr char unknown_state = '?';

// As the kernel has it; X: there is none. A process may live that cannot be asked for, as where
// this one has too many open files.
char state_of(std::int64_t process) {
  const std::string path = fmt::format("/proc/{}/stat", process);
  std::array<char, 512> text{};
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  const ssize_t length = file < 0 ? -1 : ::read(file, text.data(), text.size());
  const int error = errno;  // ESRCH: it ended after the file was opened
  if (file >= 0) ::close(file);
  if (length < 0) return error == ENOENT || error == ESRCH ? 'X' : unknown_state;
  const std::string_view stat(text.data(), static_cast<std::size_t>(length));
  const std::size_t name_end = stat.rfind(") ");  // the name itself may have parentheses
  return name_end == std::string_view::npos ? unknown_state : stat[name_end + 2];
}

bool has_ended(char state) {
  return state == 'X' || state == 'Z';
}

// Of a process that should answer.
std::string text_of(char state) {
  if (has_ended(state)) return ", and its process has ended";
  if (state == 'T') return ", and its process is stopped (SIGSTOP)";
  if (state == 't') return ", and a debugger has stopped its process";
  if (state == 'D') return ", and its process waits for a disk or a network file system";
  return {};
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
      size_(static_cast<std::size_t>(size)),
      memory_(size_ * sizeof(Entry)) {
  begin({});
}

std::span<Activities::Entry> Activities::entries() const {
  return {reinterpret_cast<Entry*>(memory_.data()), size_};
}

Activities::Entry& Activities::own_entry() const {
  return entries()[rank_];
}

void Activities::begin(Activity activity) {
  own_entry().process = ::getpid();
  set(activity);
}

bool Activities::take(const std::string& offered) {
  const Activity now = own();
  if (!memory_.take(offered)) return false;
  begin(now);
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

void Activities::set_failed(int code) {
  own_entry().failed = code;
}

int Activities::failure_below(int rank) const {
  for (const Entry& entry : entries().first(static_cast<std::size_t>(rank)))
    if (entry.failed != 0) return entry.failed;
  return 0;
}

bool Activities::another_ended() const {
  for (const Entry& entry : entries())
    if (&entry != &own_entry() && entry.process != 0 && has_ended(state_of(entry.process)))
      return true;
  return false;
}

bool Activities::knows(int rank) const {
  return entries()[static_cast<std::size_t>(rank)].process != 0;
}

bool Activities::knows_all() const {
  return std::ranges::all_of(entries(), [](const Entry& entry) { return entry.process != 0; });
}

std::string Activities::describe() const {
  std::string text;
  const std::uint64_t now = now_ns();
  for (std::size_t rank = 0; rank < size_; ++rank) {
    const Entry& entry = entries()[rank];
    if (entry.process == 0) continue;
    const Activity activity = unpacked(entry.what);
    const std::uint64_t waiting = entry.waiting_since_ns;
    const std::uint64_t since = waiting != 0 ? waiting : entry.since_ns.load();
    text += fmt::format("{}rank {} {} for {:.1f} s{}", text.empty() ? "" : "; ", rank,
                        entry.failed != 0 ? "has failed " + activity.place()
                        : waiting != 0    ? "waits for other ranks " + activity.place()
                                          : text_of(activity),
                        static_cast<double>(now - std::min(now, since)) * 1e-9,
                        rank == rank_ ? "" : text_of(state_of(entry.process)));
  }
  return text;
}

}  // namespace warpstep
