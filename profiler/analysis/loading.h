// The loader: stages by worker, the queue, and the settings that would end the waiting.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "profiler/analysis/scope.h"
#include "profiler/session/session.h"

namespace warpstep::profiler {

struct WorkerRow {
  std::string thread;
  std::uint64_t samples = 0;
  std::vector<std::uint64_t> stage_ns;  // by LoaderView::stages
  std::uint64_t idle_ns = 0;
  double busy = 0;  // of 1, of the windows' time
};

struct LoaderView {
  bool has_spans = false;
  int workers = 0, prefetch = 0, cores = 0;
  std::int64_t batch = 0;
  std::vector<std::string> stages;  // "read", "decode", ...
  std::vector<WorkerRow> by_worker;
  std::vector<double> stage_ns;  // per batch, summed over workers
  double work_ns = 0;            // per batch: W
  double step_ns = 0;            // without waiting for data: S, mean
  double wait_ns = 0;            // per step, mean
  double queue_depth = 0;        // mean batches ready when one was taken
  std::vector<std::pair<std::uint64_t, std::uint64_t>> queue;  // (ns, batches ready)
  std::vector<std::uint64_t> service_ns;  // of each sample in the order of tickets
  std::vector<std::uint64_t> waits_ns;    // of each step
  int stall_period = 0;                   // steps between stalls that repeat; 0: none
  double cpu_share = 0;  // of 1: CPU time over wall time of the workers' work; 0: not known
};
LoaderView loader_view(const View& source);

// The replayed loader: `workers` share the samples of the oldest unfinished batch; at most
// `prefetch` batches are ready or in the making beyond the one in use.
struct ReplaySetting {
  int workers = 1;
  int prefetch = 2;
  int cores = 0;           // workers beyond them slow each other; 0: no limit
  double stage_scale = 1;  // of each sample's service time
};
struct ReplayResult {
  double mean_wait_ns = 0;  // per step, after the first `prefetch` ones
  std::vector<std::uint64_t> waits_ns;
};
// `service_ns`: of the samples, `batch` per step; `steps_ns`: of each step without its wait. Both
// are repeated as often as needed.
ReplayResult replay(const std::vector<std::uint64_t>& service_ns, std::int64_t batch,
                    const std::vector<std::uint64_t>& steps_ns, const ReplaySetting& setting,
                    std::size_t steps);

// What limits the workers.
enum class Bound : std::uint8_t { unknown, cpu, io };

struct Stall {
  bool is_stalled = false;  // waits of at least 2 % of a step
  std::uint64_t first_step = 0, last_step = 0;
  double wait_ns = 0, step_ns = 0;  // per step: waiting, and all of it
  double predicted_wait_ns = 0;     // replayed with the setting that ran, to judge the model
  std::string stage;                // the one with the largest share of the work
  double stage_share = 0;
  Bound bound = Bound::unknown;
  int workers_needed = 0;        // that hide it; 0: none do on these cores
  double step_with_them_ns = 0;  // with `best_workers` when none do
  double speedup = 0;            // of that against now
  // Where workers take cores from the kernels, what is best may not hide it all: the fewest workers
  // within 1 % of the shortest step.
  int best_workers = 0;
  double step_with_best_ns = 0;
  int prefetch_needed = 0;  // the option's smallest value that hides it with the workers there are;
                            // 0: none does
  double step_with_prefetch_ns = 0;
  double stage_speedup_needed =
      0;  // of `stage`, with the workers there are; 0: no such speed-up suffices
  // The curve: mean wait by workers 1, 2, ..., and by prefetch.
  std::vector<double> wait_by_workers_ns;
  std::vector<std::pair<int, double>> wait_by_prefetch_ns;
  std::string text;  // one line with all of this
};
Stall diagnose(const LoaderView& view, const View& source);

// "steps 412-420: waited 12.3 of 41.0 ms (30.0 %) for the loader; decode is 71.0 % of 164 ms worker
// time per batch, CPU-bound; 6 workers hide it (step 28.7 ms, 1.43x); staying at 4 workers, decode
// must get 1.73x faster."
std::string stall_text(const LoaderView& view, const Stall& stall);

// The smallest period p >= 2 such that one step in p has at least 90 % of all waiting, at least
// three times, and no more than one of these steps goes without a wait of 2 % of `step_ns`; 0 for
// none.
int stall_period(const std::vector<std::uint64_t>& waits_ns, double step_ns);

}  // namespace warpstep::profiler
