#include "tools/warpstep/fitting.h"

#include <algorithm>
#include <cstdlib>
#include <optional>

#include "engine/core/control_group.h"
#include "profiler/sources/sampler_proc.h"

namespace warpstep::tools {
namespace {

// What the kernel could give without swapping.
std::uint64_t free_host_bytes() {
  const std::string text = profiler::read_text("/proc/meminfo").value_or("");
  const std::string available = profiler::value_of(text, "MemAvailable", ':');  // "16384 kB"
  std::string_view fields = available;
  const auto kib = profiler::parse_number(profiler::next_field(fields));
  const std::uint64_t machine = kib ? *kib * 1024 : UINT64_MAX;
  const auto group = tightest_memory(memory_groups(control_groups()));
  return group ? std::min(machine, group->free_bytes) : machine;
}

}  // namespace

std::uint64_t free_bytes(const Backend& backend, int ranks) {
  if (const char* fixed = std::getenv("WARPSTEP_FREE_BYTES"))
    if (const auto bytes = profiler::parse_number(fixed)) return *bytes;
  const std::uint64_t device = backend.free_bytes();
  const std::uint64_t free =
      device > 0 ? device : free_host_bytes() / static_cast<std::uint64_t>(ranks);
  return free - free / 16;
}

std::int64_t largest_batch_that_fits(std::int64_t too_large,
                                     const std::function<std::uint64_t(std::int64_t)>& bytes,
                                     std::uint64_t free) {
  std::int64_t fits = 0, not_fits = too_large;
  std::uint64_t low = 0, high = bytes(too_large);
  bool straight = true;  // the next guess: on the line between the two, or in their middle
  while (not_fits - fits > 1) {
    std::int64_t guess = fits + (not_fits - fits) / 2;
    if (straight && high > low && free >= low)
      guess = fits + static_cast<std::int64_t>(static_cast<double>(free - low) /
                                               static_cast<double>(high - low) *
                                               static_cast<double>(not_fits - fits));
    guess = std::clamp(guess, fits + 1, not_fits - 1);
    const std::int64_t width = not_fits - fits;
    const std::uint64_t taken = bytes(guess);
    (taken <= free ? fits : not_fits) = guess;
    (taken <= free ? low : high) = taken;
    // A line that leaves more than half is no good guide.
    straight = !straight || not_fits - fits <= width / 2;
  }
  return fits;
}

bool report_fits(std::uint64_t session_bytes, std::uint64_t budget) {
  return session_bytes <= budget / 3;  // records, what is found of them, and a page
}

}  // namespace warpstep::tools
