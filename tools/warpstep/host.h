// The machine that the program runs on, for a run's records and `warpstep info`.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/core/cpus.h"
#include "engine/run/backend.h"
#include "profiler/sources/sampler_nvml.h"
#include "tools/warpstep/json.h"

namespace warpstep::tools {

// The ceilings of the roofline, measured and not from a data sheet:
// {"flops_per_second": {PRECISION: x}, "bytes_per_second": y, "how": text}: a large matrix product
// and a large relu on this backend, the best of a few runs each. Takes some tenths of a second;
// empty if it cannot be measured, without a part that would take too much of the memory that is
// free (peaks.h).
Json measure_peaks(const std::shared_ptr<Backend>& backend, const std::string& precision);

// The GPU that a backend computes on, for NVML; empty where the host computes. Other GPUs of the
// machine, which may be idle or another program's, say nothing about a run.
std::vector<profiler::GpuPlace> gpu_of(const Backend& backend);

// What a measurement depends on: profiler::machine_stamp() with the instruction set in use,
// {"cpu": {..., "instruction_set": "AVX-512 with AMX"}, ...}. `allowed`: the CPUs of the process
// before it pinned its threads; `gpus`: gpu_of() its backend.
Json machine_record(const CpuSet& allowed, const std::vector<profiler::GpuPlace>& gpus);

struct Host {
  std::string name;
  std::string system;  // "Debian GNU/Linux 12 (bookworm), Linux 6.1.0"
  std::string cpu;     // the model's name as the kernel gives it
  std::string
      vector_instructions;  // the widest of "amx", "avx512", "avx2", "sse", ...; or "unknown"
  int cores = 0;            // hardware threads that this process may run on
  int cores_of_machine = 0;
  std::uint64_t memory_bytes = 0;  // for this process: the control group's limit if lower
  std::uint64_t memory_of_machine_bytes = 0;
};

// Reads /proc, /sys and /etc; values that cannot be read are 0 or "unknown".
Host host();

}  // namespace warpstep::tools
