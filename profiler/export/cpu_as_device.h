// A session of a run on the CPU as one of a device: readers of traces that analyse only kernels
// (HolisticTraceAnalysis) then analyse the calls that the CPU computed.
#pragma once

#include "profiler/session/session.h"

namespace warpstep::profiler {

// Each call of the program that no other call of its thread encloses becomes a launch of 1 ns at
// its begin, and for the rest of its time a kernel of device 0: on a CPU, what is asked for begins
// at once.
// The trainer's thread is stream 7, others follow. The stamp's "cpu_as_device" and the device's
// name say what the device is. Throws UsageError when a device computed.
Session cpu_as_device(Session session);

}  // namespace warpstep::profiler
