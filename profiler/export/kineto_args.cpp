#include "profiler/export/kineto_args.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "profiler/analysis/device.h"
#include "profiler/analysis/fields.h"
#include "profiler/export/json_text.h"
#include "profiler/export/trace_facts.h"

namespace warpstep::profiler {
namespace {

std::string_view torch_type(std::string_view dtype) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 5> types{
      {{"f32", "float"},
       {"f16", "c10::Half"},
       {"bf16", "c10::BFloat16"},
       {"u8", "unsigned char"},
       {"i32", "int"}}};
  const auto* const found = std::find_if(types.begin(), types.end(),
                                         [&](const auto& type) { return type.first == dtype; });
  return found == types.end() ? dtype : found->second;
}

std::uint64_t product(const std::array<std::uint32_t, 3>& extents) {
  return std::uint64_t{extents[0]} * extents[1] * extents[2];
}

std::string kernel_args(const Session& session, const Activity& kernel) {
  const std::uint32_t shared_bytes = kernel.smem_static + kernel.smem_dynamic;
  std::string args = fmt::format(", \"registers per thread\": {}, \"shared memory\": {}",
                                 kernel.registers, shared_bytes);
  const auto device =
      std::find_if(session.devices.begin(), session.devices.end(),
                   [&](const Device& candidate) { return candidate.id == kernel.device; });
  if (device != session.devices.end() && device->multiprocessors != 0) {
    const std::uint64_t blocks = product(kernel.grid);
    const std::uint64_t warps =
        (product(kernel.block) + device->warp_size - 1) / std::max(device->warp_size, 1U);
    args += fmt::format(", \"blocks per SM\": {}, \"warps per SM\": {}",
                        thousandths(blocks * 1000 / device->multiprocessors),
                        thousandths(blocks * warps * 1000 / device->multiprocessors));
    const Occupancy fits =
        occupancy(*device, {kernel.grid, kernel.block, kernel.registers, shared_bytes});
    args += fmt::format(", \"est. achieved occupancy %\": {}", std::llround(100 * fits.estimated));
  }
  args += fmt::format(", \"grid\": [{}], \"block\": [{}]", fmt::join(kernel.grid, ", "),
                      fmt::join(kernel.block, ", "));
  if (kernel.graph_node != 0)
    args +=
        fmt::format(", \"graph id\": {}, \"graph node id\": {}", kernel.graph, kernel.graph_node);
  return args;
}

}  // namespace

std::string call_args(const Session& session, std::uint64_t call) {
  const Json* calls = fields::member(session.program, "calls");
  if (calls == nullptr || !calls->is_array() || call >= calls->size()) return {};
  const Json* inputs = fields::member((*calls)[call], "in");
  if (inputs == nullptr || !inputs->is_array()) return {};
  Json shapes = Json::array(), types = Json::array();
  for (const Json& value : *inputs) {
    const Json* shape = fields::member(value, "shape");
    const Json* dtype = fields::member(value, "dtype");
    if (shape == nullptr || dtype == nullptr || !dtype->is_string()) return {};
    shapes.push_back(*shape);
    types.push_back(torch_type(dtype->get_ref<const std::string&>()));
  }
  return fmt::format("\"Input Dims\": {}, \"Input type\": {}", spaced(shapes), spaced(types));
}

std::string work_args(const Session& session, const Activity& activity, std::uint64_t correlation) {
  std::string args = fmt::format("\"device\": {}, \"context\": {}, \"correlation\": {}",
                                 activity.device, activity.context, correlation);
  if (activity.what == What::copy || activity.what == What::set) {
    // bytes a ns are GB/s
    const std::uint64_t ns = std::max<std::uint64_t>(activity.end_ns - activity.start_ns, 1);
    args += fmt::format(", \"bytes\": {}, \"memory bandwidth (GB/s)\": {}", activity.bytes,
                        thousandths(activity.bytes * 1000 / ns));
  } else {
    args += kernel_args(session, activity);
  }
  return args;
}

std::string ticket_args(const Session& session, std::uint64_t ticket) {
  const Json* batch = fields::member(session.loader, "batch");
  if (batch == nullptr || !batch->is_number_integer()) return fmt::format("\"ticket\": {}", ticket);
  const auto rows =
      static_cast<std::uint64_t>(std::max<std::int64_t>(batch->get<std::int64_t>(), 1));
  return fmt::format("\"batch\": {}, \"sample\": {}", ticket / rows, ticket % rows);
}

std::string callback_args(const std::string& function) {
  // CUpti_runtime_api_trace_cbid of the versions that programs call today.
  constexpr std::array<std::pair<std::string_view, int>, 5> ids{{{"cudaLaunchKernel", 211},
                                                                 {"cudaLaunchKernelExC", 430},
                                                                 {"cudaMemcpyAsync", 41},
                                                                 {"cudaMemsetAsync", 51},
                                                                 {"cudaGraphLaunch", 311}}};
  for (const auto& [name, id] : ids)
    if (name == function) return fmt::format("\"cbid\": {}, ", id);
  return {};
}

}  // namespace warpstep::profiler
