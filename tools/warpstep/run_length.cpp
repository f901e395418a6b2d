#include "tools/warpstep/run_length.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>

#include "tools/warpstep/progress.h"
#include "tools/warpstep/summary.h"

namespace warpstep::tools {

void settle_length(const CLI::App& app, bool resumed, RunOptions& options) {
  const bool steps = app.count("--steps") > 0, epochs = app.count("--epochs") > 0;
  if (steps && !epochs && options.steps > 0) options.epochs = 0;
  if (resumed && epochs && !steps) options.steps = 0;
}

std::uint64_t total_steps(const RunOptions& options, std::uint64_t steps_per_epoch) {
  const std::uint64_t epoch =
      options.limit_batches ? std::min(options.limit_batches, steps_per_epoch) : steps_per_epoch;
  const std::uint64_t by_epochs = options.epochs * epoch;
  if (options.steps == 0) return by_epochs;
  return options.epochs == 0 ? options.steps : std::min(by_epochs, options.steps);
}

std::string nothing_left(const Resumed& resumed, const RunOptions& options,
                         const Progress& progress) {
  const bool by_steps = options.steps > 0 && progress.step >= options.steps;
  const bool by_epochs = options.epochs > 0 && progress.next.epoch >= options.epochs;
  if (!by_steps && !by_epochs) return {};
  if (!progress.evaluation || progress.evaluation->step != progress.step) return {};
  // A run that was stopped between its last checkpoint and its summary gets that now.
  const Json summary = earlier_summary(resumed.run);
  const bool is_concluded =
      summary.value("outcome", "") == "finished" && summary.at("steps") == progress.step;
  if (resumed.checkpoint == newest_checkpoint(resumed.run) && !is_concluded) return {};
  return fmt::format(
      "{0}: nothing to do and nothing changed: the run has done {1} and {2}, and its {3} ends it; "
      "to go on: warpstep train --resume {0} --epochs N, or --steps N, in all",
      resumed.run.string(), counted(static_cast<std::int64_t>(progress.next.epoch), "epoch"),
      counted(static_cast<std::int64_t>(progress.step), "step"),
      by_steps ? fmt::format("--steps {}", options.steps)
               : fmt::format("--epochs {}", options.epochs));
}

}  // namespace warpstep::tools
