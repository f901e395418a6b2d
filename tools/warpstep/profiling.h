// The profile of a run: starts the recorder, passes steps to it, and reports at the end.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "engine/core/phase.h"
#include "engine/run/program.h"
#include "engine/run/trainer.h"
#include "profiler/recorder/recorder.h"
#include "profiler/session/session.h"
#include "tools/warpstep/json.h"
#include "tools/warpstep/options.h"
#include "tools/warpstep/source.h"

namespace warpstep::tools {

// Converts a trainer's step record.

inline profiler::Step to_profiler_step(const StepRecord& r) {
  return {.step = r.step,
          .epoch = r.epoch,
          .begin_ns = r.begin_ns,
          .end_ns = r.end_ns,
          .data_ns = r.times.data_ns,
          .copies_ns = r.times.copies_ns,
          .kernels_ns = r.times.kernels_ns,
          .cpu_ns = r.times.cpu_ns,
          .other_ns = r.times.other_ns,
          .samples = r.count,
          .loss = static_cast<double>(r.loss),
          .learning_rate = static_cast<double>(r.learning_rate),
          .correct = r.score.correct};
}

inline profiler::StepPlace place_after(const StepRecord& r) {
  return {r.step_in_epoch >= r.steps_per_epoch ? 0 : r.step_in_epoch, r.steps_per_epoch};
}

// The profile of an earlier run, from a run directory or a .prof file.

struct ProfiledRun {
  std::filesystem::path file;  // session.prof
  profiler::Session session;

  std::filesystem::path directory() const;  // of the file
};
// DataError says how to record a profile if there is none.
ProfiledRun open_profiled_run(const std::string& run);
// Throws UsageError if writing `output` would replace the profile of the run, by any of its names.
void check_output(const std::filesystem::path& output, const ProfiledRun& run);

// Throws UsageError for invalid combinations of --profile options.
void check_profile_options(const RunOptions& options);

class Profiling final : public TrainObserver {
 public:
  // Create it before anything uses the device: a trace must see graphs when they are captured.
  explicit Profiling(const RunOptions& options);
  // If the run failed: completes the partial profile.
  ~Profiling() override;
  Profiling(const Profiling&) = delete;
  Profiling& operator=(const Profiling&) = delete;

  // The run begins in its directory. `config` is the content of config.json, `machine` is
  // machine_record()'s.
  void start(const std::filesystem::path& run, const Json& config, const Json& machine,
             const Program& step, const Progress& progress, std::uint64_t steps_per_epoch);
  // What is known of the loader before it has worked: of a killed run nothing else is.
  void describe(const Source& training, const Source& test);
  void on_step(const StepRecord& record) override;
  // Steps, evaluations and checkpoints are over: the phase "end" begins here. What comes after
  // finish() has read the session is the phase "report", which ends with this object.
  void trained();
  // The run is over: ends the windows and, if there are any, measures and records the device's
  // peaks (measure_peaks); an empty object without windows. Called by finish() if it was not
  // before.
  Json end_windows(const std::shared_ptr<Backend>& backend);
  // After end_windows(): whether this process recorded any.
  bool has_windows() const { return has_windows_; }
  // Completes the session and, if it has windows, writes the report.
  void finish(const Source& training, const Source& test, const std::shared_ptr<Backend>& backend,
              const Json& loading);

 private:
  void begin(Json stamp, const Program& step, const Progress& progress,
             std::uint64_t steps_per_epoch);
  void print() const;

  RunOptions options_;
  profiler::Level level_;
  // Read before the backend opens: its library may bind the thread that opens it to one CPU
  // (OMP_PROC_BIND).
  int cores_;
  int team_ = 0;           // threads of the backend's kernels; 0: it has none
  double step_flops_ = 0;  // model_flops()
  profiler::OpenedTrace trace_;
  profiler::OpenedPmSampling counters_;
  std::filesystem::path run_;
  std::unique_ptr<profiler::Recorder> recorder_;  // null: off
  std::optional<record::Phase> ending_;
  std::uint64_t steps_per_epoch_ = 0;
  bool has_windows_ = false;
  bool has_steps_ = false;
  bool ended_ = false;
  bool finished_ = false;
};

}  // namespace warpstep::tools
