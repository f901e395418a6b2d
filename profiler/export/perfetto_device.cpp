#include "profiler/export/perfetto_device.h"

#include <cxxabi.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <optional>
#include <unordered_map>

#include "profiler/analysis/device.h"

namespace warpstep::profiler::perfetto {
namespace {

constexpr std::uint64_t cuda_context = 1;  // the only one that is interned

std::optional<std::string> demangled(const std::string& name) {
  if (!name.starts_with("_Z")) return std::nullopt;
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> text(
      abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status), std::free);
  return status == 0 ? std::optional<std::string>(text.get()) : std::nullopt;
}

std::string architecture(const Device& device) {
  return fmt::format("sm_{}{}", device.compute_major, device.compute_minor);
}

class DeviceWriter {
 public:
  DeviceWriter(const Session& session, Packets& packets) : session_(session), packets_(packets) {
    for (const GraphNode& node : session.graph_nodes) call_of_node_.emplace(node.node, node.call);
  }

  void run() {
    describe_devices();
    for (std::size_t i = 0; i < session_.activities.size(); ++i)
      if (has_times(session_.activities[i]) && is_device_work(session_.activities[i])) add(i);
  }

 private:
  void describe_devices() {
    if (session_.devices.empty()) return;
    ProtoMessage all;
    for (const Device& device : session_.devices)
      all.message(gpu::gpu, ProtoMessage()
                                .text(gpu::name, session_.name(device.name))
                                .text(gpu::vendor, "NVIDIA")
                                .text(gpu::architecture, architecture(device)));
    packets_.describe(ProtoMessage().message(packet::gpu_info, all));
  }

  const Device* device(std::uint32_t id) const {
    const auto found = std::find_if(session_.devices.begin(), session_.devices.end(),
                                    [id](const Device& device) { return device.id == id; });
    return found == session_.devices.end() ? nullptr : &*found;
  }

  std::uint64_t specification(std::string_view name) {
    return packets_.specifications.add(
        name, ProtoMessage().varint(interned::specification_category, interned::compute));
  }

  static std::string_view stage_name(What what) {
    switch (what) {
      case What::copy: return "Memcpy";
      case What::set: return "Memset";
      case What::graph: return "Graph";
      default: return "Kernel";
    }
  }

  void add(std::size_t index) {
    const Activity& activity = session_.activities[index];
    const std::string name = activity_name(session_, activity);
    ProtoMessage event;
    event.varint(stage::event_id, event_id(index))
        .varint(stage::duration, activity.end_ns - activity.start_ns)
        .varint(stage::context, cuda_context)
        .varint(stage::gpu_id, activity.device)
        .varint(stage::queue_iid, specification(fmt::format("stream {}", stream_of(activity))))
        .varint(stage::stage_iid, specification(stage_name(activity.what)))
        .varint(stage::name_iid, packets_.names(name));
    if (activity.what == What::kernel)
      event.varint(stage::kernel_iid, kernel(activity, name))
          .message(stage::launch, launch(activity));
    if (activity.what == What::copy || activity.what == What::set)
      extra(event, "bytes", fmt::to_string(activity.bytes));
    extra(event, "correlation", fmt::to_string(activity.correlation));
    if (activity.graph_node != 0) extra(event, "graph node", fmt::to_string(activity.graph_node));
    if (const auto call = call_of(activity); call.has_value())
      if (const std::string title = call_title(session_, *call); !title.empty())
        extra(event, "call", title);
    packets_.add(activity.start_ns, packet::render_stage, event);
  }

  static void extra(ProtoMessage& event, std::string_view name, std::string_view value) {
    event.message(stage::extra_data,
                  ProtoMessage().text(stage::extra_name, name).text(stage::extra_value, value));
  }

  std::optional<std::uint64_t> call_of(const Activity& activity) const {
    if (activity.external != 0) return activity.external - 1;
    const auto found = call_of_node_.find(activity.graph_node);
    return found == call_of_node_.end() ? std::nullopt : std::optional(found->second);
  }

  std::uint64_t kernel(const Activity& activity, const std::string& name) {
    ProtoMessage more;
    if (const auto text = demangled(name); text.has_value())
      more.text(interned::kernel_demangled, *text);
    if (const Device* const found = device(activity.device); found != nullptr)
      more.text(interned::kernel_architecture, architecture(*found));
    return packets_.kernels.add(name, more);
  }

  static ProtoMessage extents(const std::array<std::uint32_t, 3>& extents) {
    return std::move(
        ProtoMessage().varint(1, extents[0]).varint(2, extents[1]).varint(3, extents[2]));
  }

  // The names that Perfetto's view of compute kernels looks for.
  ProtoMessage launch(const Activity& kernel) {
    ProtoMessage launch;
    launch.message(stage::launch_grid, extents(kernel.grid))
        .message(stage::launch_block, extents(kernel.block));
    const auto argument = [&](std::string_view name, std::uint64_t value) {
      launch.message(stage::launch_arg, ProtoMessage()
                                            .varint(stage::arg_name_iid, packets_.kernel_args(name))
                                            .varint(stage::arg_uint, value));
    };
    std::uint64_t threads = 1;
    for (const std::size_t axis : {0U, 1U, 2U})
      threads *= std::uint64_t{kernel.grid[axis]} * kernel.block[axis];
    argument("registers_per_thread", kernel.registers);
    argument("shared_mem_static", kernel.smem_static);
    argument("shared_mem_dynamic", kernel.smem_dynamic);
    argument("thread_count", threads);
    if (const Device* const found = device(kernel.device); found != nullptr) {
      const Occupancy fits = occupancy(*found, {kernel.grid, kernel.block, kernel.registers,
                                                kernel.smem_static + kernel.smem_dynamic});
      launch.message(
          stage::launch_arg,
          ProtoMessage()
              .varint(stage::arg_name_iid, packets_.kernel_args("waves_per_multiprocessor"))
              .float64(stage::arg_double, fits.waves));
    }
    return launch;
  }

  const Session& session_;
  Packets& packets_;
  std::unordered_map<std::uint64_t, std::uint64_t> call_of_node_;
};

}  // namespace

ProtoMessage add_device_work(const Session& session, const TraceFacts& facts, Packets& packets) {
  DeviceWriter(session, packets).run();
  ProtoMessage contexts;
  contexts.message(interned::graphics_contexts, ProtoMessage()
                                                    .varint(interned::iid, cuda_context)
                                                    .varint(interned::context_pid, facts.pid)
                                                    .varint(interned::context_api, interned::cuda));
  return contexts;
}

}  // namespace warpstep::profiler::perfetto
