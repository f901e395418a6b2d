// A session from records of a GPU alone, which know neither the run's steps nor its program.
#pragma once

#include "profiler/session/session.h"
#include "profiler/sources/device_trace.h"

namespace warpstep::profiler {

// Of what replay_device_trace() gave. A step is what a graph did, from the end of the one before
// where no other kernels lie between; a window without graphs is one step. A note says so.
Session replayed_session(Traced traced);

}  // namespace warpstep::profiler
