// A simulated NVML for tests: any number of GPUs, any result for each call.
#pragma once

#include <fmt/format.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <string>

#include "profiler/sources/sampler_nvml.h"

namespace warpstep::profiler::testing {

// GPU i draws 300.5 + i W, and so on: values below; it is at place(i). One at a time, as the
// functions share static state.
struct FakeNvml {
  static inline std::atomic<unsigned> count{1};
  static inline std::atomic<int> result{0};        // of every query
  static inline std::atomic<int> power_result{0};  // of the query for power, if not 0
  static inline std::atomic<int> init_result{0};
  static inline std::atomic<int> open{0};     // init less shutdown
  static inline std::atomic<int> queries{0};  // queries so far

  FakeNvml() { count = 1, result = power_result = init_result = open = queries = 0; }

  static std::string place(unsigned gpu) { return fmt::format("0000:{:02x}:00.0", gpu + 1); }

  static NvmlFunctions functions() {
    using Handle = NvmlFunctions::Handle;
    NvmlFunctions nvml;
    nvml.init = [] {
      if (init_result == 0) ++open;
      return init_result.load();
    };
    nvml.shutdown = [] {
      --open;
      return 0;
    };
    nvml.error_string = [](int code) {
      return code == 3 ? "Not Supported" : code == 6 ? "Not Found" : "GPU is lost";
    };
    nvml.driver_version = [](char* text, unsigned bytes) { return fill(text, bytes, "580.65.06"); };
    nvml.handle_at = [](const char* bus, Handle* to) {
      unsigned at = 0;
      if (std::sscanf(bus, "0000:%x:00.0", &at) != 1 || at == 0 || at > count) return 6;
      *to = reinterpret_cast<Handle>(std::uintptr_t{at});
      return 0;
    };
    nvml.name = [](Handle, char* text, unsigned bytes) { return fill(text, bytes, "NVIDIA H200"); };
    nvml.utilisation = [](Handle gpu, NvmlFunctions::Utilisation* to) {
      return give(to, NvmlFunctions::Utilisation{90 + index(gpu), 40});
    };
    nvml.memory = [](Handle gpu, NvmlFunctions::Memory* to) {
      return give(to, NvmlFunctions::Memory{1000, 300, 700 + index(gpu)});
    };
    nvml.power = [](Handle gpu, unsigned* to) {
      const int own = give(to, 300'500 + 1000 * index(gpu));
      return power_result != 0 ? power_result.load() : own;
    };
    nvml.temperature = [](Handle, int sensor, unsigned* to) {
      return give(to, sensor == 0 ? 55U : 0U);
    };
    nvml.clock = [](Handle, int domain, unsigned* to) {
      return give(to, domain == 1 ? 1755U : 3201U);
    };
    nvml.max_clock = [](Handle, int domain, unsigned* to) {
      return give(to, domain == 1 ? 1980U : 3202U);
    };
    nvml.application_clock = [](Handle, int domain, unsigned* to) {
      return give(to, domain == 1 ? 1830U : 3201U);
    };
    nvml.throttle_reasons = [](Handle, unsigned long long* to) { return give(to, 4ULL); };
    nvml.power_limit = [](Handle, unsigned* to) { return give(to, 700'000U); };
    nvml.persistence = [](Handle, unsigned* to) { return give(to, 1U); };
    nvml.ecc = [](Handle, unsigned* now, unsigned* next) { return give(now, 0U), give(next, 1U); };
    return nvml;
  }

 private:
  static unsigned index(NvmlFunctions::Handle gpu) {
    return static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(gpu) - 1);
  }
  template <class Value>
  static int give(Value* to, Value value) {
    ++queries;
    *to = value;
    return result;
  }
  static int fill(char* text, unsigned bytes, const char* value) {
    std::snprintf(text, bytes, "%s", value);
    return result;
  }
};

}  // namespace warpstep::profiler::testing
