// A trainer's step as the profiler keeps it.
#pragma once

#include "engine/trainer.h"
#include "profiler/recorder/recorder.h"

namespace warpstep::tools {

inline profiler::Step told_step(const StepRecord& r) {
  return {.step = r.step,
          .epoch = r.epoch,
          .begin_ns = r.begin_ns,
          .end_ns = r.end_ns,
          .data_ns = r.times.data_ns,
          .copies_ns = r.times.copies_ns,
          .kernels_ns = r.times.kernels_ns,
          .cpu_ns = r.times.cpu_ns,
          .other_ns = r.times.other_ns,
          .samples = r.score.count,
          .loss = static_cast<double>(r.loss),
          .learning_rate = static_cast<double>(r.learning_rate),
          .correct = r.score.correct};
}

inline profiler::StepPlace place_after(const StepRecord& r) {
  return {r.step_in_epoch >= r.steps_per_epoch ? 0 : r.step_in_epoch, r.steps_per_epoch};
}

}  // namespace warpstep::tools
