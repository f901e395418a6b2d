#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "profiler/analysis/device.h"

namespace warpstep::profiler {
namespace {

// The tables of cuda_occupancy.h; what it computes for compute capability 6.1 and later.
struct Rules {
  std::uint64_t register_unit = 256;  // allocated to a warp
  std::uint64_t partitions = 4;       // of a multiprocessor, with registers of their own
  std::uint64_t shared_unit = 256;    // bytes
  std::uint64_t most_registers = 255;
  bool has_optin = false;

  explicit Rules(const Device& device) {
    if (device.compute_major >= 7) most_registers = 256;
    if (device.compute_major >= 8) shared_unit = 128;
    has_optin = device.compute_major >= 7;
  }
};

constexpr std::uint64_t unlimited = std::numeric_limits<std::uint64_t>::max();

std::uint64_t rounded_up(std::uint64_t value, std::uint64_t unit) {
  return (value + unit - 1) / unit * unit;
}

std::uint64_t limit_of_registers(const Device& device, const Rules& rules, std::uint64_t warps,
                                 std::uint64_t registers) {
  const std::uint64_t of_warp = rounded_up(registers * device.warp_size, rules.register_unit);
  // The hardware checks a block as if it took a warp of every partition.
  if (of_warp * rounded_up(warps, rules.partitions) > device.registers_per_block) return 0;
  if (registers > rules.most_registers) return 0;
  if (of_warp == 0) return unlimited;
  const std::uint64_t warps_of_partition =
      device.registers_per_multiprocessor / rules.partitions / of_warp;
  return warps_of_partition * rules.partitions / warps;
}

std::uint64_t limit_of_shared_memory(const Device& device, const Rules& rules,
                                     std::uint64_t bytes) {
  const std::uint64_t reserved = device.reserved_shared_per_block;
  const std::uint64_t taken = rounded_up(bytes + reserved, rules.shared_unit);
  const std::uint64_t most = rules.has_optin
                                 ? std::max(device.shared_per_block, device.shared_per_block_optin)
                                 : device.shared_per_block;
  if (taken > most + reserved) return 0;
  return taken == 0 ? unlimited : device.shared_per_multiprocessor / taken;
}

double product(const std::array<std::uint32_t, 3>& extents) {
  return static_cast<double>(extents[0]) * extents[1] * extents[2];
}

}  // namespace

Occupancy occupancy(const Device& device, const Launch& launch) {
  Occupancy result;
  const double threads = product(launch.block), grid = product(launch.grid);
  const double slots = device.max_threads_per_multiprocessor;
  if (threads < 1 || grid < 1 || device.warp_size == 0 || slots < 1 || device.multiprocessors == 0)
    return result;
  const Rules rules(device);
  std::uint64_t of_threads = 0, of_registers = 0;
  if (threads <= device.max_threads_per_block) {
    const auto count = static_cast<std::uint64_t>(threads);
    const std::uint64_t warps = (count + device.warp_size - 1) / device.warp_size;
    of_threads = device.max_threads_per_multiprocessor / device.warp_size / warps;
    of_registers = limit_of_registers(device, rules, warps, launch.registers);
  }
  // Of equal limits, the first: nothing is gained by easing another one.
  const std::array<std::pair<std::string_view, std::uint64_t>, 4> limits{{
      {"threads", of_threads},
      {"registers", of_registers},
      {"shared memory", limit_of_shared_memory(device, rules, launch.shared_bytes)},
      {"blocks", device.max_blocks_per_multiprocessor},
  }};
  const auto least = std::min_element(limits.begin(), limits.end(),
                                      [](auto& a, auto& b) { return a.second < b.second; });
  result.limiter = least->first;
  result.blocks = static_cast<int>(least->second);
  const double blocks = result.blocks, multiprocessors = device.multiprocessors;
  result.theoretical = std::min(1.0, blocks * threads / slots);
  result.estimated = std::min(1.0, std::min(blocks, grid / multiprocessors) * threads / slots);
  if (blocks > 0) result.waves = grid / (blocks * multiprocessors);
  return result;
}

}  // namespace warpstep::profiler
