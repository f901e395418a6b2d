// The names of activities. Each function returns the id of a record::Name.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "profiler/session/session.h"
#include "profiler/sources/cupti_api.h"

namespace warpstep::profiler {

std::uint32_t name_kernel(const std::string& mangled);
// "cudaLaunchKernel" of "cudaLaunchKernel_ptsz_v7000".
std::uint32_t name_call(const std::string& versioned);
std::uint32_t name_copy(const Activity& copy);    // "Memcpy HtoD (Pinned -> Device)"
std::uint32_t name_set(const Activity& set);      // "Memset (Device)"
std::uint32_t name_sync(std::uint32_t type);      // a CUpti_ActivitySynchronizationType
std::uint32_t name_overhead(std::uint32_t kind);  // a CUpti_ActivityOverheadKind
std::uint32_t name_graph();

}  // namespace warpstep::profiler
