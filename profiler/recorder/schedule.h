// Which steps are recorded with spans: torch.profiler's schedule over a run, or Composer's over
// each epoch.
#pragma once

#include <cstdint>
#include <string>

namespace warpstep::profiler {

enum class Action : std::uint8_t { none, warmup, record, record_and_save };

struct ProfileSchedule {
  std::uint64_t skip_first = 5;
  std::uint64_t wait = 0;
  std::uint64_t warmup = 2;
  std::uint64_t active = 20;
  std::uint64_t repeat = 1;           // 0: for ever
  std::uint64_t skip_first_wait = 0;  // not 0: no waiting before the first window (torch's)
  bool per_epoch = false;             // else per run
};

// "skip_first=5,wait=0,warmup=2,active=20,repeat=1,per=run"; what is not named keeps its default.
// UsageError that names the part and the known keys.
ProfileSchedule parse_schedule(const std::string& text);
std::string to_text(const ProfileSchedule& schedule);

// torch.profiler.schedule: `step` of the process, from 0.
Action torch_action(const ProfileSchedule& schedule, std::uint64_t step);
// Composer's cyclic_schedule as its code has it: `batch` of the epoch, from 0, of `batches`. A run
// that resumes in an epoch counts from there: `resumed_at` batches are skipped besides.
Action composer_action(const ProfileSchedule& schedule, std::uint64_t batch, std::uint64_t batches,
                       std::uint64_t resumed_at = 0);

}  // namespace warpstep::profiler
