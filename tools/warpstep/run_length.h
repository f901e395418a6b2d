// How long a run is, and whether one that is resumed has anything left to do.
#pragma once

#include <cstdint>
#include <string>

#include "engine/run/trainer.h"
#include "tools/warpstep/resume.h"
#include "tools/warpstep/run_options.h"

namespace warpstep::tools {

// --steps without --epochs means so many steps, however many epochs that takes. With --resume the
// one of the two that is typed replaces both of the run's own; --steps 0 lifts its limit alone.
void settle_length(const CLI::App& app, bool resumed, RunOptions& options);

std::uint64_t total_steps(const RunOptions& options, std::uint64_t steps_per_epoch);

// Of a checkpoint at its run's end, evaluated and, if it is the newest, with its summary: says so,
// which option ends the run and how to go on. Empty for all others.
std::string nothing_left(const Resumed& resumed, const RunOptions& options,
                         const Progress& progress);

}  // namespace warpstep::tools
