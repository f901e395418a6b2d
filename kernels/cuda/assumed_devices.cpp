#include "kernels/cuda/assumed_devices.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <nlohmann/json.hpp>

#include "engine/core/error.h"
#include "engine/core/text.h"

namespace warpstep::cuda {
namespace {

constexpr std::int64_t mib = std::int64_t{1} << 20;

struct Device {
  std::string_view name, product;
  int compute_capability, multiprocessors;
  std::int64_t shared_bytes_per_block;  // the opt-in maximum
  int threads_per_multiprocessor, blocks_per_multiprocessor;
  int clock_khz, memory_clock_khz;
  std::int64_t l2_bytes, memory_bytes;
};

// Limits per multiprocessor are from the table of compute capabilities in CUDA's programming guide;
// the rest is from the products' data sheets; clocks are boost clocks.
constexpr std::array devices{
    Device{"sm_75", "Tesla T4", 75, 40, 65536, 1024, 16, 1590000, 5001000, 4 * mib, 15360 * mib},
    Device{"sm_80", "NVIDIA A100-SXM4-80GB", 80, 108, 166912, 2048, 32, 1410000, 1593000, 40 * mib,
           81920 * mib},
    Device{"sm_86", "NVIDIA GeForce RTX 3090", 86, 82, 101376, 1536, 16, 1695000, 9751000, 6 * mib,
           24576 * mib},
    Device{"sm_89", "NVIDIA L40S", 89, 142, 101376, 1536, 24, 2520000, 9001000, 96 * mib,
           46080 * mib},
    Device{"sm_90", "NVIDIA H200", 90, 132, 232448, 2048, 32, 1980000, 3201000, 60 * mib,
           143771 * mib},
    Device{"sm_100", "NVIDIA B200", 100, 148, 232448, 2048, 32, 1965000, 3996000, 126 * mib,
           183359 * mib},
    Device{"sm_120", "NVIDIA GeForce RTX 5090", 120, 170, 101376, 1536, 24, 2407000, 14001000,
           96 * mib, 32607 * mib},
};

const Device& find(std::string_view name) {
  const auto found = std::ranges::find(devices, name, &Device::name);
  if (found != devices.end()) return *found;
  const std::vector<std::string> names = assumed_devices();
  fail<UsageError>("unknown assumed device '{}'{}; use one of {}", name, suggestion(name, names),
                   fmt::join(names, ", "));
}

}  // namespace

std::vector<std::string> assumed_devices() {
  std::vector<std::string> names;
  for (const Device& device : devices) names.emplace_back(device.name);
  return names;
}

Settings assume_device(std::string_view name) {
  const Device& device = find(name);
  Settings settings;
  settings.assumed = device.name;
  settings.device_name = device.product;
  settings.multiprocessors = device.multiprocessors;
  settings.compute_capability = settings.kernel_capability = device.compute_capability;
  return settings;
}

std::string assumed_properties(std::string_view name) {
  const Device& device = find(name);
  return nlohmann::json{
      {"deviceName", device.product},
      {"deviceVer", device.compute_capability * 10},
      {"multiProcessorCount", device.multiprocessors},
      {"maxSharedMemoryPerBlockOptin", device.shared_bytes_per_block},
      {"maxThreadsPerSM", device.threads_per_multiprocessor},
      {"maxCtasPerSM", device.blocks_per_multiprocessor},
      {"smClockRateKHz", device.clock_khz},
      {"memClockRateKHz", device.memory_clock_khz},
      {"l2CacheSize", device.l2_bytes},
      {"totalGlobalMem", device.memory_bytes},
      // The same for all of them.
      {"cudaDeviceId", 0},
      {"driverVer", 13000},
      {"isTccDriver", 0},
      {"maxBlockSize", {1024, 1024, 64}},
      {"maxGridSize", {2147483647, 65535, 65535}},
      {"maxRegistersPerSM", 65536},
      {"maxSharedMemoryPerBlock", 49152},
      {"maxThreadsPerBlock", 1024},
      {"pciDeviceId", 0},
      {"regsPerBlock", 65536},
      {"reservedSharedMemoryPerBlock", device.compute_capability >= 80 ? 1024 : 0},
      {"supportCoopLaunch", 1},
      {"warpSize", 32}}
      .dump();
}

}  // namespace warpstep::cuda
