// What runs on a GPU, as CUPTI tells it. Training never depends on it: whatever fails becomes a
// sentence for the report.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "profiler/session/session.h"

namespace warpstep::profiler {

struct Traced {                        // since the last begin()
  std::vector<Activity> activities;    // times mapped to CLOCK_MONOTONIC; names interned as
                                       // Kind::kernel or Kind::host_api
  std::vector<GraphNode> graph_nodes;  // all known so far
  std::vector<ClockReading> clocks;    // at begin and end, and each half second between
  Losses losses;
  std::vector<Sample> samples;  // of the GPU's counters, where they are sampled (pm_sampling.h)
  std::vector<std::string> notes;
};

class DeviceTrace {
 public:
  virtual ~DeviceTrace() = default;
  // Of a window: only then anything is recorded. Neither throws; what fails is among the notes.
  virtual void begin() = 0;
  // Waits for the device, and until its records are complete.
  virtual Traced end() = 0;
};

struct DeviceTraceOptions {
  std::filesystem::path
      dump;  // raw activity buffers are appended to this file; empty: they are not
};

struct OpenedTrace {
  std::unique_ptr<DeviceTrace> trace;  // null: it does not work here
  std::string why;                     // then: one sentence; also of what works in part
};
// Must be called before anything touches the device: the map from a graph's nodes to calls is made
// while graphs are captured. One at a time in a process; the next may be opened when it is
// destroyed.
OpenedTrace open_device_trace(const DeviceTraceOptions& options = {});

// Reads what an earlier run dumped and gives what end() gave then, of several windows all together.
// DataError that names file and byte for what is not sound.
Traced replay_device_trace(const std::filesystem::path& dump);

// Properties of the devices, from the driver; empty without one.
std::vector<Device> query_devices();

}  // namespace warpstep::profiler
