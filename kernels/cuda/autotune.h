// Measuring the candidates for one piece of work, the way a step will run it: replayed from a
// captured graph, so that neither the host's launches nor a library's checks are in the figure.
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
  // The median time of one `enqueue`, in microseconds. Nothing when it fails, or cannot be captured
  // (it allocates or waits), or is clearly slower than `best_us`. Throws DeviceError when the
  // device itself is lost.
  std::optional<double> median_us(const Enqueue& enqueue, double best_us);

 private:
  std::optional<double> replay(const Enqueue& enqueue, double best_us);

  CudaStream stream_;
  EventHandle start_, stop_;
};

// The index of the fastest; nothing when there is none that can be captured.
std::optional<std::size_t> fastest(Stopwatch& stopwatch, const std::vector<Enqueue>& candidates);

// Device memory filled with values of both signs between 0.5 and 1, which toggle as many bits as
// real ones: on zeros a chip draws less power and clocks higher.
std::shared_ptr<std::byte> random_values(DType dtype, std::size_t bytes);

}  // namespace warpstep::cuda
