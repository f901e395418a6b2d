#include "profiler/recorder/recorder.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <iterator>
#include <mutex>
#include <optional>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/core/error.h"
#include "engine/core/record.h"
#include "engine/core/text.h"
#include "profiler/recorder/flight.h"
#include "profiler/recorder/session_thread.h"
#include "profiler/recorder/trigger.h"
#include "profiler/sources/sampler_cores.h"
#include "profiler/sources/sampler_proc.h"

namespace warpstep::profiler {
namespace {

constexpr std::array<std::string_view, 4> level_names{"off", "steps", "spans", "deep"};

struct ScheduleKey {
  const char* name;
  std::uint64_t ProfileSchedule::*value;
};
constexpr std::array schedule_keys{
    ScheduleKey{"skip_first", &ProfileSchedule::skip_first},
    ScheduleKey{"wait", &ProfileSchedule::wait},
    ScheduleKey{"warmup", &ProfileSchedule::warmup},
    ScheduleKey{"active", &ProfileSchedule::active},
    ScheduleKey{"repeat", &ProfileSchedule::repeat},
    ScheduleKey{"skip_first_wait", &ProfileSchedule::skip_first_wait}};
constexpr const char* known_keys =
    "skip_first, wait, warmup, active, repeat, skip_first_wait (each =NUMBER), active=SECONDSs and "
    "per=run|epoch";
// Larger than any run, and sums of several do not overflow.
constexpr std::uint64_t max_schedule_value = 1'000'000'000'000;
constexpr std::uint64_t max_active_seconds = 86400;
constexpr std::uint64_t ns_per_second = 1'000'000'000;

// "active=5s": true if it is of this form.
bool set_active_time(ProfileSchedule& schedule, std::string_view part, std::string_view value) {
  if (!value.ends_with('s')) return false;
  const auto seconds = parse_number(value.substr(0, value.size() - 1));
  if (!seconds || *seconds == 0 || *seconds > max_active_seconds)
    fail<UsageError>("profile schedule: '{}' needs whole seconds from 1 to {}, such as active=3s",
                     part, max_active_seconds);
  schedule.active_ns = *seconds * ns_per_second;
  schedule.active = most_timed_steps;
  return true;
}

// "active=5x" may mean 5 seconds.
[[noreturn]] void refuse_active(std::string_view part, std::string_view value) {
  const auto digits = std::min(value.find_first_not_of("0123456789"), value.size());
  const std::uint64_t given = parse_number(value.substr(0, digits)).value_or(0);
  fail<UsageError>(
      "profile schedule: '{}' needs a whole number of steps from 0 to {}, such as active=20, or "
      "whole seconds, such as active={}s",
      part, max_schedule_value, given > 0 && given <= max_active_seconds ? given : 5);
}

std::vector<std::string> key_names() {
  std::vector<std::string> names;
  for (const ScheduleKey& key : schedule_keys) names.emplace_back(key.name);
  names.emplace_back("per");
  return names;
}

void set_key(ProfileSchedule& schedule, std::string_view part, std::string_view key,
             std::string_view value) {
  if (key == "per") {
    if (value != "run" && value != "epoch")
      fail<UsageError>("profile schedule: '{}' is neither per=run nor per=epoch", part);
    schedule.per_epoch = value == "epoch";
    return;
  }
  if (key == "active") {
    if (set_active_time(schedule, part, value)) return;
    schedule.active_ns = 0;
  }
  for (const ScheduleKey& one : schedule_keys)
    if (key == one.name) {
      const auto number = parse_number(value);
      const bool is_taken = number && *number <= max_schedule_value;
      if (!is_taken && key == "active") refuse_active(part, value);
      if (!is_taken)
        fail<UsageError>("profile schedule: '{}' needs a whole number from 0 to {}", part,
                         max_schedule_value);
      schedule.*one.value = *number;
      return;
    }
  const std::vector<std::string> names = key_names();
  fail<UsageError>("profile schedule: '{}' is unknown{}; use {}", part, suggestion(key, names),
                   known_keys);
}

ClockReading read_clocks() {
  timespec real{};
  ClockReading reading;
  reading.monotonic_ns = now_ns();
  ::clock_gettime(CLOCK_REALTIME, &real);
  reading.error_ns = now_ns() - reading.monotonic_ns;
  reading.realtime_ns = static_cast<std::uint64_t>(real.tv_sec) * 1'000'000'000 +
                        static_cast<std::uint64_t>(real.tv_nsec);
  return reading;
}

}  // namespace

Level parse_level(const std::string& text) {
  for (std::size_t i = 0; i < level_names.size(); ++i)
    if (text == level_names[i]) return static_cast<Level>(i);
  fail<UsageError>("--profile {}: must be off, steps, spans or deep", text);
}

std::string_view name(Level level) {
  return level_names.at(static_cast<std::size_t>(level));
}

ProfileSchedule parse_schedule(const std::string& text) {
  ProfileSchedule schedule;
  set_active_time(schedule, "", "3s");
  std::set<std::string, std::less<>> seen;
  std::string_view rest = text;
  while (!rest.empty()) {
    const std::size_t comma = rest.find(',');
    const std::string_view part = rest.substr(0, comma);
    const std::size_t equals = part.find('=');
    if (equals == std::string_view::npos || comma == rest.size() - 1)
      fail<UsageError>("profile schedule: '{}' in '{}' is not KEY=VALUE; use {}",
                       equals == std::string_view::npos ? part : "", text, known_keys);
    const std::string_view key = part.substr(0, equals);
    set_key(schedule, part, key, part.substr(equals + 1));
    if (!seen.emplace(key).second)
      fail<UsageError>("profile schedule: '{}' is given twice in '{}'", key, text);
    rest = comma == std::string_view::npos ? "" : rest.substr(comma + 1);
  }
  if (schedule.active == 0)
    fail<UsageError>("profile schedule: active=0 in '{}' would record nothing; use 1 or more",
                     text);
  if (schedule.per_epoch && schedule.skip_first_wait != 0)
    fail<UsageError>("profile schedule: skip_first_wait={} in '{}' works only with per=run",
                     schedule.skip_first_wait, text);
  return schedule;
}

std::string to_text(const ProfileSchedule& schedule) {
  std::string text;
  for (const ScheduleKey& key : schedule_keys)
    if (key.value != &ProfileSchedule::skip_first_wait || schedule.skip_first_wait != 0)
      text += key.value == &ProfileSchedule::active && schedule.active_ns != 0
                  ? fmt::format("active={}s,", schedule.active_ns / ns_per_second)
                  : fmt::format("{}={},", key.name, schedule.*key.value);
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
  // A window that the end of the epoch interrupts is saved: the next epoch begins a new cycle.
  const bool last = position == cycle - 1 || batch + 1 == batches;
  return last ? Action::record_and_save : Action::record;
}

struct Recorder::Parts {
  explicit Parts(RecorderOptions with)
      : options(std::move(with)),
        session(options.path,
                options.samples
                    ? std::make_unique<Sampler>(SamplerOptions{
                          .thins = true, .gpus = options.gpus, .siblings = options.siblings})
                    : nullptr),
        flight(options.span_ns, options.accumulate) {}

  RecorderOptions options;
  SessionThread session;
  std::unique_ptr<TriggerListener> listener;
  std::unique_ptr<RankClock> rank_clock;
  std::optional<Window> window;
  std::atomic<bool> recording{false};  // a window is open
  std::atomic<bool> on{false};         // sources record
  bool tracing = false;                // the device trace has begun
  bool counting = false;               // PM sampling has begun
  Action current = Action::none;       // of the current step
  // Of a warm-up: the step with which the window begins, and 0 where it is too far to look; the
  // step until which this holds.
  std::atomic<std::uint64_t> begins_at{0};
  std::uint64_t looked_until = 0;
  std::uint64_t seen = 0;     // completed steps of this process
  std::uint64_t resumed = 0;  // batches of the first epoch done by an earlier process
  bool first_epoch = true;
  bool is_full = false;  // the session, for scheduled windows
  std::atomic<std::uint64_t> windows{0};
  // No more windows. The listener asks, too; relaxed: it takes nothing from this but the answer.
  std::atomic<bool> over{false};
  std::optional<Step> written;  // the last one in the session
  bool left_out = false;
  RunDelay delay;                   // of the thread that trains
  std::set<std::uint32_t> devices;  // of the session
  bool finished = false;
  // Without a window: guarded by `mutex`, as what follows.
  Flight flight;
  std::uint64_t written_until_ns = 0;  // by windows, and by what was asked for
  // Recording on demand.
  std::mutex mutex;
  std::optional<TriggerRequest> request;
  std::uint64_t last_step = 0;
  std::uint64_t last_end_ns = 0;
  std::optional<std::uint64_t> demanded_until;  // local step, excluded
  std::uint64_t demanded_from = 0;
  bool demanded_deep = false;

  bool has_spans() const { return options.level >= Level::spans; }

  // The action for the step that is `ahead` steps after the last completed one.
  Action action(const StepPlace& next, std::uint64_t ahead) const {
    const std::uint64_t local = seen + ahead;
    if (demanded_until && local >= demanded_from && local < *demanded_until)
      return local + 1 == *demanded_until ? Action::record_and_save : Action::record;
    if (demanded_until && local < demanded_from) return Action::warmup;
    if (!has_spans() || is_full) return Action::none;
    if (!options.schedule.per_epoch) return torch_action(options.schedule, local);
    if (next.batches == 0) return Action::none;
    const std::uint64_t batch = next.batch + ahead;
    if (batch < next.batches)
      return composer_action(options.schedule, batch, next.batches, first_epoch ? resumed : 0);
    return composer_action(options.schedule, batch - next.batches, next.batches);
  }

  void turn(bool to) {
    if (on == to || (to && !session.is_alive())) return;
    on = to;
    const bool traces = options.trace.trace && (!demanded_until || demanded_deep);
    if (to && traces) options.trace.trace->begin();
    if (!to && tracing) options.trace.trace->end();  // a warm-up without a window
    tracing = to && traces;
    const bool counts = options.counters.sampling != nullptr;
    if (to && counts) options.counters.sampling->begin();
    if (!to && counting) options.counters.sampling->end(0, 0);
    counting = to && counts;
    if (to)
      keep(record::Keep::all);
    else
      keep_past();
    session.collect(to);
  }

  // Outside of windows rings keep what they have room for.
  void keep_past() const {
    if (over.load(std::memory_order_relaxed)) return record::keep(record::Keep::nothing);
    keep(flight.wants_details() ? record::Keep::detailed : record::Keep::coarse);
  }

  // The session's thread may fail at any moment, and then keeps nothing.
  void keep(record::Keep what) const {
    record::keep(what);
    if (!session.is_alive()) record::keep(record::Keep::nothing);
  }

  // With `mutex` locked.
  void fly(const Step& step) {
    const bool had_details = flight.wants_details();
    flight.on_step(step, record::recorded);
    if (const auto slow = flight.take_slow()) session.keep(*slow);
    if (!on && had_details != flight.wants_details()) keep_past();
  }

  void open_window(std::uint64_t first_step, std::uint64_t begin_ns) {
    delay.since_last();
    window = Window{first_step, first_step, begin_ns, begin_ns, tracing ? std::uint64_t{1} : 0, 0};
    recording = true;
    session.open(*window);
  }

  // What a step lost while the trainer's thread had no core, noted at its begin.
  void note_delay(const Step& step) {
    static const record::Name name{"core wait ns", record::Kind::counter};
    if (!window) return;
    if (const auto ns = delay.since_last()) record::note(name, step.begin_ns, step.begin_ns, *ns);
  }

  // What a library or an op of the user's does on a GPU that the session does not describe.
  void leave_out_foreign(Traced& traced) const {
    const std::size_t foreign = std::erase_if(traced.activities, [&](const Activity& activity) {
      return is_on_device(activity) && !devices.contains(activity.device);
    });
    if (foreign > 0)
      traced.notes.push_back(fmt::format("{} of GPUs that the run does not compute on {} left out",
                                         counted(static_cast<double>(foreign), "record"),
                                         foreign == 1 ? "is" : "are"));
  }

  void close_window(std::uint64_t last_step, std::uint64_t end_ns) {
    window->last_step = last_step;
    window->end_ns = end_ns;
    window->complete = 1;
    Traced traced;
    if (std::exchange(tracing, false)) traced = options.trace.trace->end();
    leave_out_foreign(traced);
    if (std::exchange(counting, false)) {
      Measured measured = options.counters.sampling->end(window->begin_ns, window->end_ns);
      traced.samples = std::move(measured.samples);
      std::ranges::move(measured.notes, std::back_inserter(traced.notes));
    }
    traced.clocks.push_back(read_clocks());
    session.close(*std::exchange(window, std::nullopt), std::move(traced));
    turn(false);
    // Together: who then asks for the past must not be given the window once more.
    const std::lock_guard lock(mutex);
    recording = false;
    written_until_ns = end_ns;
    ++windows;
  }

  // Keeps the complete steps of an open window when the run ends.
  void end_windows() {
    if (window && session.is_alive() && last_step >= window->first_step) {
      const std::uint64_t steps = last_step - window->first_step + 1;
      session.add_note("the run ended inside a window: it has " + std::to_string(steps) +
                       (steps == 1 ? " step" : " steps"));
      close_window(last_step, last_end_ns);
    }
    window.reset();
    over.store(true, std::memory_order_relaxed);
    turn(false);
    {
      const std::lock_guard lock(mutex);
      if (const auto slow = flight.take_slow(true)) session.keep(*slow);
    }
    keep_past();  // no more
  }

  // The first window of a schedule by time: the step that begins at `begin_ns` is its last if the
  // time ends in it or before. All windows are as long then.
  void settle_active(std::uint64_t next_step, std::uint64_t begin_ns) {
    ProfileSchedule& schedule = options.schedule;
    if (schedule.active_ns == 0 || !window || demanded_until) return;
    const std::uint64_t done = next_step - window->first_step;
    if (done == 0 || done + 1 < least_timed_steps) return;
    const std::uint64_t ns = begin_ns - window->begin_ns;
    if (ns + ns / done < schedule.active_ns && done + 1 < most_timed_steps) return;
    schedule.active = done + 1;
    schedule.active_ns = 0;
  }

  // A schedule without end fills a disk, and a session that memory does not hold has no report.
  void limit_windows() {
    if (is_full || window || !has_spans()) return;
    if (options.schedule.repeat != 0 && !options.schedule.per_epoch) return;
    const std::uint64_t bytes = session.bytes();
    if (bytes < options.most_bytes) return;
    is_full = true;
    session.add_note(fmt::format(
        "the session has {}: --profile-schedule opens no more windows; a longer wait spreads "
        "them over the run, and `warpstep profile {}` records more",
        quantity(static_cast<double>(bytes), Unit::bytes), ::getpid()));
  }

  static bool is_recorded(Action action) {
    return action == Action::record || action == Action::record_and_save;
  }

  void look_for_window(const StepPlace& next, std::uint64_t next_step) {
    constexpr std::uint64_t most = 1000;
    if (next_step < looked_until) return;
    looked_until = next_step + most;
    std::uint64_t ahead = 0;
    while (ahead < most && !is_recorded(action(next, ahead))) ++ahead;
    if (ahead < most) looked_until = next_step + ahead;
    begins_at = ahead < most ? looked_until : 0;
  }

  // Switches sources and windows for the next step.
  void prepare(const StepPlace& next, std::uint64_t next_step, std::uint64_t begin_ns) {
    settle_active(next_step, begin_ns);
    limit_windows();
    const Action coming = current = action(next, 0);
    const Action ahead = action(next, options.steps_in_flight);
    const bool records = is_recorded(coming);
    if (coming != Action::none || ahead != Action::none) {
      if (!records && !demanded_until) look_for_window(next, next_step);
      turn(true);
    } else if (!window) {
      turn(false);
    }
    if (window && !records) close_window(next_step - 1, begin_ns);
    if (records && !window) open_window(next_step, begin_ns);
  }

  std::string answer(const TriggerRequest& wanted) {
    const std::lock_guard lock(mutex);
    if (over.load(std::memory_order_relaxed)) return "refused: the run has ended";
    if (options.steps_share_launches)
      return "refused: several steps of this run share a launch; start it with --steps-per-launch "
             "1";
    if (request || demanded_until || recording)
      return "busy: a window is being recorded; try again when it is complete";
    // A warm-up's entries are kept until it is known whether the window has them, and another
    // window would take steps from it.
    if (on) return busy_warming_up();
    if (!session.is_alive()) return "refused: the session of this run cannot be written";
    if (wanted.last_ms > 0) return keep_last(wanted.last_ms);
    if (wanted.steps == 0) return "refused: --steps must be at least 1";
    request = wanted;
    return "recording " + std::to_string(wanted.steps) + " steps from about step " +
           std::to_string(last_step + 3 + options.steps_in_flight) + " on into " +
           options.path.string() +
           (wanted.deep && !options.trace.trace
                ? "; without GPU activities, because the run was not started with --profile deep"
                : "");
  }

  std::string busy_warming_up() const {
    const std::uint64_t at = begins_at;
    return fmt::format(
        "busy: the schedule's warm-up runs{}, and its window follows; try again when that is "
        "complete",
        at > 0 ? fmt::format(" until step {}", at - 1) : "");
  }

  // With `mutex` locked, in the listener's thread.
  std::string keep_last(std::uint64_t last_ms) {
    const std::uint64_t now = now_ns(), asked_ns = last_ms * 1'000'000;
    const std::uint64_t from = std::max(now - std::min(now, asked_ns), written_until_ns);
    std::vector<Span> spans;
    const std::uint64_t complete =
        record::copy(from, [&](std::uint32_t thread, std::span<const record::Entry> entries) {
          for (const record::Entry& entry : entries)
            // Those that began earlier but last into the time are in it: a long evaluation.
            if (entry.begin_ns >= written_until_ns)
              spans.push_back({entry.begin_ns, entry.end_ns, entry.arg, entry.name, thread});
        });
    std::erase_if(spans, [&](const Span& span) { return span.end_ns <= complete; });
    const std::vector<Window> kept = flight.windows(complete, last_end_ns);
    if (spans.empty() || kept.empty())
      return "refused: nothing was recorded since " +
             std::string(written_until_ns > 0 ? "the last window" : "the run began");
    std::uint64_t steps = 0;
    for (const Window& window : kept) steps += window.last_step - window.first_step + 1;
    session.keep({.begin_ns = complete,
                  .end_ns = now,
                  .first_step = kept.front().first_step,
                  .last_step = kept.back().last_step,
                  .asked_ns = asked_ns},
                 kept, std::move(spans));
    windows += kept.size();
    written_until_ns = now;
    return fmt::format(
        "kept the last {} of the {} asked for{}: steps {}-{}, {} of them with all "
        "their calls, in {}",
        quantity(static_cast<double>(now - complete), Unit::ns),
        quantity(static_cast<double>(asked_ns), Unit::ns),
        complete > from ? " (the rings hold no more)" : "", kept.front().first_step,
        kept.back().last_step, steps, options.path.string());
  }

  void after(const Step& step) {
    const std::lock_guard lock(mutex);  // once a step
    fly(step);
    last_step = step.step;
    last_end_ns = step.end_ns;
    take_request();
  }

  // With `mutex` locked.
  void take_request() {
    if (demanded_until && seen >= *demanded_until) demanded_until.reset();
    if (!request || window) return;
    demanded_from = seen + 1 + options.steps_in_flight;
    demanded_until = demanded_from + request->steps;
    demanded_deep = request->deep;
    request.reset();
  }
};

Recorder::Recorder(RecorderOptions options) : parts_(std::make_unique<Parts>(std::move(options))) {
  Parts& parts = *parts_;
  if (parts.options.level == Level::deep && !parts.options.trace.why.empty())
    note(parts.options.trace.why);
  if (parts.options.rank)
    parts.rank_clock = std::make_unique<RankClock>(
        RankClockOptions{.address = *parts.options.rank,
                         .report = [&parts](const PeerClock& clock) { parts.session.add(clock); }});
  if (!parts.options.counters.why.empty()) note(parts.options.counters.why);
  if (!parts.options.listens) return;
  parts.listener = std::make_unique<TriggerListener>(
      [&parts](const TriggerRequest& request) { return parts.answer(request); });
  if (!parts.listener->why().empty()) note(parts.listener->why());
}

Recorder::~Recorder() {
  finish();
}

void Recorder::set_stamp(const Json& stamp) {
  parts_->session.add(Chunk::stamp, stamp);
}
void Recorder::set_program(const Json& program) {
  parts_->session.add(Chunk::program, program);
}
void Recorder::set_loader(const Json& loader) {
  parts_->session.add(Chunk::loader, loader);
}
void Recorder::set_peaks(const Json& peaks) {
  parts_->session.add(Chunk::peaks, peaks);
}
void Recorder::set_devices(const std::vector<Device>& devices) {
  for (const Device& device : devices) parts_->devices.insert(device.id);
  parts_->session.add(devices);
}
void Recorder::note(const std::string& text) {
  parts_->session.add_note(text);
}

void Recorder::begin(std::uint64_t step, const StepPlace& first) {
  Parts& parts = *parts_;
  parts.resumed = first.batch;
  {
    const std::lock_guard lock(parts.mutex);
    parts.last_step = step - 1;
  }
  parts.session.add(read_clocks());
  parts.keep_past();
  parts.prepare(first, step, now_ns());
}

void Recorder::on_step(const Step& step, const StepPlace& next) {
  Parts& parts = *parts_;
  if (parts.over.load(std::memory_order_relaxed)) return;
  if (const std::string why = why_not_after(parts.written, step); !why.empty()) {
    if (!std::exchange(parts.left_out, true)) note(why);
    return;
  }
  parts.written = step;
  parts.note_delay(step);  // before the step: a step in the file has all of its entries there
  parts.session.add(step);
  ++parts.seen;
  if (next.batch == 0) parts.first_epoch = false;
  if (parts.window && parts.current == Action::record_and_save)
    parts.close_window(step.step, step.end_ns);
  parts.after(step);
  parts.prepare(next, step.step + 1, step.end_ns);
}

void Recorder::end_windows() {
  if (!parts_->over.load(std::memory_order_relaxed)) parts_->end_windows();
}

void Recorder::finish() {
  Parts& parts = *parts_;
  if (std::exchange(parts.finished, true)) return;
  parts.listener.reset();
  end_windows();
  if (parts.rank_clock) {
    parts.rank_clock->finish();
    for (const std::string& text : parts.rank_clock->notes()) note(text);
  }
  parts.session.finish();
}

std::vector<std::string> Recorder::notes() const {
  return parts_->session.notes();
}

std::uint64_t Recorder::windows() const {
  return parts_->windows;
}

}  // namespace warpstep::profiler
