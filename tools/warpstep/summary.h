// The records of a run: config.json and summary.json.
#pragma once

#include <filesystem>

#include "engine/run/trainer.h"
#include "tools/warpstep/json.h"
#include "tools/warpstep/options.h"
#include "tools/warpstep/progress.h"
#include "tools/warpstep/session.h"

namespace warpstep::tools {

// Sums for the summary.
class Totals final : public TrainObserver {
 public:
  explicit Totals(Items of) : items(of) {}
  void on_step(const StepRecord& r) override {
    if (steps == 0) first_step_end_ns = r.end_ns;
    times += r.times;
    count += r.count;
    ++steps;
  }

  Items items;
  StepTimes times;
  std::int64_t count = 0;  // images or tokens
  std::uint64_t steps = 0;
  std::uint64_t first_step_end_ns = 0;

  double step_seconds() const {
    return steps == 0 ? 0
                      : static_cast<double>(times.total_ns()) * 1e-9 / static_cast<double>(steps);
  }
};

// The content of config.json; `data` is data_json()'s.
Json config_json(const RunOptions& options, const Device& device, const Json& data,
                 const Source& training, const Source& test);

// summary.json of the run's last process, without fields of a wrong type; an empty object if it is
// missing or broken.
Json earlier_summary(const std::filesystem::path& run);
// The same, but an empty object if a later process has resumed the run: each writes config.json as
// it begins. In runs of versions that wrote no `started_key` the times of the files say so.
Json own_summary(const std::filesystem::path& run);

// `run` has the earlier summary; its speed is kept if this process has trained no step. "compute"
// is to_compute_json()'s.
Json summary_json(const Totals& totals, const Throughput& throughput, const Progress& progress,
                  Outcome outcome, const Json& last_epoch, const std::filesystem::path& checkpoint,
                  const std::filesystem::path& run);

// The parts of machine_record() that a comparison of speeds needs, for summary.json.
Json machine_json(const Json& record);

// How a run ended early: the figure that was watched, and when it was best.
Json early_json(const Watch& watch, double min_delta);

// Loader statistics: workers by stage, the ring, the copies to the device.
Json loading_json(const Source& training);

void print_summary(const Json& summary, const RunOptions& options,
                   const std::filesystem::path& run);

}  // namespace warpstep::tools
