// A loader simulated: workers that make samples ahead, a trainer that takes batches, and what they
// share.
//
// A sample is read (a latency, then bytes that share the source's bandwidth with the other readers)
// and then made on a core. Threads that want a core share `cores` by their weights, as Linux's fair
// scheduler does, at most one each. `T` threads of kernels advance together, so that a step takes
// as much longer as their share is smaller. Between two events all rates are constant.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace warpstep::profiler {

struct SampleWork {
  double latency_ns = 0;  // of its reads: neither a core nor bandwidth makes it shorter
  double bytes = 0;       // of its reads, through the shared source
  double cpu_ns = 0;      // on a core of its own
};

struct ReplaySetting {
  int workers = 1;
  int prefetch = 2;  // batches ready or in the making beyond the one in use
  std::int64_t batch = 1;
  double cores = 0;                // 0: no limit
  int kernel_threads = 0;          // that the step wants cores for; 0: a device computes it
  double worker_weight = 1;        // of a worker where a thread of kernels has 1
  double others = 0;               // threads of other programs that always want a core, of weight 1
  double ns_per_byte = 0;          // of the source, for all readers together; 0: no limit
  std::vector<double> slowness{};  // by worker: how often as long it takes; 1 for all others
};

struct ReplayResult {
  // Per step, after the first `prefetch` ones:
  double step_ns = 0;  // all of it
  double wait_ns = 0;
  double busy_ns = 0;                   // of all workers, per batch
  std::vector<std::uint64_t> waits_ns;  // of each step
};

// `steps_ns`: each step on free cores, without its wait. `pauses_ns`: before each step, as many or
// none: the trainer does something else, and the workers go on. Samples and steps are repeated as
// often as needed. Nothing for nothing.
ReplayResult replay(std::span<const SampleWork> samples, std::span<const double> steps_ns,
                    const ReplaySetting& setting, std::size_t steps,
                    std::span<const double> pauses_ns = {});

}  // namespace warpstep::profiler
