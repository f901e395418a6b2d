// The rules behind find_findings(): each looks at one thing and adds what it finds; and what can be
// done about a loader.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "profiler/analysis/analysis.h"
#include "profiler/analysis/loader_model.h"
#include "profiler/analysis/scope.h"

namespace warpstep::profiler {

// The input of the rules.
struct Facts {
  Facts(const View& view, const Analysis& analysis);
  Facts(View&&, const Analysis&) = delete;  // it refers to the view

  const View& view;
  const Session& session;
  const Analysis& analysis;
  const Json& options;  // command-line options, keys with _ instead of -
  double step_ns = 0;   // 0: no rule applies
  double steps = 1;     // that sums over the windows cover
  bool on_host = false;
  bool waits_for_data = false;  // at least 2 % of a step

  double part(Category category) const {  // ns per step
    return analysis.breakdown.mean[static_cast<std::size_t>(category)];
  }
  double share(Category category) const { return part(category) / step_ns; }
  // The gain of `ns` saved elsewhere than in the loader: where the step waits for data it becomes
  // at most as short as the loader's workers make a batch, and would only wait longer.
  double unless_waiting(double ns) const;
  std::string option(const char* key, const char* otherwise = "") const {
    return fields::text(options, key, otherwise);
  }
  std::int64_t batch() const { return analysis.loader.batch; }
  // Other programs, or the host's, take so many cores that what a call or a worker reaches says
  // little of the run itself.
  bool lacks_cores() const {
    return on_host && analysis.contention.is_missed(analysis.contention.taken_share());
  }
  bool reads_text() const { return fields::text(session.loader, "encoding") == "tokens"; }
  std::string larger_batch() const;  // "--batch 256", "--batch 256 --accumulate 2"
  std::string smaller_batch() const;
  // Whether the GPU's memory, or the host's, holds twice the batch, with which what lives in a step
  // grows.
  bool has_room_for_larger_batch() const;
  bool has_samples_for_larger_batch() const;
  // Of Kind::range spans of this name in the counted steps, ns per step.
  double range_ns(std::string_view name) const;
  std::string of_step(double ns) const;  // "1.2 ms of 3.4 ms per step (35.3 %)"
  double run_steps() const;              // that this process trained, at least 1
  double run_ns() const;                 // wall time
  // A phase between steps, in the whole run.
  double outside_ns(std::string_view name) const;
  std::string of_run(double ns) const;  // "1.2 s of 3.4 s (35.3 % of the run)"
};

// The share from which memory counts as full: torch_tb_profiler's threshold.
constexpr double full_memory = 0.90;

struct Memory {
  double used = 0, total = 0;  // bytes; total 0: unknown
  std::string what;

  bool is_full() const { return total > 0 && used > full_memory * total; }
};
// What the run uses, and all that it could use.
Memory host_memory(const Facts& facts);

// Below this width, as a share of the step, a gain is printed as one number instead of a range.
constexpr double least_range = 0.05;

using FindingRule = void(const Facts& facts, std::vector<Finding>& findings);

// findings_loader.cpp; what they advise: findings_remedies.cpp.
FindingRule find_data_wait, find_slow_reads, find_slow_worker, find_slow_samples,
    find_waiting_stage, find_slow_transform, find_loader_contention;
// findings_device.cpp: a device that waits, or is waited for; kernels that could be shorter.
FindingRule find_copies, find_pageable_copies, find_launch_bound, find_sync_bound, find_tiny_batch,
    find_low_utilization, find_tensor_cores, find_unaligned, find_layout_transposes,
    find_small_kernels, find_slow_blocks, find_few_blocks, find_many_calls, find_slow_layer;
// findings_ranks.cpp.
FindingRule find_slow_rank, find_communication;
// findings_host.cpp: the machine, and the trainer's own thread.
FindingRule find_oversubscribed, find_idle_cores, find_full_memory, find_throttling,
    find_slow_observers, find_statistics, find_slow_options, find_slow_clock;
// findings_phases.cpp: the run outside of its steps.
FindingRule find_slow_checkpoints, find_long_evaluation, find_slow_opening;
// findings_run.cpp: steps that differ from the others.
FindingRule find_uneven_run, find_pauses, find_outside_waits;
// findings_contention.cpp: the cores that the process was not given.
FindingRule find_other_programs, find_foreign_threads, find_stopped, find_tracer, find_stolen_cores,
    find_cpu_quota, find_narrow_affinity, find_bound_threads;
// findings_memory.cpp.
FindingRule find_short_memory, find_set_not_in_memory, find_memory_growth;
// findings_io.cpp.
FindingRule find_io_limit;

// Whether the loader's workers wait for reads that the control group delays: what single samples
// and workers took says nothing then, and more workers share what it allows.
bool reads_are_limited(const Facts& facts);
// "; the control group limits vda to 600 reads/s"; "" where it does not limit reads (writes).
std::string read_limits_text(const Session& session);
std::string write_limits_text(const Session& session);

// Whether the loader's workers wait for pages of a mapped set, which the kernel reads from the
// disk: for half of their time, and faults are as many as one in ten samples, or as explain that
// time. What their stages took says nothing then.
bool faults_in_set(const Facts& facts);

// Whether they wait for reads of files that the kernel had dropped from memory since they were read
// last: for a quarter of their time, and at least a quarter of the set's pages are such.
bool rereads_set(const Facts& facts);

// Either: the loader waits because the set does not stay in memory.
bool lacks_set_in_memory(const Facts& facts);

// Whether OMP_WAIT_POLICY keeps the kernels' threads on cores that the loader's workers need.
bool spins_on_needed_cores(const Facts& facts);

// The evidence, and behind it how long threads waited for a core, where the system says so.
std::string with_delays(std::string evidence, const Contention& lost);

// "; the slowest: a.png 31.2 ms, b.png 30.1 ms"; "" where the loader did not report them.
std::string slowest_text(const Session& session);

struct RemedyChoice {
  std::string flag, advice;
  Gain gain;  // per step, by the model
};

// A stage's time afterwards over its time before, measured on small PNG and large JPEG files, with
// a margin.
constexpr double packed_read = 0.25;     // packed files, in a known order, over loose ones: 0.1
constexpr double decoded_decode = 0.05;  // a copy of pixels over PNG: 0.02 to 0.04
constexpr double seekable_decode = 0.5;  // crops of seekable JPEG over all of it: 0.21 to 0.47
constexpr double bytes_pixels = 0.3;     // copying bytes over making numbers on the CPU: 0.29

// Whether --tier mapped would keep decoded images that are decoded each time now, and they fit.
bool can_keep_decoded(const Facts& facts);
// Whether the run ends before most samples come again, so that it gains little from what is kept.
bool reads_once(const Facts& facts);

// "warpstep data pack shapes shapes-packed --decode"; nothing when the set cannot be packed, or
// has been.
std::optional<std::string> pack_command(const Facts& facts);

// Nothing where it does not help, or is set already.
std::optional<RemedyChoice> deeper_queue(const Facts& facts, const LoaderModel& model);
std::optional<RemedyChoice> pack(const Facts& facts, const LoaderModel& model);
// Nothing is read or decoded from the second epoch on.
std::optional<RemedyChoice> keep_decoded(const Facts& facts, const LoaderModel& model);
// Less work never takes longer: a negative gain is noise of the replay.
Gain at_least_none(Gain gain);
// The bytes of a packed set over those that are read now.
double packed_bytes(const Facts& facts);

// The cheapest first; with `waiting` those against waiting for data, else those that make the work
// less. None that is set already.
std::vector<RemedyChoice> remedies(const Facts& facts, const LoaderModel& model, bool waiting);

}  // namespace warpstep::profiler
