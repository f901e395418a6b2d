// The loader as it ran: stages by worker, the work of each sample, the queue, the waits.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "profiler/analysis/breakdown.h"
#include "profiler/analysis/loader_source.h"
#include "profiler/analysis/scope.h"
#include "profiler/session/session.h"

namespace warpstep::profiler {

struct WorkerRow {
  std::string thread;
  std::uint64_t samples = 0;
  std::vector<std::uint64_t> stage_ns;  // by LoaderView::stages
  std::uint64_t idle_ns = 0;
  double busy = 0;  // of 1, of the windows' time
  // The times of its samples as a multiple of the fastest worker's: of the medians or, where that
  // is lower, of what a fifth of them stay below.
  double slowness = 1;
};

// What making one sample took. The parts add up to the time from its begin to its end.
struct SampleTime {
  std::uint64_t ticket = 0;  // batch * rows + row
  double cpu_ns = 0;         // on a core
  double blocked_ns = 0;     // in reads: neither on a core nor waiting for one
  double asleep_ns = 0;      // the same outside of reads: in a lock, a sleep, a request
  double delay_ns = 0;       // waiting for a core
  double bytes = 0;          // read
  double readers = 1;        // at the same time (ReadTime)
  std::size_t worker = 0;    // into LoaderView::by_worker

  double wall_ns() const { return cpu_ns + blocked_ns + asleep_ns + delay_ns; }
};

// How much of a sum few of its parts have: the fewest parts that have at least 70 % of it.
struct Concentration {
  double share_of_all = 1;  // of the parts, of 1
  double share_of_sum = 1;
  double beyond_share = 0;  // of a whole that has the sum: of 1; 0: none is meant
};
Concentration concentration(std::vector<double> parts);

struct LoaderView {
  bool has_spans = false;
  int workers = 0, prefetch = 0, cores = 0;
  std::int64_t batch = 0;
  std::vector<std::string> stages;  // "read", "decode", ...
  std::vector<WorkerRow> by_worker;
  std::vector<double> stage_ns;  // per batch, summed over workers
  // Per batch, summed over workers: their time; and what it consists of, where that is known.
  double work_ns = 0;
  double cpu_ns = 0, blocked_ns = 0, asleep_ns = 0, delay_ns = 0;
  bool knows_cpu = false;  // the CPU time of each sample was recorded
  double step_ns = 0;      // without waiting for data: S, mean
  double wait_ns = 0;      // per step, mean
  double queue_depth = 0;  // mean batches ready when the trainer came for one
  std::vector<std::pair<std::uint64_t, std::uint64_t>> queue;  // (ns, batches ready)
  std::vector<std::uint64_t> service_ns;  // of each sample in the order of tickets
  std::vector<SampleTime> samples;        // the same samples
  SourceFit source;
  std::vector<std::uint64_t> waits_ns;  // of each step
  int stall_period = 0;                 // steps between stalls that repeat; 0: none
  Concentration waiting;                // in steps
  Concentration service;  // in samples: what they take beyond their median, of all their time
  double cpu_share = 0;   // of 1: CPU time over wall time of the workers' work; 0: not known
};
// Of recorded steps on a device a wait is what the breakdown has as such: that in which no kernel
// runs. What a step itself records may be a wait that hides beside kernels of the step before.
LoaderView loader_view(const View& source, const Breakdown* breakdown = nullptr);

bool is_loose(const View& source);  // each sample is a file

// Of the workers' CPU time, of 1: a stage's, without what its reads were blocked and others slept.
double cpu_share_of(const LoaderView& view, const std::string& stage);
// Of what they slept outside of reads, of 1: a stage's, in proportion to its time.
double asleep_share_of(const LoaderView& view, const std::string& stage);

// The smallest period p >= 2 such that one step in p has at least 90 % of all waiting, at least
// three times, and no more than one of these steps goes without a wait of 2 % of `step_ns`; 0 for
// none.
int stall_period(const std::vector<std::uint64_t>& waits_ns, double step_ns);

}  // namespace warpstep::profiler
