#include "tests/device_memory.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>

#include "kernels/cuda/check.h"

namespace warpstep::simt {
// Of the emulated grid, where the program has one.
[[gnu::weak]] void set_schedule(std::uint64_t seed);
}  // namespace warpstep::simt

namespace warpstep::cuda::testing {
namespace {

std::shared_ptr<void> allocate(std::size_t bytes) {
  void* memory = nullptr;
  check(cudaMalloc(&memory, bytes > 0 ? bytes : 1), "cudaMalloc");
  return {memory, [](void* p) { ignore(cudaFree(p)); }};
}

template <class T>
void put(std::byte* to, std::size_t i, float value) {
  const T stored(value);
  std::memcpy(to + i * sizeof(T), &stored, sizeof stored);
}

template <class T>
float get(const std::byte* from, std::size_t i) {
  T stored;
  std::memcpy(&stored, from + i * sizeof(T), sizeof stored);
  return static_cast<float>(stored);
}

bool is_near(float actual, double expected, double relative, double absolute) {
  const auto value = static_cast<double>(actual);
  if (std::isnan(value) || std::isnan(expected)) return std::isnan(value) && std::isnan(expected);
  if (std::isinf(value) || std::isinf(expected)) return value == expected;
  return std::abs(value - expected) <= relative * std::abs(expected) + absolute;
}

}  // namespace

Memory::Memory(std::size_t bytes) : bytes_(bytes), memory_(allocate(bytes)) {
  check(cudaMemset(memory_.get(), 0xff, bytes), "cudaMemset");
}

void Memory::write(const void* from) {
  check(cudaMemcpy(memory_.get(), from, bytes_, cudaMemcpyHostToDevice), "cudaMemcpy");
}

void Memory::read(void* to) const {
  check(cudaMemcpy(to, memory_.get(), bytes_, cudaMemcpyDeviceToHost), "cudaMemcpy");
}

Floats::Floats(DType dtype, std::size_t count)
    : dtype_(dtype), count_(count), memory_(count * size_bytes(dtype)) {}

Floats::Floats(DType dtype, const std::vector<float>& values) : Floats(dtype, values.size()) {
  std::vector<std::byte> bytes(values.size() * size_bytes(dtype));
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (dtype == DType::f32) put<float>(bytes.data(), i, values[i]);
    if (dtype == DType::f16) put<__half>(bytes.data(), i, values[i]);
    if (dtype == DType::bf16) put<__nv_bfloat16>(bytes.data(), i, values[i]);
  }
  memory_.write(bytes.data());
}

std::vector<float> Floats::values() const {
  std::vector<std::byte> bytes(count_ * size_bytes(dtype_));
  memory_.read(bytes.data());
  std::vector<float> values(count_);
  for (std::size_t i = 0; i < count_; ++i) {
    if (dtype_ == DType::f32) values[i] = get<float>(bytes.data(), i);
    if (dtype_ == DType::f16) values[i] = get<__half>(bytes.data(), i);
    if (dtype_ == DType::bf16) values[i] = get<__nv_bfloat16>(bytes.data(), i);
  }
  return values;
}

std::vector<float> random_values(std::size_t count, float scale, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> uniform(-scale, scale);
  std::vector<float> values(count);
  for (float& value : values) value = uniform(random);
  return values;
}

std::vector<float> settled(const std::function<std::vector<float>()>& run) {
  constexpr std::uint64_t schedules = 3;
  std::vector<float> first;
  for (std::uint64_t seed = 0; seed < schedules; ++seed) {
    if (simt::set_schedule != nullptr) simt::set_schedule(seed);
    const std::vector<float> now = run();
    if (seed == 0) first = now;
    EXPECT_EQ(now.size(), first.size());
    for (std::size_t i = 0; i < now.size(); ++i)
      if (std::bit_cast<std::uint32_t>(now[i]) != std::bit_cast<std::uint32_t>(first[i])) {
        ADD_FAILURE() << "element " << i << " is " << first[i] << " at first and " << now[i]
                      << " in run " << seed;
        break;
      }
  }
  if (simt::set_schedule != nullptr) simt::set_schedule(0);
  return first;
}

void expect_near(const std::vector<float>& actual, const std::vector<double>& expected,
                 double relative, double absolute) {
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t i = 0; i < actual.size(); ++i)
    if (!is_near(actual[i], expected[i], relative, absolute)) {
      ADD_FAILURE() << "element " << i << " of " << actual.size() << " is " << actual[i]
                    << " in place of " << expected[i];
      return;
    }
}

}  // namespace warpstep::cuda::testing
