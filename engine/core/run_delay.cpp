#include "engine/core/run_delay.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <utility>

namespace warpstep {

std::optional<ScheduledTime> parse_schedstat(std::string_view text) {
  std::array<std::uint64_t, 3> fields{};  // on a core, ready without one, slices
  for (std::uint64_t& field : fields) {
    while (text.starts_with(' ')) text.remove_prefix(1);
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), field);
    if (error != std::errc{}) return std::nullopt;
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  }
  // A kernel that does not count writes zeros.
  if (fields[0] == 0 && fields[2] == 0) return std::nullopt;
  return ScheduledTime{fields[0], fields[1]};
}

RunDelay::~RunDelay() {
  if (file_ >= 0) ::close(file_);
}

std::optional<std::uint64_t> RunDelay::since_last() {
  if (const int thread = ::gettid(); thread != thread_) {
    if (file_ >= 0) ::close(file_);
    file_ = ::open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
    thread_ = thread;
    last_.reset();
  }
  std::array<char, 96> text{};
  const ssize_t got = file_ < 0 ? -1 : ::pread(file_, text.data(), text.size(), 0);
  if (got <= 0) return std::nullopt;
  const auto now = parse_schedstat(std::string_view(text.data(), static_cast<std::size_t>(got)));
  if (!now) return std::nullopt;
  const std::optional<std::uint64_t> before = std::exchange(last_, now->delay_ns);
  if (!before || *before > now->delay_ns) return std::nullopt;
  return now->delay_ns - *before;
}

}  // namespace warpstep
