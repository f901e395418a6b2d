// What is kept and printed of a run: config.json and summary.json.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>

#include "engine/run/trainer.h"
#include "tools/warpstep/options.h"
#include "tools/warpstep/session.h"

namespace warpstep::tools {

using Json = nlohmann::ordered_json;

// Sums what the summary needs.
class Totals final : public TrainObserver {
 public:
  void on_step(const StepRecord& r) override {
    times += r.times;
    images += r.score.count;
    ++steps;
  }

  StepTimes times;
  std::int64_t images = 0;
  std::uint64_t steps = 0;
};

// What a run was, as config.json keeps it; `data` is data_json()'s.
Json config_json(const RunOptions& options, const Device& device, const Json& data,
                 const Source& training, const Source& test);

// summary.json as the run's last process left it, without figures of another type than ours; an
// empty object where it is missing or broken.
Json earlier_summary(const std::filesystem::path& run);

// `run` has the earlier summary, whose speed stays where this process has trained no step.
Json summary_json(const Totals& totals, const Progress& progress, Outcome outcome,
                  const Json& last_epoch, const std::filesystem::path& checkpoint,
                  const std::filesystem::path& run);

// How loading went: workers by stage, the ring, the copies to the device.
Json loading_json(const Source& training);

void print_summary(const Json& summary, const RunOptions& options,
                   const std::filesystem::path& run);

}  // namespace warpstep::tools
