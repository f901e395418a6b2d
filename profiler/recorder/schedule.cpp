#include "profiler/recorder/schedule.h"

#include <array>
#include <charconv>
#include <set>
#include <string_view>
#include <vector>

#include "engine/core/error.h"
#include "engine/core/text.h"

namespace warpstep::profiler {
namespace {

struct Key {
  const char* name;
  std::uint64_t ProfileSchedule::*value;
};
constexpr std::array keys{Key{"skip_first", &ProfileSchedule::skip_first},
                          Key{"wait", &ProfileSchedule::wait},
                          Key{"warmup", &ProfileSchedule::warmup},
                          Key{"active", &ProfileSchedule::active},
                          Key{"repeat", &ProfileSchedule::repeat},
                          Key{"skip_first_wait", &ProfileSchedule::skip_first_wait}};
constexpr const char* known =
    "skip_first, wait, warmup, active, repeat, skip_first_wait (each =NUMBER) and per=run|epoch";
// Far beyond any run, and no sum of a few overflows.
constexpr std::uint64_t largest = 1'000'000'000'000;

std::vector<std::string> key_names() {
  std::vector<std::string> names;
  for (const Key& key : keys) names.emplace_back(key.name);
  names.emplace_back("per");
  return names;
}

std::uint64_t number(std::string_view part, std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value > largest)
    fail<UsageError>("profile schedule: '{}' wants a whole number from 0 to {}", part, largest);
  return value;
}

void set(ProfileSchedule& schedule, std::string_view part, std::string_view key,
         std::string_view value) {
  if (key == "per") {
    if (value != "run" && value != "epoch")
      fail<UsageError>("profile schedule: '{}' is neither per=run nor per=epoch", part);
    schedule.per_epoch = value == "epoch";
    return;
  }
  for (const Key& one : keys)
    if (key == one.name) {
      schedule.*one.value = number(part, value);
      return;
    }
  const std::vector<std::string> names = key_names();
  fail<UsageError>("profile schedule: '{}' is not known{}; there are {}", part,
                   suggestion(key, names), known);
}

}  // namespace

ProfileSchedule parse_schedule(const std::string& text) {
  ProfileSchedule schedule;
  std::set<std::string, std::less<>> seen;
  std::string_view rest = text;
  while (!rest.empty()) {
    const std::size_t comma = rest.find(',');
    const std::string_view part = rest.substr(0, comma);
    const std::size_t equals = part.find('=');
    if (equals == std::string_view::npos || comma == rest.size() - 1)
      fail<UsageError>("profile schedule: '{}' in '{}' is not KEY=VALUE; there are {}",
                       equals == std::string_view::npos ? part : "", text, known);
    const std::string_view key = part.substr(0, equals);
    set(schedule, part, key, part.substr(equals + 1));
    if (!seen.emplace(key).second)
      fail<UsageError>("profile schedule: '{}' is given twice in '{}'", key, text);
    rest = comma == std::string_view::npos ? "" : rest.substr(comma + 1);
  }
  if (schedule.active == 0)
    fail<UsageError>("profile schedule: active=0 in '{}' would record nothing; active=1 or more",
                     text);
  if (schedule.per_epoch && schedule.skip_first_wait != 0)
    fail<UsageError>("profile schedule: skip_first_wait={} in '{}' goes with per=run only",
                     schedule.skip_first_wait, text);
  return schedule;
}

std::string to_text(const ProfileSchedule& schedule) {
  std::string text;
  for (const Key& key : keys)
    if (key.value != &ProfileSchedule::skip_first_wait || schedule.skip_first_wait != 0)
      text += fmt::format("{}={},", key.name, schedule.*key.value);
  return text + (schedule.per_epoch ? "per=epoch" : "per=run");
}

Action torch_action(const ProfileSchedule& schedule, std::uint64_t step) {
  if (schedule.active == 0 || step < schedule.skip_first) return Action::none;
  const std::uint64_t cycle = schedule.wait + schedule.warmup + schedule.active;
  step -= schedule.skip_first;
  if (schedule.skip_first_wait != 0) step += schedule.wait;
  if (schedule.repeat != 0 && step / cycle >= schedule.repeat) return Action::none;
  const std::uint64_t position = step % cycle;
  if (position < schedule.wait) return Action::none;
  if (position < schedule.wait + schedule.warmup) return Action::warmup;
  return position == cycle - 1 ? Action::record_and_save : Action::record;
}

Action composer_action(const ProfileSchedule& schedule, std::uint64_t batch, std::uint64_t batches,
                       std::uint64_t resumed_at) {
  const std::uint64_t skipped = schedule.skip_first + resumed_at;
  if (schedule.active == 0 || batch < skipped) return Action::none;
  const std::uint64_t cycle = schedule.wait + schedule.warmup + schedule.active;
  const std::uint64_t since = batch - skipped;
  if (schedule.repeat != 0 && since / cycle >= schedule.repeat) return Action::none;
  const std::uint64_t position = since % cycle;
  if (position < schedule.wait) return Action::none;
  if (position < schedule.wait + schedule.warmup) return Action::warmup;
  // An epoch that ends within a window saves what there is: the next epoch begins a new cycle.
  const bool last = position == cycle - 1 || batch + 1 == batches;
  return last ? Action::record_and_save : Action::record;
}

}  // namespace warpstep::profiler
