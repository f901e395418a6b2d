#include "engine/core/phase.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <mutex>
#include <string>
#include <utility>

namespace warpstep::record {
namespace {

constexpr std::size_t most_untaken = 10'000;
// Longer between the process's creation and the loading of this library: another program ran.
constexpr std::uint64_t most_loading_ns = 5'000'000'000;

struct Ended {
  std::mutex mutex;
  std::vector<PhaseEntry> entries;
};
// Never destroyed: phases may end after main() has.
Ended& ended() {
  static Ended* const all = new Ended;
  return *all;
}

thread_local Phase* innermost = nullptr;
thread_local bool in_part = false;

const std::uint64_t loaded_ns = now_ns();

std::uint64_t ns_of(clockid_t clock) {
  timespec time{};
  ::clock_gettime(clock, &time);
  return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000 +
         static_cast<std::uint64_t>(time.tv_nsec);
}

// Field 22 of /proc/self/stat, ticks since boot; 0: unknown.
std::uint64_t created_ns() {
  std::FILE* const file = std::fopen("/proc/self/stat", "re");
  if (file == nullptr) return 0;
  std::array<char, 1024> text{};
  const std::size_t bytes = std::fread(text.data(), 1, text.size() - 1, file);
  std::fclose(file);
  text[bytes] = '\0';
  const char* at = std::strrchr(text.data(), ')');  // the name before may hold blanks
  for (int field = 2; at != nullptr && field < 22; ++field) {
    at = std::strchr(at, ' ');
    if (at != nullptr) ++at;
  }
  unsigned long long ticks = 0;
  const long per_second = ::sysconf(_SC_CLK_TCK);
  if (at == nullptr || std::sscanf(at, "%llu", &ticks) != 1 || per_second <= 0) return 0;
  const std::uint64_t since_boot =
      static_cast<std::uint64_t>(ticks) * (1'000'000'000 / static_cast<std::uint64_t>(per_second));
  const std::uint64_t boot_clock = ns_of(CLOCK_BOOTTIME), now = now_ns();
  const std::uint64_t age = boot_clock > since_boot ? boot_clock - since_boot : 0;
  return now > age ? now - age : 0;
}

}  // namespace

Phase::Phase(const Name& name, std::uint64_t arg) noexcept : Phase(name, arg, now_ns()) {}

Phase::Phase(const Name& name, std::uint64_t arg, std::uint64_t begin_ns) noexcept
    : around_(innermost), depth_(around_ ? around_->depth_ + 1 : 0) {
  entry_ = {begin_ns, 0, 0, arg, name.id(), depth_};
  innermost = this;
}

void Phase::end() noexcept {
  if (!std::exchange(open_, false)) return;
  innermost = around_;
  entry_.end_ns = std::max(now_ns(), entry_.begin_ns);
  entry_.ns = entry_.end_ns - entry_.begin_ns;
  try {
    Ended& all = ended();
    const std::lock_guard lock(all.mutex);
    if (all.entries.size() >= most_untaken) return;
    for (std::size_t i = 0; i < part_count_; ++i)
      all.entries.push_back({parts_[i].begin_ns, parts_[i].end_ns, parts_[i].ns, entry_.arg,
                             parts_[i].name, depth_ + 1});
    all.entries.push_back(entry_);
  } catch (...) {  // no memory: the run continues without this phase
  }
}

PhasePart::PhasePart(const Name& name) noexcept
    : phase_(in_part ? nullptr : innermost), name_(name.id()) {
  if (phase_ == nullptr) return;
  in_part = true;
  begin_ns_ = now_ns();
}

PhasePart::~PhasePart() {
  if (phase_ == nullptr) return;
  in_part = false;
  const std::uint64_t end = now_ns();
  Phase::Part* const first = phase_->parts_;
  Phase::Part* const last = first + phase_->part_count_;
  Phase::Part* part =
      std::find_if(first, last, [&](const Phase::Part& one) { return one.name == name_; });
  if (part == last) {
    if (phase_->part_count_ == Phase::most_parts) return;
    ++phase_->part_count_;
    *part = {begin_ns_, end, 0, name_};
  }
  part->end_ns = end;
  part->ns += end - begin_ns_;
}

std::vector<PhaseEntry> take_phases() {
  Ended& all = ended();
  const std::lock_guard lock(all.mutex);
  return std::exchange(all.entries, {});
}

std::uint64_t process_start_ns() {
  static const std::uint64_t start = [] {
    const std::uint64_t created = created_ns();
    return created == 0 || created > loaded_ns || loaded_ns - created > most_loading_ns ? loaded_ns
                                                                                        : created;
  }();
  return start;
}

}  // namespace warpstep::record
