// Tries candidate implementations on the device before a step needs them. Measures them the way a
// step will run them: replayed from a captured graph, so that neither the host's launches nor a
// library's checks are part of the time.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/core/types.h"
#include "kernels/cuda/runtime.h"

namespace warpstep::cuda {

using Enqueue = std::function<void(CudaStream&)>;

class Stopwatch {
 public:
  Stopwatch();
  // The median time of one `enqueue`, in microseconds. Empty if it fails, cannot be captured (it
  // allocates or waits) or is more than twice as slow as `best_us`. Throws DeviceLost if the device
  // itself is lost.
  std::optional<double> median_us(const Enqueue& enqueue, double best_us);
  // Why one `enqueue` does not run; empty if it does. Throws DeviceLost if the device is lost, and
  // OutOfDeviceMemory where it needs memory that is not there, for its code or a library's handle:
  // that says nothing about the candidate.
  std::string why_not(const Enqueue& enqueue);

  CudaStream& stream() { return stream_; }

 private:
  std::optional<double> replay(const Enqueue& enqueue, double best_us);
  void wait();

  CudaStream stream_;
  EventHandle start_, stop_;
};

// The index of the fastest candidate; empty if none can be captured.
std::optional<std::size_t> fastest(Stopwatch& stopwatch, const std::vector<Enqueue>& candidates);

// The index of the first candidate that runs, as heuristics may propose what then refuses its
// buffers; empty if none does, with the reasons in `why`. Throws OutOfDeviceMemory as why_not().
std::optional<std::size_t> first_to_run(Stopwatch& stopwatch,
                                        const std::vector<Enqueue>& candidates, std::string& why);

// A candidate by its index, and whether it is the fastest by measurement.
struct Chosen {
  std::size_t candidate = 0;
  bool measured = false;
};

// The fastest if `measures` and one can be timed, else the first that runs; empty if none does,
// with the reasons in `why`. Throws OutOfDeviceMemory as why_not().
std::optional<Chosen> fastest_or_first(Stopwatch& stopwatch, const std::vector<Enqueue>& candidates,
                                       bool measures, std::string& why);

// Device memory filled with values of both signs between 0.5 and 1. They toggle about as many bits
// as real data: on zeros a chip draws less power and clocks higher.
std::shared_ptr<std::byte> random_values(DType dtype, std::size_t bytes);

}  // namespace warpstep::cuda
