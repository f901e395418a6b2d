// NVML, the driver's library that reports the state of GPUs. It is loaded at run time; without it,
// or without one of its functions, fewer values are reported and nothing fails.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "profiler/sources/sampler_proc.h"

namespace warpstep::profiler {

// A GPU that is asked about. NVML numbers all GPUs of the machine in an order of its own, so that
// only its place on the bus says which one a number of CUDA's means.
struct GpuPlace {
  unsigned number = 0;  // in the names of metrics: CUDA's ordinal
  std::string bus;      // "0000:1b:00.0"
};

// The functions used, with NVML's signatures (its header comes only with driver packages, its
// binary interface is stable); results are nvmlReturn_t. Tests supply their own.
struct NvmlFunctions {
  using Handle = void*;
  struct Utilisation {
    unsigned gpu, memory;  // %
  };
  struct Memory {
    unsigned long long total, free, used;  // bytes
  };
  using OfUnsigned = int (*)(Handle, unsigned*);

  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  const char* (*error_string)(int result) = nullptr;
  int (*driver_version)(char* text, unsigned bytes) = nullptr;
  int (*handle_at)(const char* bus, Handle*) = nullptr;
  int (*name)(Handle, char* text, unsigned bytes) = nullptr;
  int (*utilisation)(Handle, Utilisation*) = nullptr;
  int (*memory)(Handle, Memory*) = nullptr;
  OfUnsigned power = nullptr;                                           // mW
  int (*temperature)(Handle, int sensor, unsigned*) = nullptr;          // C; sensor 0: the chip
  int (*clock)(Handle, int domain, unsigned*) = nullptr;                // MHz; 1: SM, 2: memory
  int (*max_clock)(Handle, int domain, unsigned*) = nullptr;            // MHz
  int (*application_clock)(Handle, int domain, unsigned*) = nullptr;    // MHz, as set
  int (*throttle_reasons)(Handle, unsigned long long*) = nullptr;       // bits
  OfUnsigned power_limit = nullptr;                                     // mW, as enforced
  OfUnsigned persistence = nullptr;                                     // 1: on
  int (*ecc)(Handle, unsigned* now, unsigned* at_next_boot) = nullptr;  // 1: on
};

// From libnvidia-ml.so.1, which stays loaded; functions that it lacks stay null. Without the
// library all are null, and `why` says so.
NvmlFunctions load_nvml(std::string* why);

// GPUs through NVML. For one thread at a time.
class Nvml {
 public:
  Nvml(const NvmlFunctions& functions, const std::vector<GpuPlace>& gpus);
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  // The current values of each GPU, under the names that sampler.h lists. A query that failed
  // three times in a row is not repeated.
  std::vector<Metric> read();

  struct Gpu {
    unsigned number = 0;  // GpuPlace's
    std::string name;
    double power_limit_w = 0;  // 0: unknown, also in the following
    unsigned sm_clock_mhz = 0, memory_clock_mhz = 0;
    unsigned application_sm_clock_mhz = 0;  // not on all products
    unsigned max_sm_clock_mhz = 0, max_memory_clock_mhz = 0;
    int persistence = -1, ecc = -1;  // 1: on, 0: off, -1: unknown
  };
  std::vector<Gpu> describe();
  std::string driver_version() const;  // empty: unknown

  // New notes since the last call, one sentence each.
  std::vector<std::string> take_notes();

 private:
  struct Query {
    const char* what;  // the end of the metric's name
    // An nvmlReturn_t.
    int (*run)(const NvmlFunctions& functions, NvmlFunctions::Handle gpu, double* value);
  };
  static const std::array<Query, 7> queries;
  struct Device {
    unsigned number = 0;
    NvmlFunctions::Handle handle = nullptr;
    std::array<int, 7> failures{};  // in a row
  };

  std::string text_of(int result) const;

  NvmlFunctions functions_;
  bool started_ = false;
  std::vector<Device> devices_;
  std::vector<std::string> notes_;
};

}  // namespace warpstep::profiler
