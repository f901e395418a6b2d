// Why a device waits for its next batch: what the trainer's waits consist of while nothing else of
// the step runs.
#pragma once

#include "profiler/analysis/scope.h"

namespace warpstep::profiler {

// ns per recorded step. Their sum is Category::data of the breakdown, but for what was taken out of
// that as waiting for a core.
struct FeedWaits {
  double batch_ns = 0;   // the loader had no batch ready
  double buffer_ns = 0;  // both buffers on the device were in use
  double copy_ns = 0;    // the batch was copied
  double late_ns = 0;    // it was on the device, and the trainer's thread had not woken up yet
  double all_ns() const { return batch_ns + buffer_ns + copy_ns + late_ns; }
};
// Nothing where the host computes, and where no thread copies batches.
FeedWaits feed_waits(const View& view);

}  // namespace warpstep::profiler
