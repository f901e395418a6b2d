// A run's profile: what the recorder is told, and what is made of it at the end.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>

#include "engine/program.h"
#include "engine/trainer.h"
#include "profiler/recorder/recorder.h"
#include "tools/warpstep/run_options.h"
#include "tools/warpstep/source.h"

namespace warpstep::tools {

// Throws UsageError for what cannot be meant.
void check_profile_options(const RunOptions& options);

class Profiling final : public TrainObserver {
 public:
  // Before anything touches the device: a trace must see graphs when they are captured.
  explicit Profiling(const RunOptions& options);
  // Of a run that failed: completes what there is.
  ~Profiling() override;
  Profiling(const Profiling&) = delete;
  Profiling& operator=(const Profiling&) = delete;

  // The run begins in its directory. `config` is what config.json has.
  void start(const std::filesystem::path& run, const nlohmann::ordered_json& config,
             const Program& step, const Progress& progress, std::uint64_t steps_per_epoch);
  void on_step(const StepRecord& record) override;
  // The run is over: the session is completed, and where it has windows the report is written.
  void finish(const Source& training, const std::shared_ptr<Backend>& backend,
              const nlohmann::ordered_json& loading);

 private:
  void begin(const nlohmann::ordered_json& config, const Program& step, const Progress& progress,
             std::uint64_t steps_per_epoch);
  void print() const;

  RunOptions options_;
  profiler::Level level_;
  profiler::OpenedTrace trace_;
  profiler::OpenedPmSampling counters_;
  std::filesystem::path run_;
  std::unique_ptr<profiler::Recorder> recorder_;  // null: off
  bool has_windows_ = false;
  bool finished_ = false;
};

}  // namespace warpstep::tools
