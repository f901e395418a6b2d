// For tests of the CUDA kernels: device memory with values in it. The same tests run over the
// emulated grid and on a GPU.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "engine/core/types.h"

namespace warpstep::cuda::testing {

// Device memory of exactly this many bytes, so that AddressSanitizer detects accesses beyond its
// end where the device is emulated. Full of 0xff until it is written: NaN, and -1.
class Memory {
 public:
  explicit Memory(std::size_t bytes);

  void* data() const { return memory_.get(); }
  void write(const void* from);
  void read(void* to) const;  // waits for the device

 private:
  std::size_t bytes_;
  std::shared_ptr<void> memory_;
};

template <class T>
class Array {
 public:
  explicit Array(std::size_t count) : count_(count), memory_(count * sizeof(T)) {}
  explicit Array(const std::vector<T>& values) : Array(values.size()) {
    memory_.write(values.data());
  }

  T* data() const { return static_cast<T*>(memory_.data()); }
  std::vector<T> values() const {
    std::vector<T> values(count_);
    memory_.read(values.data());
    return values;
  }
  T value() const { return values().at(0); }

 private:
  std::size_t count_;
  Memory memory_;
};

// Floating-point values, stored in `dtype`.
class Floats {
 public:
  Floats(DType dtype, std::size_t count);
  Floats(DType dtype, const std::vector<float>& values);

  void* data() const { return memory_.data(); }
  std::vector<float> values() const;  // as rounded

 private:
  DType dtype_;
  std::size_t count_;
  Memory memory_;
};

// Uniform in [-scale, scale), equal for equal seeds.
std::vector<float> random_values(std::size_t count, float scale, unsigned seed);

// The result of `run`: run several times, where the device is emulated under several schedules of
// blocks, warps and lanes, and expected to have the same bits every time.
std::vector<float> settled(const std::function<std::vector<float>()>& run);

// Expects |actual - expected| <= relative |expected| + absolute everywhere; NaN equals NaN, and
// infinities are equal where their signs are.
void expect_near(const std::vector<float>& actual, const std::vector<double>& expected,
                 double relative, double absolute = 0);

}  // namespace warpstep::cuda::testing
