// Measuring, over the emulated runtime: what is chosen and what is dropped, not the figures.
#include "kernels/cuda/autotune.h"

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <limits>
#include <thread>

#include "engine/core/error.h"
#include "kernels/cuda/check.h"
#include "tests/cuda_on_cpu/fake_runtime.h"

namespace warpstep::cuda {
namespace {

using std::chrono::microseconds;
constexpr double infinity = std::numeric_limits<double>::infinity();

// Work of the device that takes at least so long.
Enqueue work(const std::string& name, microseconds time) {
  return [name, time](CudaStream& stream) {
    check(fake_cuda::enqueue(stream.handle(), name, [time] { std::this_thread::sleep_for(time); }),
          "enqueue");
  };
}

Enqueue allocating() {
  return [](CudaStream&) {
    void* memory = nullptr;
    check(cudaMalloc(&memory, 16), "cudaMalloc");
    check(cudaFree(memory), "cudaFree");
  };
}

Enqueue failing() {
  return [](CudaStream&) { fail<DeviceError>("not on this device"); };
}

TEST(Autotune, TheFastestIsChosenWhereverItStands) {
  Stopwatch stopwatch;
  const Enqueue slow = work("slow", microseconds(4000)), fast = work("fast", microseconds(100));
  EXPECT_EQ(fastest(stopwatch, {fast, slow}), 0u);
  EXPECT_EQ(fastest(stopwatch, {slow, fast}), 1u);
  EXPECT_EQ(fastest(stopwatch, {slow, fast, slow}), 1u);
  const Enqueue less_slow = work("less slow", microseconds(2700));  // measured to the end, too
  EXPECT_EQ(fastest(stopwatch, {less_slow, slow}), 0u);
}

TEST(Autotune, TheTimeIsThatOfOneEnqueue) {
  Stopwatch stopwatch;
  const std::optional<double> us = stopwatch.median_us(work("work", microseconds(2000)), infinity);
  ASSERT_TRUE(us.has_value());
  EXPECT_GE(*us, 2000);
  EXPECT_LT(*us, 3 * 2000);  // and not of the enqueues of a replay
}

TEST(Autotune, WhatIsHopelessIsNotMeasuredToTheEnd) {
  Stopwatch stopwatch;
  fake_cuda::reset_counts();
  ASSERT_TRUE(stopwatch.median_us(work("measured", microseconds(500)), infinity).has_value());
  EXPECT_FALSE(stopwatch.median_us(work("hopeless", microseconds(500)), 10).has_value());
  EXPECT_LT(3 * fake_cuda::runs("hopeless"), fake_cuda::runs("measured"));
}

TEST(Autotune, WhatCannotBeCapturedIsDroppedAndLeavesNothingBehind) {
  Stopwatch stopwatch;
  const fake_cuda::Live before = fake_cuda::live();
  const Enqueue slow = work("slow", microseconds(500));
  EXPECT_EQ(fastest(stopwatch, {allocating(), failing(), slow, allocating()}), 2u);
  EXPECT_EQ(fastest(stopwatch, {allocating(), failing()}), std::nullopt);
  EXPECT_EQ(fastest(stopwatch, {}), std::nullopt);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  EXPECT_EQ(fake_cuda::live(), before);
}

TEST(Autotune, ALostDeviceIsAnErrorAndNotASlowCandidate) {
  Stopwatch stopwatch;
  const Enqueue loses_the_device = [](CudaStream&) {
    fake_cuda::fail_next("cudaStreamSynchronize", cudaErrorIllegalAddress);
    fail<DeviceError>("an illegal address");
  };
  EXPECT_THROW(stopwatch.median_us(loses_the_device, infinity), DeviceLost);
  for (const char* call : {"cudaStreamSynchronize", "cudaGraphLaunch", "cudaEventSynchronize"}) {
    fake_cuda::fail_next(call, cudaErrorLaunchFailure);
    EXPECT_THROW(stopwatch.median_us(work("lost", microseconds(1)), infinity), DeviceLost) << call;
  }
}

TEST(FirstToRun, IsTheFirstThatTheDeviceAccepts) {
  Stopwatch stopwatch;
  const fake_cuda::Live before = fake_cuda::live();
  fake_cuda::reset_counts();
  const Enqueue runs = work("first", microseconds(1)), later = work("later", microseconds(1));
  std::string why;
  EXPECT_EQ(first_to_run(stopwatch, {failing(), runs, later}, why), 1u);
  EXPECT_EQ(why, "not on this device");
  EXPECT_EQ(fake_cuda::runs("first"), 1u);
  EXPECT_EQ(fake_cuda::runs("later"), 0u);
  EXPECT_EQ(first_to_run(stopwatch, {failing(), failing()}, why), std::nullopt);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  EXPECT_EQ(fake_cuda::live(), before);
}

// A library's error may not say what its call of the runtime said.
TEST(FirstToRun, ALackOfMemoryIsNoRefusal) {
  Stopwatch stopwatch;
  const Enqueue of_runtime = [](CudaStream&) { fail<OutOfDeviceMemory>("no memory"); };
  const Enqueue of_library = [](CudaStream&) {
    void* memory = nullptr;
    fake_cuda::fail_next("cudaMalloc", cudaErrorMemoryAllocation);
    if (cudaMalloc(&memory, 16) != cudaSuccess) fail<DeviceError>("internal error");
  };
  // One with a runtime of its own, of whose error this one knows nothing.
  const Enqueue of_own_runtime = [](CudaStream&) {
    fake_cuda::set_device_memory(fake_cuda::live().bytes + (std::size_t{63} << 20));
    fail<DeviceError>("internal error");
  };
  for (const Enqueue& lacking : {of_runtime, of_library, of_own_runtime}) {
    std::string why;
    EXPECT_THROW(first_to_run(stopwatch, {lacking, work("next", microseconds(1))}, why),
                 OutOfDeviceMemory);
    EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  }
  fake_cuda::set_device_memory(std::size_t{8} << 30);
}

TEST(FastestOrFirst, SaysWhetherItMeasured) {
  Stopwatch stopwatch;
  std::string why;
  const Enqueue slow = work("slow", microseconds(2000)), fast = work("fast", microseconds(100));
  const std::optional<Chosen> measured = fastest_or_first(stopwatch, {slow, fast}, true, why);
  ASSERT_TRUE(measured);
  EXPECT_EQ(measured->candidate, 1u);
  EXPECT_TRUE(measured->measured);
  EXPECT_EQ(fastest_or_first(stopwatch, {slow, fast}, false, why)->candidate, 0u);
  // Runs, but cannot be captured.
  const std::optional<Chosen> unmeasured =
      fastest_or_first(stopwatch, {failing(), allocating()}, true, why);
  ASSERT_TRUE(unmeasured);
  EXPECT_EQ(unmeasured->candidate, 1u);
  EXPECT_FALSE(unmeasured->measured);
  EXPECT_FALSE(fastest_or_first(stopwatch, {failing()}, true, why));
}

TEST(FirstToRun, AFailureThatIsSeenOnlyLaterIsTheDevices) {
  Stopwatch stopwatch;
  fake_cuda::fail_next("cudaStreamSynchronize", cudaErrorIllegalAddress);
  std::string why;
  EXPECT_THROW(first_to_run(stopwatch, {work("lost", microseconds(1))}, why), DeviceLost);
  fake_cuda::fail_next("cudaStreamSynchronize", cudaErrorUnknown);
  EXPECT_THROW(first_to_run(stopwatch, {work("lost", microseconds(1))}, why), DeviceLost);
}

TEST(Streams, FreeTheLibrarysHandleThatBelongsToThem) {
  const std::size_t streams = fake_cuda::live().streams;
  bool freed_first = false;
  {
    CudaStream stream;
    stream.dnn_handle.reset(&stream,
                            [&](void*) { freed_first = fake_cuda::live().streams == streams + 1; });
  }
  EXPECT_TRUE(freed_first) << "not at all, or behind the stream";
  EXPECT_EQ(fake_cuda::live().streams, streams);
}

// Sign and mantissa vary, and the exponent is that of 0.5: all lie in +-[0.5, 1).
TEST(Autotune, RandomValuesAreFiniteAndDiffer) {
  constexpr std::size_t bytes = (std::size_t{4} << 20) + 10;  // more than the block that repeats
  const auto f32 = random_values(DType::f32, bytes);
  double sum = 0;
  for (std::size_t at = 0; at + sizeof(float) <= bytes; at += sizeof(float)) {
    float value = 0;
    std::memcpy(&value, f32.get() + at, sizeof value);
    ASSERT_GE(std::abs(value), 0.5F) << at;
    ASSERT_LT(std::abs(value), 1.0F) << at;
    sum += static_cast<double>(value);
  }
  EXPECT_LT(std::abs(sum), 0.01 * bytes / sizeof(float));
  for (const auto& [dtype, exponent_mask, exponent] :
       {std::tuple{DType::f16, 0x7c00, 0x3800}, std::tuple{DType::bf16, 0x7f80, 0x3f00}}) {
    const auto values = random_values(dtype, 64);
    for (int at = 0; at < 64; at += 2) {
      std::uint16_t bits = 0;
      std::memcpy(&bits, values.get() + at, sizeof bits);
      EXPECT_EQ(bits & exponent_mask, exponent) << name(dtype);
    }
  }
}

}  // namespace
}  // namespace warpstep::cuda
