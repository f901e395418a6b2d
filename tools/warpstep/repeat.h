// warpstep train --repeat N: N equal runs, each a process of its own, for a comparison.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace warpstep::tools {

// The arguments of run `number`: those of this process, without --repeat and --out, and with
// --repeat 1 and OUT/number.
std::vector<std::string> arguments_of_run(const std::vector<std::string>& arguments,
                                          const std::filesystem::path& out, std::uint64_t number);

// The spread of the runs OUT/1 to OUT/`times`, as far as their summaries have the figures: a line
// for the time of a step, the accuracy and the loss.
std::string spread_of_runs(std::uint64_t times, const std::filesystem::path& out);

// Runs this program `times` times, into OUT/1, OUT/2, ...: the same command with the same seed, so
// that the runs do the same work and differ as equal runs do. Prints their spread at the end. The
// first run that fails ends the whole with its exit code; `stop` ends it as SIGINT ends a run.
int train_repeatedly(std::uint64_t times, const std::filesystem::path& out,
                     const std::atomic<bool>& stop);

}  // namespace warpstep::tools
