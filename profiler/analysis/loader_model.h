// Predicts the step under other settings of the loader.
//
// Where the host computes, workers and the kernels' threads share its cores. While a step runs, T
// threads of kernels and k workers want C cores, and each gets r = min(1, C / (T + k)) of one;
// while the trainer waits for data, the kernels' threads sleep and min(k, C) workers run at full
// speed. With a step of S alone on its cores and W of work per batch:
//   loader too slow (W > k S): the step takes S / r, then (W - k S) / min(k, C) of waiting;
//   loader fast enough (W <= k S): no waiting, but workers are about for W / (k r) of the step,
//   which takes S + (W / k) (1 / r - 1).
// With T = C the sum is (C S + W) / C: every core is busy all of the time, and workers beyond that
// gain nothing. S and W are found by solving the same for what was measured. Workers that wait for
// a disk take no core: r = 1, any k runs. A device's step does not slow; its loader has min(k, C).
#pragma once

#include "profiler/analysis/loading.h"

namespace warpstep::profiler {

// Factors on the recorded times.
struct Scales {
  double step = 1;     // of each step without its wait
  double service = 1;  // of each sample's service time
};

struct Remedy {
  int workers = 0;        // 0: as it was
  int prefetch = 0;       // the option's value: the trainer's batch is one of them; 0: as it was
  double work_scale = 1;  // of the work per batch
};

struct Predicted {
  double step_ns = 0;  // all of it
  double wait_ns = 0;
};

class LoaderModel {
 public:
  LoaderModel(const LoaderView& view, const View& source, bool waits_for_disk);

  // Replays the recorded times under a remedy.
  Predicted predict(const Remedy& remedy) const;
  Scales scales(int workers, double work_scale) const;

  double measured_step_ns() const { return step_ns_ + wait_ns_; }
  double free_step_ns() const { return s_; }  // with all cores to itself
  double work_ns() const { return w_; }       // of a batch, alone on its cores
  double work_hidden() const;                 // of it, that the workers there are do during a step
  int most_workers() const;  // more cannot help: one a core, without the one of who feeds a device
  bool computes_on_host() const { return threads_ > 0; }

 private:
  double share(int workers) const;    // r
  double running(int workers) const;  // at once while nothing else runs

  std::vector<std::uint64_t> service_ns_, steps_ns_;
  std::int64_t batch_ = 1;
  int workers_ = 1, prefetch_ = 2, cores_ = 0, threads_ = 0;
  bool waits_for_disk_ = false;
  double step_ns_ = 0, wait_ns_ = 0, s_ = 0, w_ = 0;
  std::size_t steps_ = 0;
};

}  // namespace warpstep::profiler
