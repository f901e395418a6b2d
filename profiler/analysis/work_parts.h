// The parts of find_work().
#pragma once

#include <cstdint>
#include <vector>

#include "profiler/analysis/program_view.h"
#include "profiler/analysis/scope.h"
#include "profiler/analysis/work.h"

namespace warpstep::profiler::analysis {

// What was recorded of a call in the windows.
struct CallTimes {
  std::uint64_t count = 0;             // runs
  std::uint64_t total_ns = 0;          // of the device, or of the host that computes
  std::uint64_t kernels_ns = 0;        // of them, kernels
  std::uint64_t host_ns = 0;           // enqueuing
  std::vector<std::uint64_t> step_ns;  // of each step in which it ran, sorted
  bool has_kernels = false, has_tensor_kernels = false;
};

struct AllTimes {
  std::vector<CallTimes> calls;  // by index
  CallTimes others;              // of no call
};
AllTimes find_times(const Session& session, const StepIndex& steps, std::size_t calls);

// Of the session's program; without one, of what was recorded: as many as the largest index says.
std::vector<ProgramCall> known_calls(const Session& session);

// Linear between the two nearest; `zeros` more values are 0. `sorted` may be empty.
double quantile(const std::vector<std::uint64_t>& sorted, std::size_t zeros, double q);

Peaks find_peaks(const Session& session);
// The shortest time in which a machine of these peaks does it (Williams et al., "Roofline", 2009:
// FLOP/s <= min(peak, intensity * bandwidth)), in ns; 0: not known.
double least_ns(double flops, double bytes, const Peaks& peaks);

std::vector<CallRow> call_rows(const Session& session, const StepIndex& steps,
                               const std::vector<ProgramCall>& calls, const AllTimes& times,
                               const Peaks& peaks);
std::vector<LayerRow> layer_rows(const std::vector<CallRow>& calls, const StepIndex& steps,
                                 const Peaks& peaks);
std::vector<OpRow> op_rows(const std::vector<CallRow>& calls, const StepIndex& steps);
std::vector<KernelRow> kernel_rows(const Session& session, const StepIndex& steps,
                                   const std::vector<ProgramCall>& calls);
std::vector<HostRow> host_rows(const Session& session, const StepIndex& steps);

inline double ratio(double part, double whole) {
  return whole > 0 ? part / whole : 0;
}

}  // namespace warpstep::profiler::analysis
