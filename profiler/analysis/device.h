// A device's utilisation, occupancy and use of tensor cores; throttling.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "profiler/analysis/scope.h"
#include "profiler/session/session.h"

namespace warpstep::profiler {

// A GPU that throttled its clocks.
struct Throttle {
  std::uint32_t gpu = 0;
  double share = 0;  // of 1, of the samples
  std::string why;   // "power cap, thermal"
};

inline constexpr std::string_view power_cap = "power cap";  // as `why`: nothing else

// From the samples "gpu N throttle reasons", a mask of nvml.h's nvmlClocksEventReason*: those that
// slow a busy GPU, not idleness and not clocks set by a user.
std::vector<Throttle> throttled(const Session& session);

struct Launch {
  std::array<std::uint32_t, 3> grid{}, block{};
  std::uint32_t registers = 0;     // per thread
  std::uint32_t shared_bytes = 0;  // per block, static and dynamic
};

struct Occupancy {
  int blocks = 0;        // active on one multiprocessor at most
  double estimated = 0;  // of 1: threads of these, or of the grid's if fewer, over all that fit
  double waves = 0;      // the grid over what the device holds at once
};
// The rules of CUDA's occupancy calculator, with the opt-in limit of shared memory: a kernel above
// 48 KB is right too.
Occupancy occupancy(const Device& device, const Launch& launch);

// Of a kernel's grid; at most 2^30, as more than a device holds is as good as all.
std::uint64_t blocks_of(const Activity& kernel);

// By activity, its part of the time in which a device works, in ns: a moment is divided among the
// kernels that run then, where none does among the other work. A graph as a whole has no part where
// its kernels are recorded.
std::vector<double> divided_times(const Session& session);

// A kernel's name where there is little room: without its parameters, "void", unnamed namespaces
// and Warpstep's own.
std::string short_kernel_name(std::string_view kernel);

// Whether a kernel runs on tensor cores, by the names that NVIDIA's libraries give.
bool uses_tensor_cores(std::string_view kernel);

// From a GPU's own counters (open_pm_sampling()): means over the recorded steps, of 1. None: not
// sampled.
struct MeasuredShares {
  std::optional<double> sm_active;    // multiprocessors that had a warp
  std::optional<double> tensor_pipe;  // cycles in which it was active
  std::optional<double> dram;         // of its peak throughput
  bool any() const { return sm_active || tensor_pipe || dram; }
};
MeasuredShares measured_shares(const View& view, std::uint32_t device);

// Whether kernels were recorded: without them the figures computed from them are unknown.
bool has_kernels(const Session& session);

struct DeviceMetrics {  // over the recorded steps, without what lies between them
  std::uint32_t device = 0;
  std::string name;
  bool is_described = true;      // else the session has only its name: no multiprocessors
  bool of_windows = false;       // by torch_tb_profiler's rules (ReportRules)
  double utilization = 0;        // of 1: some kernel runs
  double sm_efficiency = 0;      // of 1: integral of min(1, blocks per multiprocessor)
  double occupancy = 0;          // of 1: estimated, weighted by time
  double tensor_core_share = 0;  // of 1, of the kernels' time but exchanges'
  double copy_share = 0;         // of 1: copies run
  std::vector<double> timeline;  // utilisation in at most 100 buckets
  std::uint64_t bucket_ns = 0;   // a power of 10 of us
  // Gaps between kernels inside steps.
  // The next launch was made after the device had run dry, and not because data came late.
  std::uint64_t launch_gap_ns = 0;
  std::uint64_t other_gap_ns = 0;
  MeasuredShares measured;
};
// One per device; on a session that computes on the host one for the host, where "kernels" are
// calls and the figures that only a GPU has are 0.
std::vector<DeviceMetrics> device_metrics(const View& view, const ReportRules& rules = {});

}  // namespace warpstep::profiler
