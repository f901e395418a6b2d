#include "profiler/sources/cupti_names.h"

#include <cupti.h>
#include <cxxabi.h>
#include <fmt/format.h>

#include <array>
#include <cstdlib>
#include <memory>
#include <string_view>

#include "engine/core/record.h"
#include "profiler/sources/cupti_api.h"
#include "profiler/sources/device_trace.h"

namespace warpstep::profiler {
namespace {

std::uint32_t id_of(std::string_view text, Kind kind) {
  return record::Name(text, kind).id();
}

// Kineto's words, which other tools expect.
std::string_view copy_direction(std::uint8_t kind) {
  constexpr std::array<std::string_view, 11> directions{
      "", "HtoD", "DtoH", "HtoA", "AtoH", "AtoA", "AtoD", "DtoA", "DtoD", "HtoH", "PtoP"};
  return kind < directions.size() && kind != 0 ? directions[kind] : "Unknown";
}

std::string_view memory_kind_name(std::uint8_t kind) {
  constexpr std::array<std::string_view, 8> memories{"Unknown",       "Pageable",      "Pinned",
                                                     "Device",        "Array",         "Managed",
                                                     "Device Static", "Managed Static"};
  return kind < memories.size() ? memories[kind] : "Unknown";
}

}  // namespace

std::uint32_t name_kernel(const std::string& mangled) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> readable(
      abi::__cxa_demangle(mangled.c_str(), nullptr, nullptr, &status), &std::free);
  return id_of(status == 0 && readable ? std::string_view(readable.get()) : mangled, Kind::kernel);
}

std::uint32_t name_call(const std::string& versioned) {
  std::string_view name = versioned;
  const std::size_t version = name.rfind("_v");
  if (version != name.npos && version + 2 < name.size() &&
      name.find_first_not_of("0123456789", version + 2) == name.npos)
    name = name.substr(0, version);
  for (const std::string_view suffix : {"_ptsz", "_ptds"})
    if (name.ends_with(suffix)) name.remove_suffix(suffix.size());
  return id_of(name, Kind::host_api);
}

std::uint32_t name_copy(const Activity& copy) {
  return id_of(
      fmt::format("Memcpy {} ({} -> {})", copy_direction(copy.copy_kind),
                  memory_kind_name(copy.source_memory), memory_kind_name(copy.target_memory)),
      Kind::kernel);
}

std::uint32_t name_set(const Activity& set) {
  return id_of(fmt::format("Memset ({})", memory_kind_name(set.target_memory)), Kind::kernel);
}

std::uint32_t name_sync(std::uint32_t type) {
  switch (type) {
    case CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_EVENT_SYNCHRONIZE:
      return id_of("Event Synchronize", Kind::host_api);
    case CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_SYNCHRONIZE:
      return id_of("Stream Synchronize", Kind::host_api);
    case CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_CONTEXT_SYNCHRONIZE:
      return id_of("Context Synchronize", Kind::host_api);
    default: return id_of("Synchronize", Kind::host_api);
  }
}

std::uint32_t name_overhead(std::uint32_t kind) {
  constexpr std::array<std::string_view, 9> above{"Overhead",
                                                  "Activity Buffer Flush",
                                                  "Instrumentation",
                                                  "Resource",
                                                  "Runtime Triggered Module Loading",
                                                  "Lazy Function Loading",
                                                  "Command Buffer Full",
                                                  "Activity Buffer Request",
                                                  "UVM Activity Init"};
  if (kind == CUPTI_ACTIVITY_OVERHEAD_DRIVER_COMPILER)
    return id_of("Driver Compiler", Kind::host_api);
  return id_of(above[(kind >> 16) < above.size() ? kind >> 16 : 0], Kind::host_api);
}

std::uint32_t name_graph() {
  return id_of("CUDA graph", Kind::kernel);
}

}  // namespace warpstep::profiler
