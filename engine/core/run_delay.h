// How long threads were ready to run but had no core, by Linux's schedstat.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace warpstep {

struct ScheduledTime {
  std::uint64_t on_cpu_ns = 0, delay_ns = 0;  // since the thread began
};
// Of /proc/PID/task/TID/schedstat; nothing where the kernel does not count.
std::optional<ScheduledTime> parse_schedstat(std::string_view text);

// The delays of the calling thread. The file stays open, so that a reading is one system call
// (0.5 us; 2 us in virtual machines).
class RunDelay {
 public:
  RunDelay() = default;
  ~RunDelay();
  RunDelay(const RunDelay&) = delete;
  RunDelay& operator=(const RunDelay&) = delete;

  // ns since the last call by this thread. Nothing at the first, and where the kernel does not
  // count.
  std::optional<std::uint64_t> since_last();

 private:
  int file_ = -1, thread_ = -1;
  std::optional<std::uint64_t> last_;
};

}  // namespace warpstep
