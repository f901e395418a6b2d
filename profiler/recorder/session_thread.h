// The thread that writes a session file. It reads the rings of trace events before they are full.
#pragma once

#include <atomic>
#include <condition_variable>
#include <filesystem>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "profiler/session/session_file.h"
#include "profiler/sources/device_trace.h"
#include "profiler/sources/sampler.h"

namespace warpstep::profiler {

class SessionThread {
 public:
  // `sampler` may be null.
  SessionThread(std::filesystem::path path, std::unique_ptr<Sampler> sampler);
  ~SessionThread();  // writes what is left
  SessionThread(const SessionThread&) = delete;
  SessionThread& operator=(const SessionThread&) = delete;

  // All of these return immediately, and may be called from any thread.
  void add(const Step& step);
  void add(Chunk type, const Json& json);
  void add(const ClockReading& clocks);
  void add(const PeerClock& clock);
  void add(const std::vector<Device>& devices);
  void add_note(const std::string& text);
  void open(const Window& window);  // keeps entries from window.begin_ns on
  void close(const Window& window, Traced traced);

  void collect(bool on);  // whether entries are read for windows; wakes the thread
  // A slow step: its spans are copied from the rings, soon.
  void keep(const Kept& slow);
  // What was asked for, with its windows and spans.
  void keep(const Kept& kept, std::vector<Window> windows, std::vector<Span> spans);
  bool is_alive() const;  // whether additions will be written

  // Writes everything and ends the thread; later additions do nothing. The destructor adds the
  // phases that end after that.
  void finish();

  std::vector<std::string> notes() const;
  std::uint64_t bytes() const { return bytes_.load(std::memory_order_relaxed); }  // written so far

 private:
  struct Event {  // a window was opened, or closed with its traced activities
    Window window;
    std::optional<Traced> closed;
  };
  struct Past {
    Kept kept;
    std::vector<Window> windows;
    std::vector<Span> spans;
  };
  struct Additions {  // data to write, in order
    std::uint64_t taken_ns = 0;
    bool collects = false;
    std::vector<Step> steps;
    std::vector<std::pair<Chunk, Json>> objects;
    std::vector<std::string> notes;
    std::vector<ClockReading> clocks;
    std::vector<PeerClock> peer_clocks;
    std::vector<Device> devices;
    std::vector<Event> events;
    std::vector<Kept> slow;
    std::vector<Past> past;
  };

  void add(Event event);
  void run();
  void write(const Additions& additions);
  void gather_entries();
  void write_entries(std::uint64_t until_ns);
  void write_names();
  void write_losses();
  void write_opened(const Window& window);
  void write_closed(const Window& window, const Traced& traced);
  void write_samples();
  void write_phases();
  void write_past(const Additions& additions);

  std::unique_ptr<Sampler> sampler_;
  std::optional<SessionWriter> writer_;  // none after a failure
  std::optional<Window> window_;         // open
  std::vector<Span> pending_;            // read from the rings, not yet written
  std::size_t names_ = 0, threads_ = 0;  // written
  std::size_t sampler_notes_ = 0;        // written
  Losses losses_;
  std::uint64_t lost_before_ = 0;
  const bool is_second_;        // another session was written when this one began
  const std::uint64_t number_;  // of the process's sessions, from 1
  bool finished_ = false;
  std::atomic<std::uint64_t> bytes_{0};

  mutable std::mutex mutex_;
  std::condition_variable wake_;
  Additions next_;
  bool stop_ = false;
  bool woken_ = false;
  bool collects_ = false;
  std::vector<std::string> notes_;
  std::thread thread_;
};

}  // namespace warpstep::profiler
