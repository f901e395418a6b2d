// What a module of Warpstep's own, a backend or that of MPI, was built from. The engine calls its
// functions by their places in headers, so it refuses a module of another version: one that an
// earlier installation left, for example.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace warpstep {

struct ModuleBuild {
  const char* version = nullptr;  // "0.1.0"
  std::uint64_t interface = 0;    // mixed (plugin.h) from what the engine and the module exchange
};
using ModuleBuildEntry = const ModuleBuild* (*)();

// Why a module is not of this build, with what to do, by what its function `entry` returns; empty:
// it is. `what`: "backend", for the message.
std::string other_build(void* module, const std::filesystem::path& path, const std::string& what,
                        const char* entry, std::uint64_t interface);

}  // namespace warpstep
