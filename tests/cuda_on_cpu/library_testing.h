// Shared by the tests of the emulated libraries.
#pragma once

#include <memory>
#include <random>
#include <vector>

#include "kernels/cuda/runtime.h"
#include "tests/cuda_on_cpu/elements.h"

namespace warpstep::cuda {

// Elements of a dtype in aligned memory of the emulated device.
class Memory {
 public:
  Memory(DType dtype, std::size_t count)
      : dtype_(dtype), count_(count), owner_(allocate_device(count * size_bytes(dtype))) {}
  Memory(DType dtype, const std::vector<float>& values) : Memory(dtype, values.size()) {
    for (std::size_t i = 0; i < count_; ++i)
      store(owner_.get(), dtype_, static_cast<std::int64_t>(i), values[i]);
  }
  void* data() const { return owner_.get(); }
  std::vector<float> values() const {
    std::vector<float> values;
    for (std::size_t i = 0; i < count_; ++i)
      values.push_back(load(owner_.get(), dtype_, static_cast<std::int64_t>(i)));
    return values;
  }

 private:
  DType dtype_;
  std::size_t count_;
  std::shared_ptr<std::byte> owner_;
};

inline std::vector<float> randoms(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_int_distribution<int> eighths(-16, 16);  // exact in every dtype
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(eighths(random)) / 8;
  return values;
}

}  // namespace warpstep::cuda
