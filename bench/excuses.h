// Calls that may be slow, and why: bench/excused_calls.txt, whose head describes its format.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "engine/core/cpu_isa.h"

namespace warpstep::bench {

struct Excuse {
  std::string pattern;     // of "MODEL@IMAGE/CALL", with * and ?
  std::string isa;         // that it holds for: avx512, avx2, sse41, neon or any
  double least_share = 0;  // of the roof; below this the call is not excused
  std::string reason;
  int line = 0;  // in the file

  bool matches(const std::string& call) const;
};

// Of the file, those for this instruction set. Throws UsageError with file and line.
std::vector<Excuse> read_excuses(const std::filesystem::path& file, CpuIsa isa);

}  // namespace warpstep::bench
