// The cores that the process was not given: other programs on them, quotas, affinity, memory that
// the kernel had to find first.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "profiler/analysis/scope.h"

namespace warpstep::profiler {

// How cores that the process may run on were used, the mean over some time; in cores.
struct CoreUse {
  double cores = 0;  // there are; those of the affinity mask, else the machine's
  double busy = 0;   // with all of the following
  double own = 0;
  double siblings = 0;  // of other ranks of the same job
  double stolen = 0;    // the hypervisor gave them to other virtual machines

  double others() const;  // of other programs
  double idle() const;
};
// Empty where that was not sampled.
std::optional<CoreUse> core_use(const Session& session, const std::vector<Interval>& within);

// A thread, or several of one kind, over the windows (Contention::seconds). Per second and thread:
// 1e9 is always.
struct ThreadTime {
  std::string thread;    // the record's name: "main", "loader 0"; "kernels": the team without main
  double threads = 1;    // of this kind
  double delay_ns = 0;   // run delay: ready to run, without a core
  double on_cpu_ns = 0;  // the rest of the second it slept: waited for data, a barrier, a disk
};

// Of the name of a program whose threads the kernel runs before all usual ones.
constexpr std::string_view real_time_suffix = " (real-time)";

// A program beside this one, all processes of its name.
struct ProgramUse {
  std::string name;
  double cores = 0;  // mean over the windows
};

// Figures are means over the windows' time (the counted steps where there are none), weighted by
// time; optional ones are empty where the system does not say.
struct Contention {
  double seconds = 0;    // that the samples below cover; 0: nothing was sampled
  double window_ns = 0;  // of the windows, whether or not they were sampled

  // Cores. `cores` is what all defaults use: affinity and quota (rounded up); 0: not known.
  int cores = 0;
  int machine_cores = 0;  // 0: not known
  int affinity_cores = 0;
  int team_cpus = 0;  // on which the kernels' threads may run, all together; 0: not known
  std::optional<double> quota_cores;      // of the control groups
  std::optional<double> others_share;     // of 1: CPU time of other programs on the allowed cores
  double siblings_share = 0;              // the same of other ranks of the job
  double stolen_share = 0;                // the same of other virtual machines
  double idle_share = 0;                  // the same that nobody used
  std::optional<double> throttled_share;  // of 1: periods in which the quota ran out
  std::vector<ProgramUse> programs;       // that used most of others_share, the largest first
  bool knows_programs = false;            // they were looked for
  std::string tracer;                     // a debugger or tracer of this process; mostly none
  double periods_per_s = 0, throttled_periods_per_s = 0;
  double throttled_ns = 0;  // per second, summed over the group's cores: may pass 1e9

  // Threads. Without the kernel's schedstat none is known.
  bool has_delays = false;
  std::vector<ThreadTime> threads;  // all of the process, by name
  std::optional<ThreadTime> trainer;
  std::optional<ThreadTime> kernels;  // mean of the team's other threads; none with one thread
  std::vector<ThreadTime> workers;    // of the training loader, "loader N", in order
  // Of the counted steps, read by the trainer's thread at each one: ns per step. Empty: not
  // recorded (levels below spans, sessions of older programs).
  std::optional<double> trainer_delay_per_step_ns;
  // The same between these steps, in evaluations and checkpoints; ns per step.
  double between_delay_per_step_ns = 0;
  std::optional<double> switches_per_s;  // involuntary ones, of the whole process

  // Memory.
  std::optional<double> major_faults_per_s;   // of the process: pages read from a disk
  std::optional<double> swapped_pages_per_s;  // of the machine, in and out
  std::optional<double> refaults_per_s;       // pages of files, read again after they were dropped
  std::optional<double> limit_hits_per_s;     // the group's limit made the kernel reclaim
  std::optional<double> memory_pressure;      // PSI "some", of 1
  bool is_machines_pressure = false;          // not of the group: other groups' are in it
  std::optional<double> available_bytes;      // of the machine, or of a group with less
  std::optional<double> memory_limit_bytes, memory_used_bytes;  // the group's, at most

  double taken_share() const;  // of 1: of the allowed cores, those that this process cannot have
  // Of `cores` that this process may use at a time, those that it cannot have: with a quota it has
  // them as long as others leave as many of the allowed ones free.
  double taken_cores(double cores) const;
  // Whether a share of the allowed cores is enough to slow the kernels: a tenth, or half of one
  // core, on which the slowest of their threads may be.
  bool is_much(double share) const;
  // Whether such a share that others have is missed: no idle cores cover it, or threads waited.
  bool is_missed(double share) const;
  // The largest run delay of the threads that matter, and whether it is 5 % of the time.
  double longest_delay_ns() const;
  bool has_long_delays() const;
  double worker_delay_ns() const;  // mean over `workers`; 0 without
  // Of the trainer or, if larger, of all of `kernels` together, for which it waits at barriers; at
  // most 1e9; 0 without.
  double kernels_delay_ns() const;
  // Of a step on the host: at most this share would go with enough cores for all threads. Delays of
  // threads that meet at barriers add up at worst, but what the threads compute takes its time.
  double most_removable_share() const;
};
Contention contention(const View& view);

// How the kernel ranks the process, where that is not as usual: "nice 10", "policy idle"; else "".
std::string scheduling_text(const Session& session);
// Whether other programs come before it.
bool has_low_priority(const Session& session);

// The last sample of the memory that the machine, or the control group with less of it, still had.
std::optional<double> available_bytes(const Session& session);

// Of 1; 0 where all that is known is the machine's, and the process itself shows no shortage: no
// faults, no limit that was hit, much memory left. What the machine swaps is other groups' then.
double pressure_on_run(const Contention& found);

// Whether the kernel reclaimed or read back pages that the run needs: pressure of 5 % of the time,
// 10 swapped pages or, with a limit that was hit, 50 major faults a second.
bool is_short_of_memory(const Contention& found);

// The run delay of the trainer's thread in each recorded step (View::recorded), which it reads at
// the step's end; at most the step's time. What it read after an evaluation or a checkpoint is of
// these as well: the step has it in proportion to its time. Empty: not recorded.
std::vector<std::uint64_t> core_waits(const View& view);

// What a worker's time in the windows went to; the parts add up to it. The kernel counts a worker's
// run delay, but not when: it is taken out of the time between samples, which no span shows, then
// out of the stages in proportion, so that of one stage it is an average.
struct WorkerParts {
  std::vector<double> stage_ns;  // by LoaderView::stages
  double idle_ns = 0;
  double core_wait_ns = 0;
  double other_ns = 0;  // between samples, and between the stages of one
};
WorkerParts worker_parts(const std::string& thread, const std::vector<std::uint64_t>& stage_ns,
                         std::uint64_t idle_ns, const Contention& found);

// Whether a name is one of the training loader's threads.
bool is_worker(const std::string& thread);

}  // namespace warpstep::profiler
