// The ranks of a data-parallel job as `train` sees them: joining, agreeing on what is trained, and
// ending together. docs/distributed.md is the user's side.
#pragma once

#include <atomic>
#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>

#include "engine/dist/communicator.h"
#include "engine/graph/graph.h"
#include "engine/run/trainer.h"
#include "profiler/analysis/analysis.h"
#include "tools/warpstep/job.h"
#include "tools/warpstep/json.h"
#include "tools/warpstep/options.h"
#include "tools/warpstep/profiling.h"

namespace warpstep::tools {

struct JobOptions {
  std::string dist = "auto";            // auto, none, mpi or env
  std::uint64_t timeout_seconds = 600;  // how long a rank waits for another
};

// Null for a process of its own. Ranks but the first say nothing from then on. Call it before
// anything starts threads that compute. RankError without the MPI module. Errors after it must end
// in end_job(): without that MPI waits for the other ranks, which may hang.
std::shared_ptr<Communicator> join_job(const JobOptions& options, const std::atomic<bool>& stop);

// The first exchange: the ranks of this machine find each other, and rank 0 says how many there
// are.
void get_acquainted(Communicator& communicator);

// Gives `options` the job: its communicator, rank 0's --out, and this rank's part of the cores that
// it shares with others, and which these are.
void take_place(std::shared_ptr<Communicator> communicator, RunOptions& options);

// Throws UsageError that names the first rank whose version, options, data, start or exchange
// differ from rank 0's. Reads all weights.
void require_alike(Communicator& communicator, const Job& job, const Progress& progress);

// A checksum of a step's exchanges in their order, which must be that of all ranks.
std::string exchange_calls(const Graph& graph);

// Sets the batch of each rank to its share of --global-batch. UsageError where they cannot share it
// evenly.
void share_batch(RunOptions& options);

// The number of ranks of the run with this config.json; at least 1.
int ranks_of(const Json& config);

// For a run that continues in another number of ranks: its options as they would have been with
// this number. UsageError where they would be given other batches, because it has no
// --global-batch.
void continue_in_world(const Json& config, const RunOptions& options, RunOptions& before);

// How long this rank's steps exchanged: not evaluations and checkpoints.
class StepExchanges final : public TrainObserver {
 public:
  explicit StepExchanges(const Communicator* communicator) : communicator_(communicator) {
    since_last();  // starting exchanged, too
  }
  void on_step(const StepRecord&) override { sum_ += since_last(); }
  void on_epoch(const EpochRecord&) override { since_last(); }
  void on_evaluation(const EvaluationRecord&) override { since_last(); }
  void on_checkpoint(const std::filesystem::path&) override { since_last(); }
  double seconds() const { return std::chrono::duration<double>(sum_).count(); }

 private:
  std::chrono::nanoseconds since_last() {
    if (!communicator_) return {};
    const std::chrono::nanoseconds now = communicator_->exchanged();
    return now - std::exchange(last_, now);
  }

  const Communicator* communicator_;  // null outside of a job
  std::chrono::nanoseconds sum_{}, last_{};
};

// What a rank counted in a whole run.
struct RankTotals {
  double step_seconds = 0;      // a step's
  double exchange_seconds = 0;  // of that, on the host
  bool on_device = false;       // gradients are exchanged there, which the host does not see
  bool has_spans = false;       // its profile has some of this process, not only of one before
  std::uint64_t bad_rows = 0;
};
// Called by all ranks at the end of a job. Rank 0 prints which rank the others wait for, and how
// long exchanges took: from the ranks' profiles in `out` where they have spans, else from what each
// rank counted. Returns the bad rows of all ranks.
std::uint64_t report_ranks(Communicator& communicator, const std::string& out,
                           const RankTotals& own);

// The verdict and tables of `warpstep ranks`; `brief`: at the end of a job.
std::string text_of_ranks(const profiler::RanksView& view, bool brief = false);

// analyse(). The session of a rank is compared with those of the job's other ranks, in RUN/ranks/N,
// if all of them exist.
profiler::Analysis analyse_in_job(const ProfiledRun& run);

// Waits until all ranks are here.
void meet(Communicator& communicator);

// The run directory of a rank: OUT, or OUT/ranks/1 and so on.
std::string directory_of(const std::string& out, const World& world);

// The run directory of rank 0, which has the checkpoints, given a rank's.
std::filesystem::path run_of_job(const std::filesystem::path& run, const World& world);

// Reports an error and ends all ranks. One that another rank caused is reported only if that rank
// does not end the job itself, with its own error and exit code.
[[noreturn]] void end_job(Communicator& communicator, const std::string& error, int code,
                          bool of_another = false);

}  // namespace warpstep::tools
