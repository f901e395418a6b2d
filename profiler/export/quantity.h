// Sentences that the terminal and the page share: title, verdict, gains, trust.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "profiler/analysis/analysis.h"

namespace warpstep::profiler {
// What of the machine a measurement depends on, from the stamp: {"clocks", "performance at 800 to
// 3800 MHz (CPUs 0-3)"}, ...; "not readable" where the kernel does not say. None in old sessions.
std::vector<std::pair<std::string, std::string>> machine_facts(const Session& session);

// Per epoch, as the loader reports; else those of the session's first whole epoch; 0: not known.
double steps_per_epoch(const Session& session);
// What a finding saves per epoch; 0 where that is not known, or where only some epochs save it.
double epoch_gain_ns(const Session& session, const Analysis& analysis, const Finding& finding);
// items() per second over the counted steps; 0: not known.
double samples_per_second(const Session& session, const Breakdown& breakdown);
// Floating-point operations of the whole program in a step; 0: not known.
double step_flops(const Work& work);
// "cifar10cnn on an NVIDIA H200, batch 128"; what is not known is left out.
std::string run_title(const Session& session);
// "A step takes 41.0 ms: 60.0 % kernels, 30.0 % loader wait, 6.0 % CPU."
std::string verdict(const Session& session, const Analysis& analysis);
// "Outside of steps: 985 ms of 1.83 s (53.8 %): evaluation, checkpoints."; empty up to 1 %. The
// time is from the first step's begin to the last one's end.
std::string outside_steps(const Session& session);
bool has_call_times(const Work& work);
// Why a run whose --profile records what `level` does, "spans" or "deep", has none of it: a clause,
// with what to do. Empty where the run's level is a lower one, or not known.
std::string why_none(const Session& session, std::string_view level);
// Instead of findings: none are needed, or what they come from was not recorded.
std::string nothing_found(const Session& session, const Analysis& analysis);
// What a finding gains: "12.3 ms per step (1.43x), 4.80 s per epoch, 31.0 % of this run"; empty
// when not known.
std::string gain_text(const Session& session, const Analysis& analysis, const Finding& finding);
// With a capital and a full stop, where it has none.
std::string sentence(std::string text);
// What recording cost: "0.1 % of a step (21.0 us)", "at most 0.8 % of a step (40 us), against steps
// outside of windows", or "not known for device records".
std::string cost_text(const Trust& trust);
// "Recording cost 0.1 % of a step; nothing was lost; clocks agree within 1.20 us."
std::string trust_line(const Analysis& analysis);
bool lost_something(const Losses& losses);

// As people read a category; those whose parts are never above 0 are left out of charts.
std::string_view label(Category category);
// torch_tb_profiler's title where the breakdown has its rules.
std::string_view label(Category category, const Breakdown& breakdown);
// The shared table of the breakdown with these labels, without the categories that have no time.
Table labelled_breakdown(const Analysis& analysis);

}  // namespace warpstep::profiler
