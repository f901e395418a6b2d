// Keeps a session while a run goes on: which steps, from which sources, into which file. Nothing of
// it ever throws into the run: what fails becomes a note, and the run goes on without.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "profiler/recorder/rank_clock.h"
#include "profiler/session/session.h"
#include "profiler/sources/device_trace.h"

namespace warpstep::profiler {

// Which steps are recorded with spans: torch.profiler's schedule over a run, or Composer's over
// each epoch.

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

enum class Level : std::uint8_t {
  off,
  steps,  // each step's parts and the machine's metrics
  spans,  // in windows: calls, loader stages, host functions
  deep,   // and a device's activities
};
Level parse_level(const std::string& text);  // UsageError that names them
std::string_view name(Level level);

struct RecorderOptions {
  Level level = Level::steps;
  ProfileSchedule schedule;
  std::filesystem::path path;         // the session file
  std::uint64_t steps_in_flight = 0;  // that are enqueued when a step is told
  OpenedTrace trace;                  // of Level::deep
  OpenedPmSampling counters;          // of windows, on request
  bool listens = true;                // for `warpstep profile PID`
  bool samples = true;                // the machine
  bool samples_gpus = false;          // and its GPUs, through NVML
  std::optional<RankAddress> rank;    // of a job of several processes: which, and whose clock
};

// Where in its epoch a step is.
struct StepPlace {
  std::uint64_t batch = 0;    // from 0
  std::uint64_t batches = 0;  // of the epoch
};

class Recorder {
 public:
  explicit Recorder(RecorderOptions options);
  ~Recorder();
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  // Objects of the session (session.h); an empty one is not kept.
  void tell_stamp(const Json& stamp);
  void tell_program(const Json& program);
  void tell_loader(const Json& loader);
  void tell_peaks(const Json& peaks);
  void tell_devices(const std::vector<Device>& devices);
  void note(const std::string& text);  // what the report shall say

  // The run is about to go on with step `step`, counted from 1.
  void begin(std::uint64_t step, const StepPlace& first);
  // A step is done; `next` is the place of the one after it. Called by the thread that enqueues.
  void on_step(const Step& step, const StepPlace& next);
  // The last step is done: what comes is of no window.
  void end_windows();
  // The run is over; the session file is complete afterwards. Once.
  void finish();

  // What went wrong, and what the user should know: one sentence each.
  std::vector<std::string> notes() const;
  std::uint64_t windows() const;  // that are in the session

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace warpstep::profiler
