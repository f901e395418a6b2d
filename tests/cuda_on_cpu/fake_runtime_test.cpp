// The emulated runtime follows CUDA's rules, above all those of captures.
#include "tests/cuda_on_cpu/fake_runtime.h"

#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tests/cuda_on_cpu/simt.h"

namespace warpstep::fake_cuda {
namespace {

using testing::ElementsAre;

class FakeRuntime : public testing::Test {
 protected:
  void SetUp() override {
    for (auto* stream : {&main_, &side_})
      ASSERT_EQ(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking), cudaSuccess);
    for (auto* event : {&fork_, &join_})
      ASSERT_EQ(cudaEventCreateWithFlags(event, cudaEventDisableTiming), cudaSuccess);
    reset_counts();
  }
  void TearDown() override {
    for (auto* stream : {main_, side_}) EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
    for (auto* event : {fork_, join_}) EXPECT_EQ(cudaEventDestroy(event), cudaSuccess);
    EXPECT_EQ(live(), Live{}) << "everything is given back";
    cudaGetLastError();
    simt::set_schedule(0);
  }
  // Work that logs that it ran.
  cudaError_t note(cudaStream_t stream, const std::string& name) {
    return enqueue(stream, name, [this, name] { log_.push_back(name); });
  }
  void wait(cudaStream_t waiting, cudaEvent_t event, cudaStream_t other) {
    EXPECT_EQ(cudaEventRecord(event, other), cudaSuccess);
    EXPECT_EQ(cudaStreamWaitEvent(waiting, event, 0), cudaSuccess);
  }
  void begin(cudaStreamCaptureMode mode = cudaStreamCaptureModeThreadLocal) {
    ASSERT_EQ(cudaStreamBeginCapture(main_, mode), cudaSuccess);
  }
  cudaError_t end() {
    cudaGraph_t graph = nullptr;
    const cudaError_t status = cudaStreamEndCapture(main_, &graph);
    EXPECT_EQ(graph != nullptr, status == cudaSuccess);
    if (graph != nullptr) {
      EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
    }
    return status;
  }

  cudaStream_t main_ = nullptr, side_ = nullptr;
  cudaEvent_t fork_ = nullptr, join_ = nullptr;
  std::vector<std::string> log_;
};

TEST_F(FakeRuntime, WorkRunsAtOnceAndIsCounted) {
  EXPECT_EQ(note(main_, "a"), cudaSuccess);
  EXPECT_EQ(note(nullptr, "b"), cudaSuccess);
  EXPECT_THAT(log_, ElementsAre("a", "b"));
  EXPECT_EQ(runs("a"), 1U);
  EXPECT_EQ(cudaStreamQuery(main_), cudaSuccess);
  EXPECT_EQ(calls("cudaStreamQuery"), 1U);
}

// With some seeds it runs ahead.
TEST_F(FakeRuntime, DeferredWorkRunsInOrderOnceItIsWaitedFor) {
  bool was_late = false;
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    set_deferral(seed);
    log_.clear();
    EXPECT_EQ(note(side_, "a"), cudaSuccess);
    wait(main_, join_, side_);
    EXPECT_EQ(note(main_, "b"), cudaSuccess);
    was_late = was_late || log_.empty();
    while (cudaStreamQuery(main_) == cudaErrorNotReady) EXPECT_LT(log_.size(), 2U);
    EXPECT_THAT(log_, ElementsAre("a", "b"));
    EXPECT_EQ(note(side_, "c"), cudaSuccess);
  }
  set_deferral(0);
  EXPECT_THAT(log_, ElementsAre("a", "b", "c"));
  EXPECT_TRUE(was_late);
}

TEST_F(FakeRuntime, DeferredCopiesReadPinnedMemoryLateAndOtherMemoryAtOnce) {
  void *device = nullptr, *pinned = nullptr;
  ASSERT_EQ(cudaMalloc(&device, 2), cudaSuccess);
  ASSERT_EQ(cudaMallocHost(&pinned, 1), cudaSuccess);
  auto* const there = static_cast<char*>(device);
  auto* const pinned_byte = static_cast<char*>(pinned);
  std::set<char> seen;
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    set_deferral(seed);
    char plain = *pinned_byte = 1, back = 0;
    EXPECT_EQ(cudaMemcpyAsync(there, pinned, 1, cudaMemcpyDefault, main_), cudaSuccess);
    EXPECT_EQ(cudaMemcpyAsync(there + 1, &plain, 1, cudaMemcpyDefault, main_), cudaSuccess);
    plain = *pinned_byte = 2;
    EXPECT_EQ(cudaMemcpyAsync(&back, there + 1, 1, cudaMemcpyDefault, main_), cudaSuccess);
    EXPECT_EQ(back, 1) << "the call waits where the host's memory is not pinned";
    seen.insert(*there);
  }
  set_deferral(0);
  EXPECT_THAT(seen, ElementsAre(1, 2));
  EXPECT_EQ(cudaFree(device), cudaSuccess);
  EXPECT_EQ(cudaFreeHost(pinned), cudaSuccess);
}

// So a fill may be done later than what a non-blocking stream was given after it.
TEST_F(FakeRuntime, DeferredFillsOfTheDefaultStreamMayEndAfterTheirCall) {
  void* device = nullptr;
  ASSERT_EQ(cudaMalloc(&device, 1), cudaSuccess);
  auto* const there = static_cast<char*>(device);
  std::set<char> seen;
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    set_deferral(seed);
    *there = 1;
    EXPECT_EQ(cudaMemset(device, 2, 1), cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(main_), cudaSuccess);
    seen.insert(*there);
    EXPECT_EQ(cudaStreamSynchronize(nullptr), cudaSuccess);
    EXPECT_EQ(*there, 2);
  }
  set_deferral(0);
  EXPECT_THAT(seen, ElementsAre(1, 2));
  EXPECT_EQ(cudaFree(device), cudaSuccess);
}

TEST_F(FakeRuntime, DeviceMemoryIsNaNAndBounded) {
  set_device_memory(1000);
  void *first = nullptr, *second = nullptr;
  ASSERT_EQ(cudaMalloc(&first, 600), cudaSuccess);
  EXPECT_TRUE(std::isnan(static_cast<float*>(first)[149]));
  EXPECT_EQ(cudaMalloc(&second, 401), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaPeekAtLastError(), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaGetLastError(), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  std::size_t free = 0, total = 0;
  EXPECT_EQ(cudaMemGetInfo(&free, &total), cudaSuccess);
  EXPECT_EQ(free, 400U);
  EXPECT_EQ(live().bytes, 600U);
  EXPECT_EQ(cudaFreeHost(first), cudaErrorInvalidValue) << "it is not the host's";
  EXPECT_EQ(cudaFree(first), cudaSuccess);
  EXPECT_EQ(cudaFree(first), cudaErrorInvalidValue);
  set_device_memory(std::size_t{8} << 30);
}

TEST_F(FakeRuntime, CopiesStayWithinTheirMemory) {
  std::vector<int> host{1, 2, 3, 4};
  void* device = nullptr;
  ASSERT_EQ(cudaMalloc(&device, 16), cudaSuccess);
  EXPECT_EQ(cudaMemcpyAsync(device, host.data(), 16, cudaMemcpyHostToDevice, main_), cudaSuccess);
  EXPECT_EQ(cudaMemcpy(device, host.data(), 17, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpy(host.data(), host.data(), 16, cudaMemcpyDeviceToHost),
            cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemsetAsync(device, 0, 4, main_), cudaSuccess);
  EXPECT_EQ(cudaMemcpy(host.data(), device, 16, cudaMemcpyDeviceToHost), cudaSuccess);
  EXPECT_THAT(host, ElementsAre(0, 2, 3, 4));
  cudaPointerAttributes attributes{};
  EXPECT_EQ(cudaPointerGetAttributes(&attributes, static_cast<char*>(device) + 15), cudaSuccess);
  EXPECT_EQ(attributes.type, cudaMemoryTypeDevice);
  EXPECT_EQ(cudaPointerGetAttributes(&attributes, host.data()), cudaSuccess);
  EXPECT_EQ(attributes.type, cudaMemoryTypeUnregistered);
  EXPECT_EQ(cudaFree(device), cudaSuccess);
}

TEST_F(FakeRuntime, AFailureComesWhenItIsAskedFor) {
  fail_next("cudaMemGetInfo", cudaErrorLaunchFailure, 1);
  std::size_t free = 0, total = 0;
  EXPECT_EQ(cudaMemGetInfo(&free, &total), cudaSuccess);
  EXPECT_EQ(cudaMemGetInfo(&free, &total), cudaErrorLaunchFailure);
  EXPECT_EQ(cudaMemGetInfo(&free, &total), cudaSuccess);
  EXPECT_EQ(calls("cudaMemGetInfo"), 3U);
}

TEST_F(FakeRuntime, ACaptureRecordsAndItsGraphReplays) {
  begin();
  EXPECT_EQ(note(main_, "a"), cudaSuccess);
  wait(side_, fork_, main_);
  EXPECT_EQ(note(side_, "b"), cudaSuccess);
  EXPECT_EQ(note(main_, "c"), cudaSuccess);
  wait(main_, join_, side_);
  EXPECT_EQ(note(main_, "d"), cudaSuccess);
  cudaStreamCaptureStatus status{};
  EXPECT_EQ(cudaStreamIsCapturing(side_, &status), cudaSuccess);
  EXPECT_EQ(status, cudaStreamCaptureStatusActive);
  cudaGraph_t graph = nullptr;
  ASSERT_EQ(cudaStreamEndCapture(main_, &graph), cudaSuccess);
  EXPECT_EQ(cudaStreamIsCapturing(side_, &status), cudaSuccess);
  EXPECT_EQ(status, cudaStreamCaptureStatusNone);
  EXPECT_TRUE(log_.empty()) << "nothing ran yet";
  EXPECT_THAT(node_names(graph), ElementsAre("a", "b", "c", "d"));
  std::size_t count = 0;
  EXPECT_EQ(cudaGraphGetNodes(graph, nullptr, &count), cudaSuccess);
  EXPECT_EQ(count, 4U);

  cudaGraphExec_t executable = nullptr;
  ASSERT_EQ(cudaGraphInstantiate(&executable, graph, 0), cudaSuccess);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  EXPECT_EQ(cudaGraphUpload(executable, main_), cudaSuccess);
  EXPECT_EQ(cudaGraphLaunch(executable, main_), cudaSuccess);
  EXPECT_THAT(log_, ElementsAre("a", "b", "c", "d"));
  // b and c wait only for a: schedules may order them either way, but change nothing else.
  std::set<std::vector<std::string>> orders;
  for (std::uint64_t seed = 1; seed < 20; ++seed) {
    simt::set_schedule(seed);
    log_.clear();
    EXPECT_EQ(cudaGraphLaunch(executable, main_), cudaSuccess);
    orders.insert(log_);
  }
  EXPECT_THAT(orders,
              ElementsAre(ElementsAre("a", "b", "c", "d"), ElementsAre("a", "c", "b", "d")));
  EXPECT_EQ(runs("d"), 20U);
  EXPECT_EQ(cudaGraphExecDestroy(executable), cudaSuccess);
}

TEST_F(FakeRuntime, ACaptureKnowsNothingOfTheOneBefore) {
  for (const std::size_t works : {3U, 1U}) {
    begin();
    for (std::size_t i = 0; i < works; ++i) EXPECT_EQ(note(main_, "a"), cudaSuccess);
    wait(side_, fork_, main_);
    EXPECT_EQ(note(side_, "b"), cudaSuccess);
    wait(main_, join_, side_);
    cudaGraph_t graph = nullptr;
    ASSERT_EQ(cudaStreamEndCapture(main_, &graph), cudaSuccess);
    cudaGraphExec_t executable = nullptr;
    ASSERT_EQ(cudaGraphInstantiate(&executable, graph, 0), cudaSuccess);
    EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
    log_.clear();
    EXPECT_EQ(cudaGraphLaunch(executable, main_), cudaSuccess);
    EXPECT_EQ(log_.size(), works + 1);
    EXPECT_EQ(cudaGraphExecDestroy(executable), cudaSuccess);
  }
}

TEST_F(FakeRuntime, AForkMustBeJoined) {
  begin();
  wait(side_, fork_, main_);
  EXPECT_EQ(note(side_, "b"), cudaSuccess);
  EXPECT_EQ(end(), cudaErrorStreamCaptureUnjoined);
  EXPECT_EQ(note(side_, "now"), cudaSuccess) << "both streams are free again";
  EXPECT_THAT(log_, ElementsAre("now"));
}

TEST_F(FakeRuntime, WhatACaptureForbidsEndsIt) {
  void* memory = nullptr;
  ASSERT_EQ(cudaMalloc(&memory, 4), cudaSuccess);
  ASSERT_EQ(cudaEventRecord(join_, side_), cudaSuccess);
  const std::vector<std::function<cudaError_t()>> forbidden{
      [] {
        void* more = nullptr;
        return cudaMalloc(&more, 4);
      },
      [&] { return cudaFree(memory); },
      [&] { return cudaMemset(memory, 0, 4); },
      [&] { return cudaMemcpy(memory, "abc", 4, cudaMemcpyHostToDevice); },
      [&] { return cudaStreamSynchronize(main_); },
      [&] { return cudaStreamQuery(main_); },
      [&] { return cudaEventSynchronize(join_); },
      [] { return cudaDeviceSynchronize(); },
  };
  for (std::size_t i = 0; i < forbidden.size(); ++i) {
    begin();
    EXPECT_EQ(forbidden[i](), cudaErrorStreamCaptureUnsupported) << i;
    EXPECT_EQ(note(main_, "a"), cudaErrorStreamCaptureInvalidated) << i;
    EXPECT_EQ(end(), cudaErrorStreamCaptureInvalidated) << i;
    EXPECT_EQ(note(main_, "a"), cudaSuccess) << i;
  }
  begin();
  EXPECT_EQ(cudaStreamSynchronize(side_), cudaSuccess) << "another stream may be waited for";
  EXPECT_EQ(end(), cudaSuccess);
  EXPECT_EQ(cudaFree(memory), cudaSuccess);
}

TEST_F(FakeRuntime, OnlyAGlobalCaptureBindsOtherThreads) {
  for (const auto mode : {cudaStreamCaptureModeGlobal, cudaStreamCaptureModeThreadLocal,
                          cudaStreamCaptureModeRelaxed}) {
    begin(mode);
    cudaError_t elsewhere{};
    std::thread([&] { elsewhere = cudaDeviceSynchronize(); }).join();
    const bool forbidden = mode == cudaStreamCaptureModeGlobal;
    EXPECT_EQ(elsewhere, forbidden ? cudaErrorStreamCaptureUnsupported : cudaSuccess);
    EXPECT_EQ(end(), forbidden ? cudaErrorStreamCaptureInvalidated : cudaSuccess);
  }
}

TEST_F(FakeRuntime, CapturesKeepTheirStreamsAndEventsApart) {
  EXPECT_EQ(cudaEventRecord(join_, side_), cudaSuccess);
  begin();
  EXPECT_EQ(cudaStreamBeginCapture(main_, cudaStreamCaptureModeGlobal), cudaErrorIllegalState);
  EXPECT_EQ(cudaStreamWaitEvent(main_, join_, 0), cudaErrorStreamCaptureIsolation);
  EXPECT_EQ(end(), cudaErrorStreamCaptureInvalidated);

  begin();
  wait(side_, fork_, main_);
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(side_, &graph), cudaErrorStreamCaptureUnmatched);
  EXPECT_EQ(end(), cudaErrorStreamCaptureInvalidated);

  begin();
  ASSERT_EQ(cudaStreamBeginCapture(side_, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  EXPECT_EQ(cudaEventRecord(fork_, main_), cudaSuccess);
  EXPECT_EQ(cudaStreamWaitEvent(side_, fork_, 0), cudaErrorStreamCaptureMerge);
  EXPECT_EQ(end(), cudaErrorStreamCaptureInvalidated);
  EXPECT_EQ(cudaStreamEndCapture(side_, &graph), cudaErrorStreamCaptureInvalidated);
  EXPECT_EQ(cudaEventSynchronize(fork_), cudaErrorCapturedEvent);
}

TEST_F(FakeRuntime, AnInjectedFailureAtTheEndEndsTheCapture) {
  begin();
  fail_next("cudaStreamEndCapture", cudaErrorMemoryAllocation);
  EXPECT_EQ(end(), cudaErrorMemoryAllocation);
  EXPECT_EQ(note(main_, "a"), cudaSuccess);
  EXPECT_EQ(runs("a"), 1U);
}

TEST_F(FakeRuntime, OnlyTimedEventsMeasureTime) {
  cudaEvent_t start = nullptr, stop = nullptr;
  ASSERT_EQ(cudaEventCreateWithFlags(&start, cudaEventDefault), cudaSuccess);
  ASSERT_EQ(cudaEventCreateWithFlags(&stop, cudaEventDefault), cudaSuccess);
  float ms = -1;
  EXPECT_EQ(cudaEventElapsedTime(&ms, start, stop), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaEventRecord(start, main_), cudaSuccess);
  EXPECT_EQ(cudaEventRecord(stop, main_), cudaSuccess);
  EXPECT_EQ(cudaEventElapsedTime(&ms, start, stop), cudaSuccess);
  EXPECT_GE(ms, 0);
  EXPECT_EQ(cudaEventRecord(fork_, main_), cudaSuccess);
  EXPECT_EQ(cudaEventElapsedTime(&ms, start, fork_), cudaErrorInvalidResourceHandle);
  for (auto* event : {start, stop}) EXPECT_EQ(cudaEventDestroy(event), cudaSuccess);
}

TEST_F(FakeRuntime, StatusesHaveNames) {
  EXPECT_STREQ(cudaGetErrorName(cudaErrorStreamCaptureUnjoined), "cudaErrorStreamCaptureUnjoined");
  EXPECT_STREQ(cudaGetErrorString(cudaErrorMemoryAllocation), "out of memory");
  cudaDeviceProp properties{};
  EXPECT_EQ(cudaGetDeviceProperties(&properties, 1), cudaErrorInvalidDevice);
  EXPECT_EQ(cudaGetDeviceProperties(&properties, 0), cudaSuccess);
  EXPECT_EQ(properties.major, 9);
  EXPECT_EQ(cudaSetDevice(1), cudaErrorInvalidDevice);
}

}  // namespace
}  // namespace warpstep::fake_cuda
