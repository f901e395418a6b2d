// Values of the device as the host has them: rows of the logical shape, floating-point numbers in
// f32.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <span>

#include "engine/graph/graph.h"
#include "kernels/cuda/runtime.h"

namespace warpstep::cuda {

// Copies large values through two pieces of pinned memory: while one is unpacked, the next part
// comes over the bus, at its full speed. A copy to pageable memory goes through a buffer of the
// driver in one thread, and fresh memory of that size costs a page fault each 4 KiB.
class Readback {
 public:
  // `stored` is memory of the current device; its streams must be idle. May be called from any
  // thread.
  void read(const Value& value, const void* stored, std::span<std::byte> plain);

  static constexpr std::size_t small_bytes = std::size_t{64} << 10;  // up to here: one plain copy
  static constexpr std::size_t piece_bytes = std::size_t{4} << 20;

 private:
  void read_in_pieces(const Value& value, const std::byte* stored, std::span<std::byte> plain);

  std::mutex mutex_;
  std::shared_ptr<std::byte> pieces_;  // two, pinned
  std::size_t bytes_ = 0;              // of one
  std::optional<CudaStream> stream_;
};

}  // namespace warpstep::cuda
