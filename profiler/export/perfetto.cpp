// A session as Perfetto's own trace: tracks, slices, counters, arrows.

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "profiler/analysis/device.h"
#include "profiler/analysis/scope.h"
#include "profiler/analysis/tables.h"
#include "profiler/export/export.h"
#include "profiler/export/launches.h"
#include "profiler/export/perfetto_writer.h"

namespace warpstep::profiler::perfetto {

// The device's work as render stages, where overlapping ones are kept; an event's id is 1 + the
// activity's index. Gives the entries of InternedData that are no plain names.
ProtoMessage add_device_work(const Session& session, const TraceFacts& facts, Packets& packets);

inline std::uint64_t event_id(std::size_t activity) {
  return activity + 1;
}

namespace {

constexpr std::uint64_t cuda_context = 1;  // the only one that is interned

std::string architecture(const Device& device) {
  return fmt::format("sm_{}{}", device.compute_major, device.compute_minor);
}

class DeviceWriter {
 public:
  DeviceWriter(const Session& session, Packets& packets) : session_(session), packets_(packets) {}

  void run() {
    describe_devices();
    for (std::size_t i = 0; i < session_.activities.size(); ++i)
      if (has_times(session_.activities[i]) && is_on_device(session_.activities[i])) add(i);
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
    const std::string& name = session_.name(activity.name);
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

  std::uint64_t kernel(const Activity& activity, const std::string& name) {
    ProtoMessage more;
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

namespace warpstep::profiler {
namespace perfetto {
namespace {

constexpr std::string_view kind_names[] = {"range",   "call",   "wait",  "sync", "host api",
                                           "sample",  "stage",  "idle",  "copy", "mark",
                                           "counter", "kernel", "metric"};

// Of a host thread: begin, then the longer one first.
struct Slice {
  std::uint64_t begin_ns = 0, end_ns = 0;
  std::uint64_t name = 0, category = 0;  // interned
  ProtoMessage more;                     // annotations, arrows
};

class Writer {
 public:
  explicit Writer(const Session& session)
      : session_(session),
        facts_(trace_facts(session)),
        // Without a reading of the clocks the session's own is all there is.
        packets_(session.clocks.empty() ? clocks::monotonic : clocks::realtime,
                 static_cast<std::uint64_t>(facts_.realtime_offset_ns)) {}

  std::string run() {
    describe_clocks();
    describe_process();
    add_steps();
    for (const Span& span : session_.spans)
      if (session_.kind(span) == Kind::wait) waited_.insert(span.arg);
    for (const Span& span : session_.spans) add_span(span);
    add_host_calls();
    for (auto& [tid, slices] : threads_) write_thread(tid, slices);
    add_samples();
    const ProtoMessage contexts = add_device_work(session_, facts_, packets_);
    return packets_.trace(contexts);
  }

 private:
  std::uint64_t new_track() { return (std::uint64_t{facts_.pid} << 32) + next_track_++; }

  void describe_clocks() {
    if (session_.clocks.empty()) return;
    const ClockReading& reading = session_.clocks.front();
    const auto clock = [](std::uint64_t id, std::uint64_t ns) {
      return std::move(ProtoMessage().varint(clocks::id, id).varint(clocks::timestamp, ns));
    };
    packets_.describe(ProtoMessage().message(
        packet::clock_snapshot,
        ProtoMessage()
            .message(clocks::clock, clock(clocks::realtime, reading.realtime_ns))
            .message(clocks::clock, clock(clocks::monotonic, reading.monotonic_ns))
            .varint(clocks::primary, clocks::realtime)));
  }

  void describe_track(const ProtoMessage& track) {
    packets_.describe(ProtoMessage().message(packet::track_descriptor, track));
  }

  std::string process_name() const {
    const std::int64_t rank = fields::whole(session_.stamp, "rank", -1);
    return rank < 0 ? "warpstep" : fmt::format("warpstep, rank {}", rank);
  }

  void describe_process() {
    process_ = new_track();
    describe_track(ProtoMessage()
                       .varint(track::uuid, process_)
                       .message(track::process, ProtoMessage()
                                                    .varint(track::process_pid, facts_.pid)
                                                    .text(track::process_name, process_name()))
                       .varint(track::child_ordering, track::explicit_order));
  }

  std::uint64_t describe_child(std::uint64_t parent, std::string_view name, std::uint64_t rank) {
    const std::uint64_t uuid = new_track();
    describe_track(ProtoMessage()
                       .varint(track::uuid, uuid)
                       .varint(track::parent, parent)
                       .text(track::name, name)
                       .varint(track::rank, rank));
    return uuid;
  }

  std::uint64_t describe_thread(std::uint32_t tid) {
    std::string name = fmt::format("thread {}", tid);
    for (const Thread& thread : session_.threads)
      if (thread.system == tid) name = thread.name;
    const std::uint64_t uuid = new_track();
    describe_track(ProtoMessage()
                       .varint(track::uuid, uuid)
                       .varint(track::parent, process_)
                       .message(track::thread, ProtoMessage()
                                                   .varint(track::thread_pid, facts_.pid)
                                                   .varint(track::thread_tid, tid)
                                                   .text(track::thread_name, name)));
    return uuid;
  }

  std::uint64_t counter_track(const std::string& name) {
    const auto [found, is_new] = counters_.try_emplace(name, 0);
    if (!is_new) return found->second;
    found->second = new_track();
    ProtoMessage unit;
    if (const std::size_t last = name.rfind(' '); last != std::string::npos)
      unit.text(track::counter_unit_name, std::string_view(name).substr(last + 1));
    describe_track(ProtoMessage()
                       .varint(track::uuid, found->second)
                       .varint(track::parent, process_)
                       .text(track::name, name)
                       .message(track::counter, unit)
                       .varint(track::rank, 100));
    return found->second;
  }

  // All steps of the run, whether their spans were recorded or not.
  void add_steps() {
    if (session_.steps.empty()) return;
    const std::uint64_t uuid = describe_child(process_, "steps", 0);
    for (const Step& step : session_.steps) {
      Annotations notes(packets_);
      notes.add("step", step.step)
          .add("epoch", step.epoch)
          .add("loss", step.loss)
          .add("learning rate", step.learning_rate)
          .add(items(session_), static_cast<std::uint64_t>(std::max<std::int64_t>(step.samples, 0)))
          .add("correct", static_cast<std::uint64_t>(std::max<std::int64_t>(step.correct, 0)))
          .add("data ns", step.data_ns)
          .add("copies ns", step.copies_ns)
          .add("kernels ns", step.kernels_ns)
          .add("cpu ns", step.cpu_ns)
          .add("other ns", step.other_ns);
      packets_.add(step.begin_ns, packet::track_event,
                   ProtoMessage()
                       .varint(event::type, event::begin)
                       .varint(event::track_uuid, uuid)
                       .text(event::name, fmt::format("step {}", step.step))
                       .fields(notes.fields()));
      end(step.end_ns, uuid);
    }
  }

  void end(std::uint64_t at_ns, std::uint64_t track) {
    packets_.add(at_ns, packet::track_event,
                 ProtoMessage().varint(event::type, event::end).varint(event::track_uuid, track));
  }

  void add_span(const Span& span) {
    const Kind kind = session_.kind(span);
    const std::uint32_t tid = session_.threads[span.thread].system;
    if (kind == Kind::counter)
      return add_counter(counter_name(session_, span), span.begin_ns,
                         ProtoMessage().varint(event::counter, span.arg));
    ProtoMessage more = annotations(span, kind);
    // An arrow from a batch that is ready to the wait for it.
    // The test set's batches have numbers of their own, which would lead to waits for others.
    const bool is_ready = kind == Kind::mark && session_.name(span.name) == "batch ready" &&
                          !session_.threads[span.thread].name.starts_with("test loader");
    if (is_ready && waited_.contains(span.arg)) more.fixed64(event::flow, span.arg + 1);
    if (kind == Kind::wait) more.fixed64(event::terminating_flow, span.arg + 1);
    const std::size_t index = static_cast<std::size_t>(kind);
    threads_[tid].push_back({span.begin_ns, span.end_ns, packets_.names(session_.name(span.name)),
                             packets_.categories(kind_names[index]), std::move(more)});
  }

  ProtoMessage annotations(const Span& span, Kind kind) {
    Annotations notes(packets_);
    switch (kind) {
      case Kind::call: annotate_call(notes, span.arg); break;
      case Kind::wait: notes.add("batch", span.arg); break;
      case Kind::sample: notes.add("ticket", span.arg); break;
      case Kind::copy: notes.add("bytes", span.arg); break;
      default:
        if (span.arg != 0 || kind == Kind::mark) notes.add("value", span.arg);
    }
    return notes.fields();
  }

  void annotate_call(Annotations& notes, std::uint64_t index) const {
    notes.add("call", index);
    if (!session_.program.is_object()) return;
    const auto calls = session_.program.find("calls");
    if (calls == session_.program.end() || !calls->is_array() || index >= calls->size()) return;
    const Json& call = (*calls)[index];
    if (!call.is_object()) return;
    for (const char* key : {"op", "layer", "phase", "implementation", "source"})
      if (const auto found = call.find(key); found != call.end() && found->is_string())
        notes.add(key, found->get_ref<const std::string&>());
    for (const char* key : {"flops", "bytes"})
      if (const auto found = call.find(key); found != call.end() && found->is_number())
        notes.add(key, found->get<double>());
  }

  void add_counter(const std::string& name, std::uint64_t at_ns, const ProtoMessage& value) {
    packets_.add(at_ns, packet::track_event,
                 ProtoMessage()
                     .varint(event::type, event::counter_value)
                     .varint(event::track_uuid, counter_track(name))
                     .fields(value));
  }

  void add_samples() {
    for (const Sample& sample : session_.samples)
      add_counter(session_.name(sample.name), sample.at_ns,
                  ProtoMessage().float64(event::counter_double, sample.value));
  }

  // The first call of a correlation points to all the work that it launched.
  void add_host_calls() {
    std::unordered_map<std::uint32_t, ProtoMessage> launched;
    for (std::size_t i = 0; i < session_.activities.size(); ++i) {
      const Activity& activity = session_.activities[i];
      if (has_times(activity) && is_on_device(activity) && activity.correlation != 0)
        launched[activity.correlation].varint(event::submitted_stage, event_id(i));
    }
    for (const Activity& activity : session_.activities) {
      const bool is_host = activity.what == What::api || activity.what == What::sync;
      if (!has_times(activity) || !is_host) continue;
      ProtoMessage more =
          Annotations(packets_).add("correlation", std::uint64_t{activity.correlation}).fields();
      if (const auto found = launched.find(activity.correlation); found != launched.end()) {
        if (activity.what == What::api) more.message(event::gpu_correlation, found->second);
        if (activity.what == What::api) launched.erase(found);
      }
      threads_[activity.stream].push_back(
          {activity.start_ns, activity.end_ns, packets_.names(session_.name(activity.name)),
           packets_.categories(activity.what == What::api ? "runtime" : "sync"), std::move(more)});
    }
  }

  void write_thread(std::uint32_t tid, std::vector<Slice>& slices) {
    std::ranges::stable_sort(slices, begins_outside<Slice>);
    std::vector<std::uint64_t> tracks{describe_thread(tid)};
    std::vector<std::vector<std::uint64_t>> open(1);  // ends of open slices, by lane
    Lanes lanes(Nesting::allowed);
    const auto close = [&](std::size_t lane, std::uint64_t until_ns) {
      for (auto& ends = open[lane]; !ends.empty() && ends.back() <= until_ns; ends.pop_back())
        end(ends.back(), tracks[lane]);
    };
    for (const Slice& slice : slices) {
      const std::size_t lane = lanes.take(slice.begin_ns, slice.end_ns);
      if (lane == tracks.size()) {
        tracks.push_back(describe_child(tracks[0], fmt::format("lane {}", lane + 1), lane));
        open.emplace_back();
      }
      close(lane, slice.begin_ns);
      const bool is_instant = slice.begin_ns == slice.end_ns;
      packets_.add(slice.begin_ns, packet::track_event,
                   ProtoMessage()
                       .varint(event::type, is_instant ? event::instant : event::begin)
                       .varint(event::track_uuid, tracks[lane])
                       .varint(event::name_iid, slice.name)
                       .varint(event::category_iid, slice.category)
                       .fields(slice.more));
      if (!is_instant) open[lane].push_back(slice.end_ns);
    }
    for (std::size_t lane = 0; lane < tracks.size(); ++lane) close(lane, ~std::uint64_t{0});
  }

  const Session& session_;
  TraceFacts facts_;
  Packets packets_;
  std::uint64_t next_track_ = 1, process_ = 0;
  std::map<std::string, std::uint64_t> counters_;        // tracks by name
  std::map<std::uint32_t, std::vector<Slice>> threads_;  // by gettid()
  std::unordered_set<std::uint64_t> waited_;             // batches
};

}  // namespace
}  // namespace perfetto

std::string perfetto_trace(const Session& session) {
  return perfetto::Writer(session).run();
}

}  // namespace warpstep::profiler
