// NVML, the driver's library that tells of the GPUs while they work. It is loaded at run time;
// without it, or without one of its functions, less is told and nothing fails.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "profiler/sources/sampler_proc.h"

namespace warpstep::profiler {

// The functions used, in NVML's own signatures (its header comes with drivers' packages only, its
// binary interface is stable); results are nvmlReturn_t. A test fills in its own.
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
  int (*count)(unsigned*) = nullptr;
  int (*handle)(unsigned index, Handle*) = nullptr;
  int (*name)(Handle, char* text, unsigned bytes) = nullptr;
  int (*utilisation)(Handle, Utilisation*) = nullptr;
  int (*memory)(Handle, Memory*) = nullptr;
  OfUnsigned power = nullptr;                                           // mW
  int (*temperature)(Handle, int sensor, unsigned*) = nullptr;          // C; sensor 0: the chip
  int (*clock)(Handle, int domain, unsigned*) = nullptr;                // MHz; 1: SM, 2: memory
  int (*max_clock)(Handle, int domain, unsigned*) = nullptr;            // MHz
  int (*throttle_reasons)(Handle, unsigned long long*) = nullptr;       // bits
  OfUnsigned power_limit = nullptr;                                     // mW, as enforced
  OfUnsigned persistence = nullptr;                                     // 1: on
  int (*ecc)(Handle, unsigned* now, unsigned* at_next_boot) = nullptr;  // 1: on
};

// From libnvidia-ml.so.1; functions that it lacks stay null. Without the library all are, and `why`
// is a sentence. The library stays loaded.
NvmlFunctions load_nvml(std::string* why);

// The GPUs through NVML. One thread at a time.
class Nvml {
 public:
  explicit Nvml(const NvmlFunctions& functions);
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  // What every GPU tells now, under the names that sampler.h lists. A question that failed three
  // times in a row is not asked again.
  std::vector<Metric> read();

  struct Gpu {
    std::string name;
    double power_limit_w = 0;  // 0, like the following: not told
    unsigned sm_clock_mhz = 0, memory_clock_mhz = 0;
    unsigned max_sm_clock_mhz = 0, max_memory_clock_mhz = 0;
    int persistence = -1, ecc = -1;  // 1: on, 0: off, -1: not told
  };
  std::vector<Gpu> describe();
  std::string driver_version() const;  // empty: not told

  // A sentence each, once, since the last call.
  std::vector<std::string> take_notes();

 private:
  struct Question {
    const char* what;  // the end of the metric's name
    // An nvmlReturn_t.
    int (*ask)(const NvmlFunctions& functions, NvmlFunctions::Handle gpu, double* answer);
  };
  static const std::array<Question, 7> questions;
  struct Device {
    unsigned index = 0;
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
