#include "kernels/cuda/autotune.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <random>

#include "engine/core/error.h"
#include "kernels/cuda/check.h"

namespace warpstep::cuda {
namespace {

constexpr int warm_ups = 2;             // load modules, fill the cache
constexpr int enqueues_per_replay = 4;  // so that launching the graph (a few us) hardly counts
constexpr int replays = 11;
constexpr double hopeless = 2;  // times the best: not worth ten more replays

double median(std::vector<double> values) {
  const auto middle = values.begin() + std::ssize(values) / 2;
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

Stopwatch::Stopwatch() : start_(make_event(true)), stop_(make_event(true)) {}

std::optional<double> Stopwatch::median_us(const Enqueue& enqueue, double best_us) {
  try {
    return replay(enqueue, best_us);
  } catch (const DeviceLost&) {
    throw;
  } catch (const DeviceError&) {
    ignore(cudaGetLastError());  // clear an error of this candidate
    wait();                      // an error of the device itself persists and is thrown here
    return std::nullopt;
  }
}

std::string Stopwatch::why_not(const Enqueue& enqueue) {
  try {
    enqueue(stream_);
  } catch (const DeviceLost&) {
    throw;
  } catch (const OutOfDeviceMemory&) {
    ignore(cudaGetLastError());
    wait();
    throw;
  } catch (const DeviceError& error) {
    const bool lacks_memory = cudaGetLastError() == cudaErrorMemoryAllocation || is_nearly_full();
    wait();
    if (lacks_memory) fail<OutOfDeviceMemory>("{}", error.what());
    return error.what();
  }
  wait();
  return {};
}

// Whatever fails here was accepted when it was enqueued: the device is lost.
void Stopwatch::wait() {
  try {
    stream_.wait();
  } catch (const DeviceError& error) {
    fail<DeviceLost>("{}", error.what());
  }
}

std::optional<double> Stopwatch::replay(const Enqueue& enqueue, double best_us) {
  for (int i = 0; i < warm_ups; ++i) enqueue(stream_);
  wait();
  const GraphExecHandle graph = capture(stream_, [&] {
    for (int i = 0; i < enqueues_per_replay; ++i) enqueue(stream_);
  });
  std::vector<double> times_us;
  for (int i = 0; i < replays; ++i) {
    check(cudaEventRecord(start_.get(), stream_.handle()), "cudaEventRecord");
    check(cudaGraphLaunch(graph.get(), stream_.handle()), "cudaGraphLaunch");
    check(cudaEventRecord(stop_.get(), stream_.handle()), "cudaEventRecord");
    check(cudaEventSynchronize(stop_.get()), "cudaEventSynchronize");
    float elapsed_ms = 0;
    check(cudaEventElapsedTime(&elapsed_ms, start_.get(), stop_.get()), "cudaEventElapsedTime");
    times_us.push_back(1000.0 * static_cast<double>(elapsed_ms) / enqueues_per_replay);
    // The first replay also uploads the graph, so that only a later one can end the measurement.
    if (i == 1 && times_us.back() > hopeless * best_us) return std::nullopt;
  }
  return median(std::move(times_us));
}

std::optional<std::size_t> fastest(Stopwatch& stopwatch, const std::vector<Enqueue>& candidates) {
  std::optional<std::size_t> best;
  double best_us = std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    const std::optional<double> us = stopwatch.median_us(candidates[i], best_us);
    if (!us || *us >= best_us) continue;
    best = i;
    best_us = *us;
  }
  return best;
}

std::optional<std::size_t> first_to_run(Stopwatch& stopwatch,
                                        const std::vector<Enqueue>& candidates, std::string& why) {
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    const std::string reason = stopwatch.why_not(candidates[i]);
    if (reason.empty()) return i;
    why += (why.empty() ? "" : "; ") + reason;
  }
  return std::nullopt;
}

std::optional<Chosen> fastest_or_first(Stopwatch& stopwatch, const std::vector<Enqueue>& candidates,
                                       bool measures, std::string& why) {
  if (measures)
    if (const auto best = fastest(stopwatch, candidates)) return Chosen{*best, true};
  const auto first = first_to_run(stopwatch, candidates, why);
  return first ? std::optional(Chosen{*first, false}) : std::nullopt;
}

std::shared_ptr<std::byte> random_values(DType dtype, std::size_t bytes) {
  constexpr std::size_t block_bytes = std::size_t{4} << 20;  // repeated: larger than any tile
  // One word is one f32 or two 16-bit values: random sign and mantissa, and the exponent of 0.5.
  std::uint32_t mantissa_and_sign = 0x807fffff, exponent = 0x3f000000;
  if (dtype == DType::f16) mantissa_and_sign = 0x83ff83ff, exponent = 0x38003800;
  if (dtype == DType::bf16) mantissa_and_sign = 0x807f807f, exponent = 0x3f003f00;
  std::mt19937 random(1);
  std::vector<std::uint32_t> block(std::min(block_bytes, bytes) / 4 + 1);
  for (std::uint32_t& word : block) {
    word = (static_cast<std::uint32_t>(random()) & mantissa_and_sign) | exponent;
  }
  std::shared_ptr<std::byte> memory = allocate_device(bytes);
  for (std::size_t begin = 0; begin < bytes; begin += block_bytes) {
    copy_now(memory.get() + begin, block.data(), std::min(block_bytes, bytes - begin));
  }
  return memory;
}

}  // namespace warpstep::cuda
