// Memory for large values that are needed for a moment: uninitialised, and in huge pages where the
// system has them, as a fault for each of the 4,000 pages of 16 MiB takes longer than copying them.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

namespace warpstep {

class Scratch {
 public:
  // Room for this many numbers, whose content is undefined. Spans of earlier calls end with it.
  std::span<float> floats(std::size_t count);

 private:
  struct Free {
    void operator()(float* memory) const;
  };
  std::unique_ptr<float, Free> memory_;
  std::size_t count_ = 0;
};

}  // namespace warpstep
