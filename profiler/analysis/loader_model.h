// Predicts the step under other settings of the loader: the recorded work of every sample is
// replayed (loader_replay.h) with other numbers of workers, another queue, or less work.
//
// What is not measured is found by replaying the run as it was: the step on free cores so that the
// replayed step without its wait takes as long as the measured one; where the CPU time of workers
// was not recorded, also the work per sample, so that the workers are as busy as they were. What
// remains between replay and measurement is not explained, and no number is promised then.
#pragma once

#include "profiler/analysis/loader_replay.h"
#include "profiler/analysis/loading.h"

namespace warpstep::profiler {

struct Remedy {
  int workers = 0;   // 0: as it was
  int prefetch = 0;  // the option's value: the trainer's batch is one of them; 0: as it was
  // Factors on the work per sample.
  double cpu = 1;
  double latency = 1;         // of reads
  double bytes = 1;           // through the source
  double asleep = 1;          // outside of reads
  bool even_workers = false;  // all as fast as the fastest
  bool even_samples = false;  // none takes longer than the usual one
  // Steps without pauses between them, in which workers make batches ahead: as in long epochs.
  bool steady = false;
};

// Per step. The range is what the recorded reads leave open: latency or bandwidth.
struct Predicted {
  double step_ns = 0;  // all of it
  double wait_ns = 0;
  double least_ns = 0, most_ns = 0;  // of the step
  double least_wait_ns = 0;          // in the step of least_ns
};

// What a remedy saves per step. Where replay and measurement of the run as it was differ by more
// than 10 % of the step, the range spans gains against either. Kernels on the host waited for cores
// while workers had them, which the replay shows only as far as shares of the cores explain it: the
// range reaches to all of that wait, as far as the remedy takes work from the workers or keeps the
// kernels' threads from falling asleep in waits for data: no further than that work and twice those
// waits. More workers shorten the wait of those that sleep, unless they wait for one lock, and of
// those that read, unless they share what serves them: where that is open the range begins at no
// gain.
struct Gain {
  double ns = 0;
  double least_ns = 0, most_ns = 0;
};

// More cannot help: one a core, without the one of who feeds a device; and --workers takes no more.
int most_workers(const LoaderView& view, bool on_host);

class LoaderModel {
 public:
  // Both must outlive it.
  LoaderModel(const LoaderView& view, const View& source);

  Predicted predict(const Remedy& remedy) const;
  Gain gain(const Remedy& remedy) const;

  double measured_step_ns() const { return view_.step_ns + view_.wait_ns; }
  double free_step_ns() const { return free_step_ns_; }  // with all cores to itself
  double work_ns() const;                                // of a batch, alone on its cores
  const Predicted& as_it_was() const { return as_it_was_; }
  double unexplained_ns() const { return measured_step_ns() - as_it_was_.step_ns; }  // of the step
  bool fits() const;                // to within 10 % of the step
  std::string misfit_text() const;  // what the replay lacks, for a finding's evidence
  bool has_pauses() const;          // between the counted steps
  int most_workers() const { return profiler::most_workers(view_, computes_on_host()); }
  bool computes_on_host() const { return setting_.kernel_threads > 0; }

 private:
  int ahead(int prefetch) const;
  void take_samples();
  void merge_samples();
  void calibrate();
  Predicted replayed(const Remedy& remedy, double ns_per_byte, double* busy_ns = nullptr) const;

  const LoaderView& view_;
  std::vector<double> steps_ns_;   // on free cores, without their waits
  std::vector<double> pauses_ns_;  // before each: evaluations, checkpoints
  std::vector<double> cpu_ns_, blocked_ns_, asleep_ns_, bytes_, readers_;  // by sample
  ReplaySetting setting_;                                                  // as it ran
  std::size_t steps_ = 0;                                                  // to replay
  bool has_copier_ = false;
  double free_step_ns_ = 0;
  double usual_ns_ = 0;      // of a sample: the median
  double core_wait_ns_ = 0;  // of the kernels' threads, in a step
  Predicted as_it_was_;
};

}  // namespace warpstep::profiler
