// The machine that the program runs on, as a run's records and `warpstep info` name it.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "engine/run/backend.h"

namespace warpstep::tools {

// What the device reaches at best: ceilings for the roofline, measured and not taken from a data
// sheet.

// {"flops_per_second": {PRECISION: x}, "bytes_per_second": y, "how": text}: a large matrix product
// and a large relu of this backend's own, the best of a few runs each. Takes some tenths of a
// second; empty where it cannot be measured.
nlohmann::ordered_json measure_peaks(const std::shared_ptr<Backend>& backend,
                                     const std::string& precision);

struct Host {
  std::string name;
  std::string system;  // "Debian GNU/Linux 12 (bookworm), Linux 6.1.0"
  std::string cpu;     // the model's name as the kernel gives it
  std::string
      vector_instructions;  // the widest of "amx", "avx512", "avx2", "sse", ...; or "unknown"
  int cores = 0;            // hardware threads that this process may run on
  int cores_of_machine = 0;
  std::uint64_t memory_bytes = 0;  // what this process may use: the control group's limit if lower
  std::uint64_t memory_of_machine_bytes = 0;
};

// Reads /proc, /sys and /etc; what cannot be read is 0 or "unknown".
Host host();

}  // namespace warpstep::tools
