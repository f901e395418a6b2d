// The ranks of a data-parallel job as `train` sees them: joining, agreeing on what is trained, and
// ending together. docs/distributed.md is the user's side.
#pragma once

#include <atomic>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "engine/dist/communicator.h"
#include "tools/warpstep/options.h"

namespace warpstep::tools {

struct JobOptions {
  std::string dist = "auto";            // auto, none, mpi or env
  std::uint64_t timeout_seconds = 600;  // how long a rank waits for another
};

// Null for a process of its own. Ranks but the first say nothing from then on. Call it before
// anything starts threads that compute. RankError without the MPI module.
std::shared_ptr<Communicator> join_job(const JobOptions& options, const std::atomic<bool>& stop);

// Gives `options` the job: its communicator, rank 0's --out, and this rank's part of the cores that
// it shares with others (--threads and --workers, unless they were given).
void take_place(std::shared_ptr<Communicator> communicator, RunOptions& options);

// Throws UsageError that names the first rank whose version, options or data differ from rank 0's.
void require_alike(Communicator& communicator, const RunOptions& options,
                   const nlohmann::ordered_json& data);

// Sets the batch of each rank to its share of --global-batch. UsageError where they cannot share it
// evenly.
void share_batch(RunOptions& options);

// For a run that continues in another number of ranks: its options as they would have been with
// this number. UsageError where they would be given other batches, because it has no
// --global-batch.
void continue_in_world(const nlohmann::ordered_json& config, const RunOptions& options,
                       RunOptions& before);

// Waits until all ranks are here.
void meet(Communicator& communicator);

// The run directory of a rank: OUT, or OUT/ranks/1 and so on.
std::string directory_of(const std::string& out, const World& world);

// Ends all ranks, after an error of this one was reported.
[[noreturn]] void end_job(Communicator& communicator, const std::string& error, int code);

}  // namespace warpstep::tools
