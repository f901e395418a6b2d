// Measures candidate implementations the way a step will run them: replayed from a captured graph,
// so that neither the host's launches nor a library's checks are part of the time.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "engine/core/types.h"
#include "kernels/cuda/runtime.h"

namespace warpstep::cuda {

using Enqueue = std::function<void(CudaStream&)>;

class Stopwatch {
 public:
  Stopwatch();
  // The median time of one `enqueue`, in microseconds. Empty if it fails, cannot be captured (it
  // allocates or waits) or is more than twice as slow as `best_us`. Throws DeviceError if the
  // device itself is lost.
  std::optional<double> median_us(const Enqueue& enqueue, double best_us);

 private:
  std::optional<double> replay(const Enqueue& enqueue, double best_us);

  CudaStream stream_;
  EventHandle start_, stop_;
};

// The index of the fastest candidate; empty if none can be captured.
std::optional<std::size_t> fastest(Stopwatch& stopwatch, const std::vector<Enqueue>& candidates);

// Device memory filled with values of both signs between 0.5 and 1. They toggle about as many bits
// as real data: on zeros a chip draws less power and clocks higher.
std::shared_ptr<std::byte> random_values(DType dtype, std::size_t bytes);

}  // namespace warpstep::cuda
