#include "profiler/recorder/recorder.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <iterator>
#include <mutex>
#include <optional>
#include <utility>

#include "engine/core/error.h"
#include "engine/core/record.h"
#include "profiler/recorder/session_thread.h"
#include "profiler/recorder/trigger.h"

namespace warpstep::profiler {
namespace {

constexpr std::array<std::string_view, 4> level_names{"off", "steps", "spans", "deep"};

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
  fail<UsageError>("--profile {}: there are off, steps, spans and deep", text);
}

std::string_view name(Level level) {
  return level_names.at(static_cast<std::size_t>(level));
}

struct Recorder::Parts {
  explicit Parts(RecorderOptions with)
      : options(std::move(with)),
        session(options.path, options.samples ? std::make_unique<Sampler>(
                                                    SamplerOptions{.gpu = options.samples_gpus})
                                              : nullptr) {}

  RecorderOptions options;
  SessionThread session;
  std::unique_ptr<TriggerListener> listener;
  std::unique_ptr<RankClock> rank_clock;
  std::optional<Window> window;
  std::atomic<bool> recording{false};  // a window is open
  bool on = false;                     // sources give entries
  bool tracing = false;                // a trace was begun and not ended
  bool counting = false;               // and the GPU's counters
  Action current = Action::none;       // of the step at hand
  std::uint64_t seen = 0;              // steps of this process that are done
  std::uint64_t resumed = 0;           // batches of the first epoch that were done before
  bool first_epoch = true;
  std::uint64_t windows = 0;
  bool over = false;  // no more windows
  bool finished = false;
  // On demand.
  std::mutex mutex;
  std::optional<TriggerRequest> request;
  std::uint64_t last_told = 0;  // step
  std::uint64_t last_end_ns = 0;
  std::optional<std::uint64_t> demanded_until;  // local step, excluded
  std::uint64_t demanded_from = 0;
  bool demanded_deep = false;

  bool has_spans() const { return options.level >= Level::spans; }

  // What shall be recorded of the step that comes `ahead` steps after the last one done.
  Action action(const StepPlace& next, std::uint64_t ahead) const {
    const std::uint64_t local = seen + ahead;
    if (demanded_until && local >= demanded_from && local < *demanded_until)
      return local + 1 == *demanded_until ? Action::record_and_save : Action::record;
    if (demanded_until && local < demanded_from) return Action::warmup;
    if (!has_spans()) return Action::none;
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
    if (!to && tracing) options.trace.trace->end();  // a warm-up that nothing came of
    tracing = to && traces;
    const bool counts = options.counters.sampling != nullptr;
    if (to && counts) options.counters.sampling->begin();
    if (!to && counting) options.counters.sampling->end(0, 0);
    counting = to && counts;
    record::keep_entries(to);
    if (to) session.wake();
  }

  void open_window(std::uint64_t first_step, std::uint64_t begin_ns) {
    window = Window{first_step, first_step, begin_ns, begin_ns, tracing ? std::uint64_t{1} : 0, 0};
    recording = true;
    session.open(*window);
  }

  void close_window(std::uint64_t last_step, std::uint64_t end_ns) {
    window->last_step = last_step;
    window->end_ns = end_ns;
    window->complete = 1;
    Traced traced;
    if (std::exchange(tracing, false)) traced = options.trace.trace->end();
    if (std::exchange(counting, false)) {
      Measured measured = options.counters.sampling->end(window->begin_ns, window->end_ns);
      traced.samples = std::move(measured.samples);
      std::ranges::move(measured.notes, std::back_inserter(traced.notes));
    }
    traced.clocks.push_back(read_clocks());
    session.close(*std::exchange(window, std::nullopt), std::move(traced));
    turn(false);
    recording = false;
    ++windows;
  }

  // What was recorded of whole steps is kept: the run ends, and a window with it.
  void end_windows() {
    if (window && session.is_alive() && last_told >= window->first_step) {
      const std::uint64_t steps = last_told - window->first_step + 1;
      session.add_note("the run ended in a window: it has " + std::to_string(steps) +
                       (steps == 1 ? " step" : " steps"));
      close_window(last_told, last_end_ns);
    }
    window.reset();
    turn(false);
    over = true;
  }

  // For the steps to come.
  void prepare(const StepPlace& next, std::uint64_t next_step, std::uint64_t begin_ns) {
    const Action coming = current = action(next, 0);
    const Action ahead = action(next, options.steps_in_flight);
    const bool records = coming == Action::record || coming == Action::record_and_save;
    if (coming != Action::none || ahead != Action::none)
      turn(true);
    else if (!window)
      turn(false);
    if (window && !records) close_window(next_step - 1, begin_ns);
    if (records && !window) open_window(next_step, begin_ns);
  }

  std::string answer(const TriggerRequest& wanted) {
    const std::lock_guard lock(mutex);
    if (request || demanded_until || recording)
      return "busy: a window is being recorded; ask again when it is done";
    if (!session.is_alive()) return "refused: this run's session could not be written";
    if (wanted.steps == 0) return "refused: --steps must be at least 1";
    request = wanted;
    return "recording " + std::to_string(wanted.steps) + " steps from about step " +
           std::to_string(last_told + 3 + options.steps_in_flight) + " on into " +
           options.path.string() +
           (wanted.deep && !options.trace.trace
                ? "; without the device's activities: the run was not started with --profile deep"
                : "");
  }

  void take_request() {
    const std::lock_guard lock(mutex);
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
                         .tell = [&parts](const PeerClock& clock) { parts.session.add(clock); }});
  if (!parts.options.counters.why.empty()) note(parts.options.counters.why);
  if (!parts.options.listens) return;
  parts.listener = std::make_unique<TriggerListener>(
      [&parts](const TriggerRequest& request) { return parts.answer(request); });
  if (!parts.listener->why().empty()) note(parts.listener->why());
}

Recorder::~Recorder() {
  finish();
}

void Recorder::tell_stamp(const Json& stamp) {
  parts_->session.add(Chunk::stamp, stamp);
}
void Recorder::tell_program(const Json& program) {
  parts_->session.add(Chunk::program, program);
}
void Recorder::tell_loader(const Json& loader) {
  parts_->session.add(Chunk::loader, loader);
}
void Recorder::tell_peaks(const Json& peaks) {
  parts_->session.add(Chunk::peaks, peaks);
}
void Recorder::tell_devices(const std::vector<Device>& devices) {
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
    parts.last_told = step - 1;
  }
  parts.session.add(read_clocks());
  parts.prepare(first, step, now_ns());
}

void Recorder::on_step(const Step& step, const StepPlace& next) {
  Parts& parts = *parts_;
  if (parts.over) return;
  parts.session.add(step);
  ++parts.seen;
  if (next.batch == 0) parts.first_epoch = false;
  if (parts.window && parts.current == Action::record_and_save)
    parts.close_window(step.step, step.end_ns);
  {
    const std::lock_guard lock(parts.mutex);
    parts.last_told = step.step;
    parts.last_end_ns = step.end_ns;
  }
  parts.take_request();
  parts.prepare(next, step.step + 1, step.end_ns);
}

void Recorder::end_windows() {
  if (!parts_->over) parts_->end_windows();
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
