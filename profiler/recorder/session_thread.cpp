#include "profiler/recorder/session_thread.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <span>
#include <utility>

#include "engine/core/clock.h"
#include "engine/core/phase.h"
#include "engine/core/record.h"
#include "engine/core/thread.h"

namespace warpstep::profiler {
namespace {

// A ring holds 16,384 entries: at 100,000 per second and thread it is a sixth full after a period.
constexpr std::chrono::milliseconds period{25};
constexpr std::chrono::milliseconds idle_period{500};  // without a window

std::atomic<std::uint64_t> sessions_made{0}, sessions_running{0};

}  // namespace

SessionThread::SessionThread(std::filesystem::path path, std::unique_ptr<Sampler> sampler)
    : sampler_(std::move(sampler)),
      lost_before_(record::dropped()),
      is_second_(sessions_running++ > 0),
      number_(++sessions_made) {
  try {
    writer_.emplace(std::move(path));
    bytes_ = writer_->bytes();
  } catch (const std::exception& error) {
    notes_.push_back(std::string("the session is not written: ") + error.what());
    stop_ = true;
    sampler_.reset();
    return;
  }
  if (sampler_ && !sampler_->why().empty()) notes_.push_back(sampler_->why());
  const std::string why = try_start_thread(thread_, "profiler", [this] { run(); });
  if (why.empty()) return;
  notes_.push_back("the session is not written: " + why);
  stop_ = true;
  sampler_.reset();
  writer_.reset();
}

SessionThread::~SessionThread() {
  finish();
  if (!writer_) return;
  try {
    write_phases();
    writer_->close();
  } catch (
      const std::exception& error) {  // the report, and what shows notes, are done without them
    std::fprintf(stderr, "profile: the session lacks the times of the run's end: %s\n",
                 error.what());
  }
}

void SessionThread::add(const Step& step) {
  const std::lock_guard lock(mutex_);
  if (!stop_) next_.steps.push_back(step);
}

void SessionThread::add(Chunk type, const Json& json) {
  const std::lock_guard lock(mutex_);
  if (!stop_) next_.objects.emplace_back(type, json);
}

void SessionThread::add(const ClockReading& clocks) {
  const std::lock_guard lock(mutex_);
  if (!stop_) next_.clocks.push_back(clocks);
}

void SessionThread::add(const PeerClock& clock) {
  const std::lock_guard lock(mutex_);
  if (!stop_) next_.peer_clocks.push_back(clock);
}

void SessionThread::add(const std::vector<Device>& devices) {
  const std::lock_guard lock(mutex_);
  if (!stop_) next_.devices.insert(next_.devices.end(), devices.begin(), devices.end());
}

void SessionThread::add_note(const std::string& text) {
  const std::lock_guard lock(mutex_);
  notes_.push_back(text);
  if (!stop_) next_.notes.push_back(text);
}

void SessionThread::open(const Window& window) {
  add(Event{window, std::nullopt});
}

void SessionThread::close(const Window& window, Traced traced) {
  add(Event{window, std::move(traced)});
}

void SessionThread::add(Event event) {
  {
    const std::lock_guard lock(mutex_);
    if (!stop_) next_.events.push_back(std::move(event));
  }
  wake_.notify_one();
}

void SessionThread::collect(bool on) {
  {
    const std::lock_guard lock(mutex_);
    woken_ = true;
    collects_ = on;
  }
  wake_.notify_one();
}

void SessionThread::keep(const Kept& slow) {
  {
    const std::lock_guard lock(mutex_);
    if (!stop_) next_.slow.push_back(slow);
    woken_ = true;
  }
  wake_.notify_one();
}

void SessionThread::keep(const Kept& kept, std::vector<Window> windows, std::vector<Span> spans) {
  {
    const std::lock_guard lock(mutex_);
    if (!stop_) next_.past.push_back({kept, std::move(windows), std::move(spans)});
    woken_ = true;
  }
  wake_.notify_one();
}

bool SessionThread::is_alive() const {
  const std::lock_guard lock(mutex_);
  return !stop_;
}

void SessionThread::finish() {
  if (!std::exchange(finished_, true)) {
    --sessions_running;
    if (is_second_ || sessions_made != number_)  // the rings have one reader
      add_note("another recorder of this process ran at the same time: each may lack spans");
  }
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;  // may be set already, after a failure; the thread must still be joined
  }
  wake_.notify_one();
  if (thread_.joinable()) thread_.join();
}

std::vector<std::string> SessionThread::notes() const {
  const std::lock_guard lock(mutex_);
  return notes_;
}

void SessionThread::run() {
  for (bool last = false; !last;) {
    Additions additions;
    {
      std::unique_lock lock(mutex_);
      wake_.wait_for(lock, window_ || collects_ ? period : idle_period,
                     [&] { return stop_ || woken_ || !next_.events.empty(); });
      woken_ = false;
      last = stop_;
      additions = std::exchange(next_, {});
      additions.collects = collects_;
      additions.taken_ns = now_ns();
    }
    try {
      write(additions);
      if (writer_) bytes_ = writer_->bytes();
      if (last && writer_) {
        write_samples();
        writer_->write(Chunk::losses, std::vector{losses_});
        writer_->flush();
      }
    } catch (const std::exception& error) {
      writer_.reset();
      {
        const std::lock_guard lock(mutex_);
        stop_ = true;  // accepts no more; the run continues
      }
      // In this order: the recorder keeps entries first, then looks whether this thread has failed.
      record::keep_entries(false);
      const std::lock_guard lock(mutex_);
      notes_.push_back(std::string("the session ends early: ") + error.what());
      return;
    }
  }
}

void SessionThread::write(const Additions& additions) {
  if (!writer_) return;
  for (const auto& [type, json] : additions.objects) writer_->write(type, json);
  for (const std::string& note : additions.notes)
    writer_->write(Chunk::note, std::string_view(note));
  if (!additions.devices.empty()) write_names();
  writer_->write(Chunk::devices, additions.devices);
  writer_->write(Chunk::clocks, additions.clocks);
  writer_->write(Chunk::peer_clocks, additions.peer_clocks);
  write_samples();
  write_phases();
  write_past(additions);
  const bool collects = additions.collects || !additions.events.empty() || window_;
  if (collects) gather_entries();
  // Rates over a window are exact where samples were taken at its begin and its end.
  if (sampler_ && !additions.events.empty()) sampler_->look();
  // A reader takes the steps before a window's spans for those that have them.
  std::span<const Step> steps = additions.steps;
  const auto write_steps = [&](std::uint64_t until_ns) {
    const auto later = std::ranges::upper_bound(steps, until_ns, {}, &Step::end_ns);
    const auto count = static_cast<std::size_t>(later - steps.begin());
    writer_->write(Chunk::steps, steps.first(count));
    steps = steps.subspan(count);
  };
  for (const Event& event : additions.events) {
    if (!event.closed) {
      write_opened(event.window);
    } else if (window_) {
      write_steps(event.window.end_ns);
      write_entries(event.window.end_ns);
      write_closed(event.window, *event.closed);
      window_.reset();
    }
  }
  write_steps(~std::uint64_t{0});
  if (sampler_ && !additions.events.empty()) sampler_->dense(window_.has_value());
  // Not later entries: since then the window may have been closed and another warm-up begun.
  if (window_) write_entries(additions.taken_ns);
  if (!additions.collects && !window_)
    std::erase_if(pending_, [&](const Span& span) { return span.end_ns < additions.taken_ns; });
}

void SessionThread::write_past(const Additions& additions) {
  for (const Kept& slow : additions.slow) {
    std::vector<Span> spans;
    record::copy(slow.begin_ns, [&](std::uint32_t thread, std::span<const record::Entry> entries) {
      for (const record::Entry& entry : entries)
        if (entry.begin_ns < slow.end_ns)
          spans.push_back({entry.begin_ns, entry.end_ns, entry.arg, entry.name, thread});
    });
    write_names();
    writer_->write(Chunk::past, spans);
    writer_->write(Chunk::kept, std::vector{slow});
  }
  for (const Past& past : additions.past) {
    write_names();
    writer_->write(Chunk::spans, past.spans);
    writer_->write(Chunk::windows, past.windows);
    writer_->write(Chunk::kept, std::vector{past.kept});
  }
}

void SessionThread::gather_entries() {
  record::drain([&](std::uint32_t thread, std::span<const record::Entry> entries) {
    for (const record::Entry& entry : entries)
      pending_.push_back({entry.begin_ns, entry.end_ns, entry.arg, entry.name, thread});
  });
  // Of a long warm-up only the end can belong to the next window.
  constexpr std::size_t max_pending = std::size_t{1} << 20;
  if (!window_ && pending_.size() > max_pending)
    pending_.erase(pending_.begin(), pending_.end() - static_cast<std::ptrdiff_t>(max_pending / 2));
}

// Names come before the records that use them: the file of a killed process must be readable.
void SessionThread::write_names() {
  const std::vector<record::NameInfo> names = record::names(names_);
  if (!names.empty()) writer_->write_list(Chunk::names, names_, names_json(names));
  names_ += names.size();
  const std::vector<record::Thread> threads = record::threads();
  if (threads.size() == threads_) return;
  std::vector<Thread> more;
  for (std::size_t i = threads_; i < threads.size(); ++i)
    more.push_back({threads[i].system, threads[i].name});
  writer_->write_list(Chunk::threads, threads_, threads_json(more));
  threads_ = threads.size();
}

void SessionThread::write_entries(std::uint64_t until_ns) {
  std::vector<Span> spans, later;
  for (const Span& span : pending_) {
    // A step, and its window, begins at the time at which the previous step ended.
    if (span.begin_ns >= until_ns)
      later.push_back(span);
    else if (span.end_ns > window_->begin_ns || span.begin_ns == window_->begin_ns)
      spans.push_back(span);
  }
  pending_ = std::move(later);
  if (spans.empty()) return;
  write_names();
  writer_->write(Chunk::spans, spans);
  // A killed run writes no others.
  if (record::dropped() - lost_before_ != losses_.entries) write_losses();
}

void SessionThread::write_losses() {
  losses_.entries = record::dropped() - lost_before_;
  writer_->write(Chunk::losses, std::vector{losses_});
}

// The steps of a killed run's window are in the file, and this says that they are of one.
void SessionThread::write_opened(const Window& window) {
  window_ = window;
  writer_->write(Chunk::opened, std::vector{window});
}

void SessionThread::write_closed(const Window& window, const Traced& traced) {
  write_names();
  writer_->write(Chunk::activities, traced.activities);
  writer_->write(Chunk::samples, traced.samples);
  writer_->write(Chunk::clocks, traced.clocks);
  for (const std::string& note : traced.notes) writer_->write(Chunk::note, std::string_view(note));
  losses_.activities += traced.losses.activities;
  losses_.without_times += traced.losses.without_times;
  write_losses();
  writer_->write(Chunk::windows, std::vector{window});
  const std::lock_guard lock(mutex_);
  notes_.insert(notes_.end(), traced.notes.begin(), traced.notes.end());
}

void SessionThread::write_phases() {
  const std::vector<Phase> phases = record::take_phases();
  if (phases.empty()) return;
  write_names();
  writer_->write(Chunk::phases, phases);
}

void SessionThread::write_samples() {
  if (!sampler_) return;
  const std::vector<Sample> samples = sampler_->take();
  const std::vector<std::string> notes = sampler_->notes();
  for (; sampler_notes_ < notes.size(); ++sampler_notes_)
    writer_->write(Chunk::note, std::string_view(notes[sampler_notes_]));
  if (samples.empty()) return;
  write_names();
  writer_->write(Chunk::samples, samples);
}

}  // namespace warpstep::profiler
