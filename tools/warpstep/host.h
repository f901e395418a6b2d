// The machine that the program runs on, as a run's records and `warpstep info` name it.
#pragma once

#include <cstdint>
#include <string>

namespace warpstep::tools {

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
