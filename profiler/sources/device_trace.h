// What runs on a GPU, as CUPTI tells it. Training never depends on it: whatever fails becomes a
// sentence for the report.
#pragma once

#include <cstdint>
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

// How busy a GPU's units really were: its own counters, which CUPTI's PM sampling reads every
// millisecond beside what runs. Training never depends on it: whatever fails becomes a sentence for
// the report.

struct Measured {               // since the last begin()
  std::vector<Sample> samples;  // by time
  std::vector<std::string> notes;
};

// Samples under these names (Kind::metric), each of the millisecond before its time: "gpu N SM
// active %" (multiprocessors with at least one warp), "gpu N tensor pipe %" (cycles in which it was
// active), "gpu N DRAM %" (of its peak throughput); those that the chip can count in one pass.
class PmSampling {
 public:
  virtual ~PmSampling() = default;
  // Of a window: only then anything is counted. Neither throws; what fails is among the notes.
  virtual void begin() = 0;
  // What was counted wholly within a time, in ns of CLOCK_MONOTONIC.
  virtual Measured end(std::uint64_t from_ns, std::uint64_t to_ns) = 0;
  // What is sampled: "SM active %, DRAM %".
  virtual std::string what() const = 0;
};

struct OpenedPmSampling {
  std::unique_ptr<PmSampling> sampling;  // null: it does not work here
  std::string why;                       // then: one sentence; also of what works in part
};
// Of the device with this ordinal. It may lock the GPU's clocks until it is destroyed, so nobody
// has it who did not ask. One at a time in a process.
OpenedPmSampling open_pm_sampling(int device);

}  // namespace warpstep::profiler
