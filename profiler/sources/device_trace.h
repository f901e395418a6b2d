// The GPU's side of a profile, read through CUPTI: activities (kernels, copies, driver calls) and
// the GPU's own counters (PM sampling). Training never depends on it: failures become notes in the
// report.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "profiler/session/session.h"

namespace warpstep::profiler {

struct Traced {                      // since the last begin()
  std::vector<Activity> activities;  // times mapped to CLOCK_MONOTONIC; names interned as
                                     // Kind::kernel or Kind::host_api
  std::vector<ClockReading> clocks;  // at begin and end, and each half second between
  Losses losses;
  std::vector<Sample> samples;  // of the GPU's counters, if they are sampled
  // Of replay_device_trace() alone:
  std::vector<Device> devices;  // those with activities
  std::vector<Window> windows;  // deep and complete, without the numbers of steps
  std::vector<std::string> notes;
};

class DeviceTrace {
 public:
  virtual ~DeviceTrace() = default;
  // Begin and end of a window; nothing is recorded outside. Neither throws; failures become notes.
  virtual void begin() = 0;
  // Waits for the device until its records are complete.
  virtual Traced end() = 0;
};

struct DeviceTraceOptions {
  std::filesystem::path dump;  // file for the raw activity buffers; empty: none
};

struct OpenedTrace {
  std::unique_ptr<DeviceTrace> trace;  // null: tracing does not work here
  std::string why;                     // one sentence: why not, or which parts do not work
};
// Must be called before the first use of the device: the map from graph nodes to calls is built
// while graphs are captured. Only one trace per process at a time.
OpenedTrace open_device_trace(const DeviceTraceOptions& options = {});

// Reads the dump of an earlier run and gives the same result as end() did, all windows joined, and
// the devices; one that the dump does not describe, as older versions did not, has only a name.
// Throws DataError that names file and byte if the dump is damaged.
Traced replay_device_trace(const std::filesystem::path& dump);

// Properties of the devices, from the driver; empty without a driver.
std::vector<Device> query_devices();

// ---- PM sampling: the GPU's own counters, which show how busy its units were.

struct Measured {               // since the last begin()
  std::vector<Sample> samples;  // by time
  std::vector<std::string> notes;
};

// Samples every millisecond, under these names (Kind::metric), each for the millisecond before its
// time: "gpu N SM active %" (multiprocessors with at least one warp), "gpu N tensor pipe %" (cycles
// in which it was active), "gpu N DRAM %" (of its peak throughput); only those that the chip can
// count in one pass.
class PmSampling {
 public:
  virtual ~PmSampling() = default;
  // Begin and end of a window; nothing is counted outside. Neither throws; failures become notes.
  virtual void begin() = 0;
  // The samples that are completely within this time, in ns of CLOCK_MONOTONIC.
  virtual Measured end(std::uint64_t from_ns, std::uint64_t to_ns) = 0;
  // The sampled metrics: "SM active %, DRAM %".
  virtual std::string what() const = 0;
};

struct OpenedPmSampling {
  std::unique_ptr<PmSampling> sampling;  // null: sampling does not work here
  std::string why;                       // one sentence: why not, or which parts do not work
};
// Of the device with this ordinal. It may lock the GPU's clocks until it is destroyed, so it is
// opened only on request. Only one per process at a time.
OpenedPmSampling open_pm_sampling(int device);

}  // namespace warpstep::profiler
