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

// Kineto's words, which other tools look for.
std::string_view copy_direction(std::uint8_t kind) {
  constexpr std::array<std::string_view, 11> directions{
      "", "HtoD", "DtoH", "HtoA", "AtoH", "AtoA", "AtoD", "DtoA", "DtoD", "HtoH", "PtoP"};
  return kind < directions.size() && kind != 0 ? directions[kind] : "Unknown";
}

std::string_view memory_name(std::uint8_t kind) {
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
  return id_of(fmt::format("Memcpy {} ({} -> {})", copy_direction(copy.copy_kind),
                           memory_name(copy.source_memory), memory_name(copy.target_memory)),
               Kind::kernel);
}

std::uint32_t name_set(const Activity& set) {
  return id_of(fmt::format("Memset ({})", memory_name(set.target_memory)), Kind::kernel);
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

namespace {

Device describe(const CuptiApi& api, int ordinal, CUdevice handle) {
  const auto read = [&](CUdevice_attribute attribute) {
    int value = 0;
    const CUresult result = api.device_attribute(&value, attribute, handle);
    return result == CUDA_SUCCESS && value > 0 ? static_cast<std::uint32_t>(value) : 0U;
  };
  std::size_t memory = 0;
  if (api.device_total_memory(&memory, handle) != CUDA_SUCCESS) memory = 0;
  std::array<char, 256> name{};
  if (api.device_name(name.data(), static_cast<int>(name.size()) - 1, handle) != CUDA_SUCCESS)
    name = {'G', 'P', 'U'};
  return {
      .id = static_cast<std::uint32_t>(ordinal),
      .compute_major = read(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR),
      .compute_minor = read(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR),
      .multiprocessors = read(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT),
      .max_threads_per_block = read(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK),
      .max_threads_per_multiprocessor = read(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR),
      .max_blocks_per_multiprocessor = read(CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR),
      .registers_per_block = read(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK),
      .registers_per_multiprocessor = read(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR),
      .warp_size = read(CU_DEVICE_ATTRIBUTE_WARP_SIZE),
      .total_memory = memory,
      .shared_per_block = read(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK),
      .shared_per_block_optin = read(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN),
      .shared_per_multiprocessor = read(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR),
      .reserved_shared_per_block = read(CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK),
      .name = record::Name(name.data()).id(),
  };
}

}  // namespace

std::vector<Device> query_devices(const CuptiApi& api) {
  std::vector<Device> devices;
  int count = 0;
  if (!api.init || api.init(0) != CUDA_SUCCESS || api.device_count(&count) != CUDA_SUCCESS)
    return devices;
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    CUdevice handle = 0;
    if (api.device_get(&handle, ordinal) == CUDA_SUCCESS)
      devices.push_back(describe(api, ordinal, handle));
  }
  return devices;
}

std::vector<Device> query_devices() {
  return query_devices(load_cupti_api());
}

}  // namespace warpstep::profiler
