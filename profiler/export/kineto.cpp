// Kineto's Chrome trace events, one per line: first the metadata, then all by time.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <ranges>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "profiler/analysis/device.h"
#include "profiler/analysis/scope.h"
#include "profiler/export/cpu_as_device.h"
#include "profiler/export/export.h"
#include "profiler/export/launches.h"
#include "profiler/export/trace_file.h"
#include "profiler/session/session.h"

namespace warpstep::profiler {

// The arguments of events in a Kineto trace, as members of a JSON object without braces.

// "Input Dims" and "Input type" of the program's call, in PyTorch's words; empty without them.
std::string call_args(const Session& session, std::uint64_t call);
// Of a kernel, copy or memset; without the stream, which is the track.
std::string work_args(const Session& session, const Activity& activity, std::uint64_t correlation);
// "batch" and "sample" by a loader's ticket.
std::string ticket_args(const Session& session, std::uint64_t ticket);
// "cbid" of the runtime's functions that launch, "" of others.
std::string callback_args(const std::string& function);

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

std::uint64_t count_of(const std::array<std::uint32_t, 3>& extents) {
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
    const std::uint64_t blocks = count_of(kernel.grid);
    const std::uint64_t warps =
        (count_of(kernel.block) + device->warp_size - 1) / std::max(device->warp_size, 1U);
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
  const std::string source = fields::text((*calls)[call], "source");
  return fmt::format("\"Input Dims\": {}, \"Input type\": {}", spaced(shapes), spaced(types)) +
         (source.empty() ? source : fmt::format(", \"source\": {}", json_quoted(source)));
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

// The slices of a Kineto trace, with their tracks, before they are written.

// In the order in which equal intervals enclose each other.
enum class SliceKind : std::uint8_t { annotation, op, runtime, loader, device, overhead };

struct KinetoSlice {
  std::uint64_t begin_ns = 0, end_ns = 0;  // end > begin: viewers drop what takes no time
  std::int64_t pid = 0;                    // of the run, or the device's id; -1: CUPTI itself
  std::uint32_t tid = 0;                   // the thread, or the stream
  SliceKind kind = SliceKind::annotation;
  std::string_view category;
  std::string name;
  std::string args;               // members of a JSON object, without braces; may be empty
  std::uint64_t external_id = 0;  // unique among annotations and ops; of others: whose they are
  std::uint64_t correlation = 0;  // of runtime and device
  bool has_flow = false;          // an arrow from the launch to the work
};

struct KinetoSlices {
  std::vector<KinetoSlice> slices;  // by begin, then the longer one first
  // What overlaps on a track was spread over more: (pid, tid of the lane) -> (tid, lane from 2).
  std::map<std::pair<std::int64_t, std::uint32_t>, std::pair<std::uint32_t, std::uint32_t>> lanes;
};
KinetoSlices kineto_slices(const Session& session, const TraceFacts& facts,
                           const KinetoOptions& options);

namespace {

constexpr std::string_view data_wait = "enumerate(DataLoader)#Warpstep.__next__";

class Builder {
 public:
  Builder(const Session& session, const TraceFacts& facts, const KinetoOptions& options)
      : session_(session),
        facts_(facts),
        plan_(plan_launches(session, facts, options.split_graphs)) {}

  KinetoSlices run() {
    add_steps();
    add_spans();
    add_parts();
    add_host_calls();
    number();
    add_device_work();
    sort();
    spread();
    return std::move(result_);
  }

 private:
  KinetoSlice& add(std::uint64_t begin_ns, std::uint64_t end_ns, SliceKind kind,
                   std::string_view category, std::uint32_t tid, std::string name) {
    return result_.slices.emplace_back(KinetoSlice{.begin_ns = begin_ns,
                                                   .end_ns = std::max(end_ns, begin_ns + 1),
                                                   .pid = facts_.pid,
                                                   .tid = tid,
                                                   .kind = kind,
                                                   .category = category,
                                                   .name = std::move(name)});
  }

  // A run that recorded steps alone has no windows: then they are all there is to show. Where a
  // step begins as another ends, that one is 1 ns shorter: readers add ts and dur as doubles, and
  // find touching steps to overlap.
  void add_steps() {
    const auto& steps = session_.steps;
    const IntervalSet recorded = step_numbers(complete_windows(session_));
    for (std::size_t i = 0; i < steps.size(); ++i) {
      if (!session_.windows.empty() && !recorded.has(steps[i].step)) continue;
      const bool touches = i + 1 < steps.size() && steps[i + 1].begin_ns == steps[i].end_ns;
      const bool has_length = steps[i].end_ns > steps[i].begin_ns;
      add(steps[i].begin_ns, steps[i].end_ns - (touches && has_length ? 1 : 0),
          SliceKind::annotation, "user_annotation", facts_.trainer_id,
          fmt::format("ProfilerStep#{}", steps[i].step));
    }
  }

  void add_spans() {
    const Span* sample = nullptr;  // the one that the following stages are of
    for (const Span& span : session_.spans) {
      const Kind kind = session_.kind(span);
      if (kind == Kind::mark || kind == Kind::counter) continue;
      if (kind == Kind::sample) sample = &span;
      KinetoSlice& slice = add_span(span, kind);
      const bool is_of_sample = sample != nullptr && sample->thread == span.thread &&
                                sample->begin_ns <= span.begin_ns && span.end_ns <= sample->end_ns;
      if (kind == Kind::sample || (kind == Kind::stage && is_of_sample))
        slice.args = ticket_args(session_, sample->arg);
      if (kind == Kind::wait) slice.args = fmt::format("\"batch\": {}", span.arg);
      if (kind == Kind::copy) slice.args = fmt::format("\"bytes\": {}", span.arg);
      if (kind == Kind::call) slice.args = call_args(session_, span.arg);
    }
  }

  // Work of threads other than the trainer's has a separate category: readers count annotations
  // and ops of every thread as work of the CPU in the step.
  KinetoSlice& add_span(const Span& span, Kind kind) {
    const std::uint32_t tid = session_.threads[span.thread].system;
    const bool is_loading = kind == Kind::sample || kind == Kind::stage || kind == Kind::idle;
    if (is_loading || (span.thread != facts_.trainer && kind != Kind::call))
      return add(span.begin_ns, span.end_ns, SliceKind::loader, "loader", tid,
                 session_.name(span.name));
    // The released torch_tb_profiler (0.4.3) counts waits that are ops, and drops annotations.
    if (kind == Kind::call || kind == Kind::host_api || kind == Kind::wait)
      return add(span.begin_ns, span.end_ns, SliceKind::op, "cpu_op", tid,
                 kind == Kind::wait ? std::string(data_wait) : session_.name(span.name));
    return add(span.begin_ns, span.end_ns, SliceKind::annotation, "user_annotation", tid,
               session_.name(span.name));
  }

  void add_parts() {
    first_part_ = result_.slices.size();
    for (const GraphPart& part : plan_.parts) {
      std::string title = call_title(session_, part.call);
      if (title.empty()) title = fmt::format("call {}", part.call);
      add(part.begin_ns, part.end_ns, SliceKind::op, "cpu_op", part.thread, std::move(title)).args =
          call_args(session_, part.call);
    }
  }

  void add_host_calls() {
    first_call_ = result_.slices.size();
    for (const HostCall& call : plan_.calls) {
      KinetoSlice& slice = add(call.begin_ns, call.end_ns, SliceKind::runtime, "cuda_runtime",
                               call.thread, call.name);
      slice.args = callback_args(call.name) + fmt::format("\"correlation\": {}", call.correlation);
      slice.correlation = call.correlation;
      slice.has_flow = call.launches;
    }
    for (const Activity& activity : session_.activities)
      if (activity.what == What::overhead && has_times(activity))
        add(activity.start_ns, activity.end_ns, SliceKind::overhead, "overhead", 0,
            session_.name(activity.name))
            .pid = -1;
  }

  static auto key(const KinetoSlice& slice) {
    return std::tuple(slice.begin_ns, ~slice.end_ns, slice.kind);
  }

  // Gives annotations and ops their numbers by time, and runtime calls that of the innermost op on
  // their thread, or of the innermost annotation when there is none.
  void number() {
    std::vector<std::size_t> order(result_.slices.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::stable_sort(order.begin(), order.end(), [this](std::size_t a, std::size_t b) {
      return key(result_.slices[a]) < key(result_.slices[b]);
    });
    std::map<std::uint32_t, std::vector<std::size_t>> open;  // by thread, outermost first
    std::uint64_t next = 1;
    for (const std::size_t i : order) {
      KinetoSlice& slice = result_.slices[i];
      if (slice.kind != SliceKind::annotation && slice.kind != SliceKind::op &&
          slice.kind != SliceKind::runtime)
        continue;
      auto& stack = open[slice.tid];
      std::erase_if(
          stack, [&](std::size_t outer) { return result_.slices[outer].end_ns <= slice.begin_ns; });
      if (slice.kind == SliceKind::runtime) {
        slice.external_id = owner(slice, stack);
      } else {
        slice.external_id = next++;
        stack.push_back(i);
      }
    }
    for (std::size_t k = 0; k < plan_.calls.size(); ++k)
      if (const auto part = plan_.calls[k].part; part.has_value())
        result_.slices[first_call_ + k].external_id =
            result_.slices[first_part_ + *part].external_id;
  }

  // By the call's middle: CUPTI's clock and the host's agree to less than a us, not to the ns.
  std::uint64_t owner(const KinetoSlice& call, const std::vector<std::size_t>& stack) const {
    std::uint64_t annotation = 0;
    for (const std::size_t at : stack | std::views::reverse) {
      const KinetoSlice& outer = result_.slices[at];
      if (outer.end_ns < call.begin_ns + (call.end_ns - call.begin_ns) / 2) continue;
      if (outer.kind == SliceKind::op) return outer.external_id;
      if (annotation == 0) annotation = outer.external_id;
    }
    return annotation;
  }

  void add_device_work() {
    std::map<std::uint64_t, std::uint64_t> external_ids;  // by correlation
    for (std::size_t k = 0; k < plan_.calls.size(); ++k)
      external_ids[plan_.calls[k].correlation] = result_.slices[first_call_ + k].external_id;
    for (std::size_t i = 0; i < session_.activities.size(); ++i) {
      const Activity& activity = session_.activities[i];
      if (plan_.correlations[i] == 0) continue;
      KinetoSlice& slice = add(activity.start_ns, activity.end_ns, SliceKind::device,
                               activity.what == What::copy  ? "gpu_memcpy"
                               : activity.what == What::set ? "gpu_memset"
                                                            : "kernel",
                               stream_of(activity), session_.name(activity.name));
      slice.pid = activity.device;
      slice.correlation = plan_.correlations[i];
      slice.external_id = external_ids[slice.correlation];
      slice.args = work_args(session_, activity, slice.correlation);
      slice.has_flow = true;
    }
  }

  void sort() {
    std::stable_sort(result_.slices.begin(), result_.slices.end(),
                     [](const KinetoSlice& a, const KinetoSlice& b) { return key(a) < key(b); });
  }

  // Overlapping slices of a track go to separate tracks with unused numbers.
  void spread() {
    std::uint32_t highest = 0;
    for (const KinetoSlice& slice : result_.slices) highest = std::max(highest, slice.tid);
    std::uint32_t next = (highest / 1000 + 1) * 1000;
    std::map<std::pair<std::int64_t, std::uint32_t>, Lanes> tracks;
    std::map<std::tuple<std::int64_t, std::uint32_t, std::uint32_t>, std::uint32_t> tids;
    for (KinetoSlice& slice : result_.slices) {
      const Nesting nesting = slice.kind == SliceKind::device ? Nesting::none : Nesting::allowed;
      const std::uint32_t lane = tracks.try_emplace({slice.pid, slice.tid}, nesting)
                                     .first->second.take(slice.begin_ns, slice.end_ns);
      if (lane == 0) continue;
      const auto [found, is_new] = tids.try_emplace({slice.pid, slice.tid, lane}, next);
      if (is_new) result_.lanes[{slice.pid, next++}] = {slice.tid, lane + 1};
      slice.tid = found->second;
    }
  }

  const Session& session_;
  const TraceFacts& facts_;
  LaunchPlan plan_;
  KinetoSlices result_;
  std::size_t first_part_ = 0, first_call_ = 0;  // in result_.slices, before it is sorted
};

}  // namespace

KinetoSlices kineto_slices(const Session& session, const TraceFacts& facts,
                           const KinetoOptions& options) {
  return Builder(session, facts, options).run();
}

namespace {

Json device_properties(const Session& session) {
  Json all = Json::array();
  for (const Device& device : session.devices)
    all.push_back({{"id", device.id},
                   {"name", session.name(device.name)},
                   {"totalGlobalMem", device.total_memory},
                   {"computeMajor", device.compute_major},
                   {"computeMinor", device.compute_minor},
                   {"maxThreadsPerBlock", device.max_threads_per_block},
                   {"maxThreadsPerMultiprocessor", device.max_threads_per_multiprocessor},
                   {"regsPerBlock", device.registers_per_block},
                   {"warpSize", device.warp_size},
                   {"sharedMemPerBlock", device.shared_per_block},
                   {"numSms", device.multiprocessors},
                   {"regsPerMultiprocessor", device.registers_per_multiprocessor},
                   {"sharedMemPerBlockOptin", device.shared_per_block_optin},
                   {"sharedMemPerMultiprocessor", device.shared_per_multiprocessor}});
  return all;
}

std::int64_t stamped(const Session& session, const char* key, std::int64_t otherwise) {
  if (!session.stamp.is_object()) return otherwise;
  const auto found = session.stamp.find(key);
  return found != session.stamp.end() && found->is_number_integer() ? found->get<std::int64_t>()
                                                                    : otherwise;
}

std::string trace_name(const TraceFacts& facts) {
  return fmt::format("train_{}.{}.pt.trace.json", facts.pid, facts.realtime_ns(facts.base_ns));
}

class Writer {
 public:
  Writer(const Session& session, const KinetoOptions& options)
      : session_(session),
        facts_(trace_facts(session)),
        slices_(kineto_slices(session, facts_, options)),
        is_cpu_as_device_(options.cpu_as_device) {}

  std::string run() {
    head();
    metadata();
    collect();
    std::stable_sort(lines_.begin(), lines_.end(),
                     [](const Line& a, const Line& b) { return a.at_ns < b.at_ns; });
    for (const Line& line : lines_) write(line);
    out_ += "\n";
    out_ += fmt::format(" ],\n \"traceName\": {}}}\n", json_quoted(trace_name(facts_)));
    return std::move(out_);
  }

 private:
  // An event that waits for its place: a slice, or what has no length.
  struct Line {
    std::uint64_t at_ns = 0;
    const KinetoSlice* slice = nullptr;
    const Span* instant = nullptr;
    const Sample* sample = nullptr;
  };

  void head() {
    out_ = fmt::format(
        "{{\"schemaVersion\": 1,\n \"deviceProperties\": {},\n"
        " \"distributedInfo\": {{\"backend\": \"{}\", \"rank\": {}, \"world_size\": {}}},\n"
        " \"displayTimeUnit\": \"ms\",\n \"baseTimeNanoseconds\": {},\n",
        spaced(device_properties(session_)), session_.computes_on_host() ? "mpi" : "nccl",
        stamped(session_, "rank", 0), stamped(session_, "ranks", 1),
        facts_.realtime_ns(facts_.base_ns));
    if (!session_.stamp.is_null())
      out_ += fmt::format(" \"warpstep\": {},\n", spaced(session_.stamp));
    out_ += " \"traceEvents\": [";
  }

  // Begins a new event.
  auto event() {
    out_ += is_first_ ? "\n " : ",\n ";
    is_first_ = false;
    return std::back_inserter(out_);
  }

  void describe(std::string_view what, std::int64_t pid, std::uint32_t tid, std::string_view key,
                const std::string& value) {
    fmt::format_to(event(),
                   R"({{"ph": "M", "name": "{}", "pid": {}, "tid": {}, "ts": 0, )"
                   R"("args": {{"{}": {}}}}})",
                   what, pid, tid, key, value);
  }

  void describe_process(std::int64_t pid, const std::string& label, std::uint64_t rank) {
    describe("process_name", pid, 0, "name", json_quoted("warpstep"));
    describe("process_labels", pid, 0, "labels", json_quoted(label));
    describe("process_sort_index", pid, 0, "sort_index", fmt::to_string(rank));
  }

  void describe_track(std::int64_t pid, std::uint32_t tid, const std::string& name,
                      std::uint64_t rank) {
    describe("thread_name", pid, tid, "name", json_quoted(name));
    describe("thread_sort_index", pid, tid, "sort_index", fmt::to_string(rank));
  }

  std::string track_name(std::int64_t pid, std::uint32_t tid) const {
    if (const auto lane = slices_.lanes.find({pid, tid}); lane != slices_.lanes.end())
      return fmt::format("{} ({})", track_name(pid, lane->second.first), lane->second.second);
    if (pid == -1) return "CUPTI";
    if (pid != facts_.pid) return fmt::format("stream {}", tid);
    for (const Thread& thread : session_.threads)
      if (thread.system == tid) return thread.name;
    return fmt::format("thread {}", tid);
  }

  // The trainer's thread first, then the others as they are numbered; a lane next to its track.
  std::uint64_t track_rank(std::int64_t pid, std::uint32_t tid) const {
    if (const auto lane = slices_.lanes.find({pid, tid}); lane != slices_.lanes.end())
      return track_rank(pid, lane->second.first) + lane->second.second - 1;
    if (pid == facts_.pid && tid == facts_.trainer_id) return 0;
    return (std::uint64_t{tid} + 1) * 100;
  }

  void metadata() {
    std::set<std::pair<std::int64_t, std::uint32_t>> tracks{{facts_.pid, facts_.trainer_id}};
    for (const KinetoSlice& slice : slices_.slices) tracks.insert({slice.pid, slice.tid});
    for (const Span& span : session_.spans)
      tracks.insert({facts_.pid, session_.threads[span.thread].system});
    std::int64_t described = -2;
    for (const auto& [pid, tid] : tracks) {
      if (pid != described)
        describe_process(pid,
                         pid == -1           ? "profiler"
                         : pid == facts_.pid ? "CPU"
                         : is_cpu_as_device_ ? "CPU shown as device 0"
                                             : fmt::format("GPU {}", pid),
                         pid == -1           ? 9'000'000
                         : pid == facts_.pid ? 0
                                             : 5'000'000 + static_cast<std::uint64_t>(pid));
      described = pid;
      describe_track(pid, tid, track_name(pid, tid), track_rank(pid, tid));
    }
  }

  void collect() {
    for (const KinetoSlice& slice : slices_.slices)
      lines_.push_back({.at_ns = slice.begin_ns, .slice = &slice});
    for (const Span& span : session_.spans)
      if (const Kind kind = session_.kind(span); kind == Kind::mark || kind == Kind::counter)
        lines_.push_back({.at_ns = span.begin_ns, .instant = &span});
    for (const Sample& sample : session_.samples)
      if (std::isfinite(sample.value))  // JSON has no other numbers
        lines_.push_back({.at_ns = sample.at_ns, .sample = &sample});
  }

  void write(const Line& line) {
    const std::string ts = thousandths(line.at_ns - facts_.base_ns);
    if (line.slice != nullptr) write_slice(*line.slice, ts);
    if (line.instant != nullptr) write_instant(*line.instant, ts);
    if (line.sample != nullptr)
      write_counter(session_.name(line.sample->name), ts, fmt::format("{}", line.sample->value));
  }

  void write_slice(const KinetoSlice& slice, const std::string& ts) {
    const bool has_id = slice.kind != SliceKind::loader && slice.kind != SliceKind::overhead;
    std::string args = has_id ? fmt::format("\"External id\": {}", slice.external_id) : "";
    // A lane is a separate stream for readers too, who take work of one stream for serial.
    if (slice.kind == SliceKind::device) args += fmt::format(", \"stream\": {}", slice.tid);
    if (has_id && !slice.args.empty()) args += ", ";
    args += slice.args;
    fmt::format_to(event(),
                   R"({{"ph": "X", "cat": "{}", "name": {}, "pid": {}, "tid": {}, "ts": {}, )"
                   R"("dur": {}, "args": {{{}}}}})",
                   slice.category, json_quoted(slice.name), slice.pid, slice.tid, ts,
                   thousandths(slice.end_ns - slice.begin_ns), args);
    if (!slice.has_flow) return;
    const bool is_launch = slice.kind == SliceKind::runtime;
    fmt::format_to(event(),
                   R"({{"ph": "{}", "id": {}, "pid": {}, "tid": {}, "ts": {}, "cat": "ac2g", )"
                   R"("name": "ac2g"{}}})",
                   is_launch ? "s" : "f", slice.correlation, slice.pid, slice.tid, ts,
                   is_launch ? "" : R"(, "bp": "e")");
  }

  void write_instant(const Span& span, const std::string& ts) {
    if (session_.kind(span) == Kind::counter)
      return write_counter(counter_name(session_, span), ts, fmt::to_string(span.arg));
    fmt::format_to(event(),
                   R"({{"ph": "i", "s": "t", "cat": "loader", "name": {}, "pid": {}, "tid": {}, )"
                   R"("ts": {}, "args": {{"value": {}}}}})",
                   json_quoted(session_.name(span.name)), facts_.pid,
                   session_.threads[span.thread].system, ts, span.arg);
  }

  void write_counter(const std::string& name, const std::string& ts, const std::string& value) {
    fmt::format_to(event(),
                   R"({{"ph": "C", "name": {}, "pid": {}, "tid": 0, "ts": {}, )"
                   R"("args": {{"value": {}}}}})",
                   json_quoted(name), facts_.pid, ts, value);
  }

  const Session& session_;
  TraceFacts facts_;
  KinetoSlices slices_;
  bool is_cpu_as_device_;
  std::vector<Line> lines_;
  std::string out_;
  bool is_first_ = true;
};

}  // namespace

std::string kineto_json(const Session& session, const KinetoOptions& options) {
  if (options.cpu_as_device) return Writer(cpu_as_device(session), options).run();
  return Writer(session, options).run();
}

std::string kineto_name(const Session& session) {
  return trace_name(trace_facts(session)) + ".gz";
}

}  // namespace warpstep::profiler
