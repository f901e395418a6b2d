// Records a session during a run: the schedule of recorded steps, the sources, the file. The
// recorder never throws into the run: a failure becomes a note, and the run continues without that
// data.
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
#include "profiler/sources/sampler_nvml.h"

namespace warpstep::profiler {

enum class Level : std::uint8_t {
  off,
  steps,  // each step's parts and the machine's metrics
  spans,  // in windows: calls, loader stages, host functions
  deep,   // also a device's activities
};
Level parse_level(const std::string& text);  // UsageError that lists the levels
std::string_view name(Level level);

enum class Action : std::uint8_t { none, warmup, record, record_and_save };

// The steps that are recorded with spans: torch.profiler's schedule over the run, or Composer's
// over each epoch.
struct ProfileSchedule {
  std::uint64_t skip_first = 5;
  std::uint64_t wait = 0;
  std::uint64_t warmup = 2;
  std::uint64_t active = 20;
  // Not 0: the first window sets `active`: steps of this time together, 20 to 1,000 of them.
  std::uint64_t active_ns = 0;
  std::uint64_t repeat = 1;           // 0: until the end
  std::uint64_t skip_first_wait = 0;  // not 0: no wait before the first window (torch only)
  bool per_epoch = false;             // else per run
};

inline constexpr std::uint64_t least_timed_steps = 20, most_timed_steps = 1000;

// "skip_first=5,wait=0,warmup=2,active=3s,repeat=1,per=run", which are the defaults of missing
// keys; active=20 is a number of steps. UsageError that names the invalid part and the known keys.
ProfileSchedule parse_schedule(const std::string& text);
std::string to_text(const ProfileSchedule& schedule);

// As torch.profiler.schedule: `step` of the process, from 0.
Action torch_action(const ProfileSchedule& schedule, std::uint64_t step);
// As the code of Composer's cyclic_schedule: `batch` of the epoch, from 0, of `batches`. A run that
// resumes inside an epoch also skips the first `resumed_at` batches.
Action composer_action(const ProfileSchedule& schedule, std::uint64_t batch, std::uint64_t batches,
                       std::uint64_t resumed_at = 0);

struct RecorderOptions {
  Level level = Level::steps;
  ProfileSchedule schedule;
  std::filesystem::path path;         // the session file
  std::uint64_t accumulate = 1;       // an update is made in its multiples
  std::uint64_t steps_in_flight = 0;  // enqueued at the time of on_step()
  bool steps_share_launches = false;  // then a window cannot tell whose a call is
  OpenedTrace trace;                  // for Level::deep
  OpenedPmSampling counters;          // in windows, if requested
  bool listens = true;                // to `warpstep profile PID`
  // Of the session: a schedule without end (repeat=0) then opens no more windows.
  std::uint64_t most_bytes = std::uint64_t{2} << 30;
  double span_ns = 100;             // of recording one, calibrated
  bool samples = true;              // the machine
  std::vector<GpuPlace> gpus;       // whose state is sampled with it, through NVML
  std::vector<Sibling> siblings;    // the job's other processes on this machine
  std::optional<RankAddress> rank;  // in a job of several processes
};

// The position of a step in its epoch.
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

  // Objects of the session (session.h).
  void set_stamp(const Json& stamp);
  void set_program(const Json& program);
  void set_loader(const Json& loader);
  void set_peaks(const Json& peaks);
  void set_devices(const std::vector<Device>& devices);  // work of others is left out
  void note(const std::string& text);                    // for the report

  // Call before the first step `step`, counted from 1.
  void begin(std::uint64_t step, const StepPlace& first);
  // Call after each step, in the thread that enqueues; `next` is the position of the next step.
  void on_step(const Step& step, const StepPlace& next);
  // Call after the last step: closes an open window.
  void end_windows();
  // Call once, at the end of the run; completes the session file.
  void finish();

  // Failures and other facts that the user should know: one sentence each.
  std::vector<std::string> notes() const;
  std::uint64_t windows() const;  // in the session

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace warpstep::profiler
