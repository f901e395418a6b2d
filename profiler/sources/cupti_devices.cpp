#include <array>

#include "engine/core/record.h"
#include "profiler/sources/cupti_api.h"
#include "profiler/sources/cupti_devices.h"
#include "profiler/sources/device_trace.h"

namespace warpstep::profiler {
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
