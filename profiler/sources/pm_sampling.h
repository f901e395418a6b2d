// How busy a GPU's units really were: its own counters, which CUPTI's PM sampling reads every
// millisecond beside what runs. Training never depends on it: whatever fails becomes a sentence for
// the report.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "profiler/session/session.h"

namespace warpstep::profiler {

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
