#include "profiler/analysis/work.h"

#include "profiler/analysis/work_parts.h"

namespace warpstep::profiler {

using namespace analysis;

Work find_work(const Session& session) {
  const StepIndex steps(session);
  const std::vector<ProgramCall> calls = known_calls(session);
  const AllTimes times = find_times(session, steps, calls.size());
  Work work;
  work.peaks = find_peaks(session);
  work.calls = call_rows(session, steps, calls, times, work.peaks);
  work.layers = layer_rows(work.calls, steps, work.peaks);
  work.ops = op_rows(work.calls, steps);
  work.kernels = kernel_rows(session, steps, calls);
  work.host = host_rows(session, steps);
  double of_calls = 0;
  for (const CallTimes& call : times.calls) of_calls += static_cast<double>(call.kernels_ns);
  work.attributed = ratio(of_calls, of_calls + static_cast<double>(times.others.kernels_ns));
  return work;
}

}  // namespace warpstep::profiler
