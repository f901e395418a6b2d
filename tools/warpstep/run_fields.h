// The fields of a run's options, by the names that files have for them.
#pragma once

#include "tools/warpstep/run_options.h"

namespace warpstep::tools {

// One list for all that goes over every field: visit(name, member).
template <class Visit>
void visit_fields(Visit visit) {
  visit("model", &RunOptions::model);
  visit("data", &RunOptions::data);
  visit("device", &RunOptions::device);
  visit("precision", &RunOptions::precision);
  visit("batch", &RunOptions::batch);
  visit("epochs", &RunOptions::epochs);
  visit("steps", &RunOptions::steps);
  visit("limit_batches", &RunOptions::limit_batches);
  visit("optimizer", &RunOptions::optimizer);
  visit("lr", &RunOptions::lr);
  visit("momentum", &RunOptions::momentum);
  visit("nesterov", &RunOptions::nesterov);
  visit("weight_decay", &RunOptions::weight_decay);
  visit("betas", &RunOptions::betas);
  visit("epsilon", &RunOptions::epsilon);
  visit("trust", &RunOptions::trust);
  visit("loss", &RunOptions::loss);
  visit("label_smoothing", &RunOptions::label_smoothing);
  visit("class_weights", &RunOptions::class_weights);
  visit("clip_norm", &RunOptions::clip_norm);
  visit("accumulate", &RunOptions::accumulate);
  visit("ema", &RunOptions::ema);
  visit("lr_schedule", &RunOptions::lr_schedule);
  visit("warmup_steps", &RunOptions::warmup_steps);
  visit("lr_step_epochs", &RunOptions::lr_step_epochs);
  visit("lr_gamma", &RunOptions::lr_gamma);
  visit("workers", &RunOptions::workers);
  visit("prefetch", &RunOptions::prefetch);
  visit("tier", &RunOptions::tier);
  visit("transforms", &RunOptions::transforms);
  visit("eval_transforms", &RunOptions::eval_transforms);
  visit("normalize", &RunOptions::normalize);
  visit("shuffle", &RunOptions::shuffle);
  visit("data_errors", &RunOptions::data_errors);
  visit("max_bad", &RunOptions::max_bad);
  visit("memory", &RunOptions::memory);
  visit("data_io", &RunOptions::data_io);
  visit("threads", &RunOptions::threads);
  visit("seed", &RunOptions::seed);
  visit("exact_math", &RunOptions::exact_math);
  visit("deterministic", &RunOptions::deterministic);
  visit("autotune", &RunOptions::autotune);
  visit("no_graph", &RunOptions::no_graph);
  visit("workspace_mib", &RunOptions::workspace_mib);
  visit("plan_cache", &RunOptions::plan_cache);
  visit("no_fuse", &RunOptions::no_fuse);
  visit("recompute", &RunOptions::recompute);
  visit("mean", &RunOptions::mean);
  visit("std", &RunOptions::std);
  visit("profile", &RunOptions::profile);
  visit("profile_schedule", &RunOptions::profile_schedule);
  visit("profile_raw", &RunOptions::profile_raw);
  visit("profile_rank", &RunOptions::profile_rank);
  visit("profile_counters", &RunOptions::profile_counters);
  visit("log_every", &RunOptions::log_every);
  visit("checkpoint_every", &RunOptions::checkpoint_every);
  visit("keep_checkpoints", &RunOptions::keep_checkpoints);
  visit("keep_best", &RunOptions::keep_best);
  visit("out", &RunOptions::out);
}

}  // namespace warpstep::tools
