#include "profiler/analysis/work.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <numeric>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "profiler/analysis/breakdown.h"
#include "profiler/analysis/device.h"
#include "profiler/analysis/scope.h"

namespace warpstep::profiler {

namespace {

// What was recorded of a call in the windows.
struct CallTimes {
  std::uint64_t count = 0;             // runs
  std::uint64_t total_ns = 0;          // of the device, or of the host that computes
  std::uint64_t kernels_ns = 0;        // of them, kernels
  double divided_ns = 0;               // of total_ns, moments of several kernels divided
  std::uint64_t host_ns = 0;           // enqueuing
  std::vector<std::uint64_t> step_ns;  // of each step in which it ran, sorted
  bool has_kernels = false, has_tensor_kernels = false;
};

struct AllTimes {
  std::vector<CallTimes> calls;  // by index
  CallTimes others;              // of no call
};
inline double ratio(double part, double whole) {
  return whole > 0 ? part / whole : 0;
}

// Of --accumulate's steps only an update's last one runs these: in the others they return at once.
bool is_of_updates(std::string_view op) {
  return op == "update" || op == "update_all" || op == "lars" || op == "average";
}

// Whether the call does nothing in this one of the recorded steps, as no update of so many ends
// with it.
bool returns_at_once(const View& view, std::size_t update, std::uint64_t call, int step) {
  return update > 1 && call < view.program.size() && is_of_updates(view.program[call].op) &&
         view.session.steps[view.recorded.step(static_cast<std::size_t>(step))].step % update != 0;
}

struct CallEvent {  // of a call in a step
  std::uint32_t call = 0, step = 0;
  std::uint64_t ns = 0;
  friend bool operator<(const CallEvent& a, const CallEvent& b) {
    return std::tie(a.call, a.step) < std::tie(b.call, b.step);
  }
};

// When the calls of steps are recorded as a graph: their spans are no runs.
IntervalSet captures(const View& view) {
  std::vector<Interval> captures;
  if (!view.session.computes_on_host())
    for (const Span& span : view.session.spans)
      if (view.session.kind(span) == Kind::range && view.session.name(span.name) == "capture")
        captures.push_back({span.begin_ns, span.end_ns});
  return IntervalSet(std::move(captures));
}

class Finder {
 public:
  Finder(const View& view, std::size_t calls)
      : view_(view),
        session_(view.session),
        steps_(view.recorded),
        exchanges_(exchanges_in_calls(view)),
        captures_(captures(view)),
        calls_(calls),
        update_(steps_per_update(view.session)),
        times_{std::vector<CallTimes>(calls), {}} {}

  AllTimes run() {
    for (const Span& span : session_.spans)
      if (session_.kind(span) == Kind::call) take(span);
    const auto tensor = tensor_names();
    const bool skips_graphs = has_graph_kernels(session_);
    const std::vector<double> divided = divided_times(session_);
    for (std::size_t i = 0; i < divided.size(); ++i)
      if (const Activity& activity = session_.activities[i];
          is_on_device(activity) && !(activity.what == What::graph && skips_graphs))
        take(activity, divided[i], tensor);
    count_launches();
    std::sort(events_.begin(), events_.end());
    for (std::size_t i = 0; i < events_.size();) i = take_step(i);
    for (CallTimes& times : times_.calls) std::sort(times.step_ns.begin(), times.step_ns.end());
    std::sort(times_.others.step_ns.begin(), times_.others.step_ns.end());
    return std::move(times_);
  }

 private:
  CallTimes& of(std::uint64_t call) { return call < calls_ ? times_.calls[call] : times_.others; }

  void take(const Span& span) {
    const int step = steps_.at(span.begin_ns);
    if (step < 0 || returns_at_once(view_, update_, span.arg, step)) return;
    CallTimes& times = of(span.arg);
    const std::uint64_t ns =
        span.end_ns - span.begin_ns - exchanges_.within(span.begin_ns, span.end_ns);
    if (!captures_.has(span.begin_ns)) ++times.count;
    if (!session_.computes_on_host()) {
      times.host_ns += ns;
      return;
    }
    times.kernels_ns += ns;
    times.divided_ns += static_cast<double>(ns);
    add(span.arg, step, ns);
  }

  void take(const Activity& activity, double divided_ns, const std::vector<bool>& tensor) {
    const int step = steps_.at(activity.start_ns);
    const std::uint64_t call = call_of(activity).value_or(calls_);
    if (step < 0 || returns_at_once(view_, update_, call, step)) return;
    const std::uint64_t ns = activity.end_ns - activity.start_ns;
    add(call, step, ns);
    CallTimes& times = of(call);
    if (activity.graph_node != 0 || times.count == 0)
      launches_.emplace_back(events_.back().call, activity.correlation);
    times.divided_ns += divided_ns;
    if (activity.what != What::kernel) return;
    times.kernels_ns += ns;
    times.has_kernels = true;
    if (tensor[activity.name]) times.has_tensor_kernels = true;
  }

  void add(std::uint64_t call, int step, std::uint64_t ns) {
    events_.push_back({static_cast<std::uint32_t>(std::min<std::uint64_t>(call, calls_)),
                       static_cast<std::uint32_t>(step), ns});
  }

  // The host's spans count the runs of a call, but for those in a graph: there the launches that
  // ran a kernel of it do, each once, also where a step ends between two of its kernels.
  void count_launches() {
    std::sort(launches_.begin(), launches_.end());
    launches_.erase(std::unique(launches_.begin(), launches_.end()), launches_.end());
    for (const auto& [call, correlation] : launches_) ++of(call).count;
  }

  // All of one call in one step from `first` on; the next one.
  std::size_t take_step(std::size_t first) {
    CallTimes& times = of(events_[first].call);
    std::uint64_t ns = 0;
    std::size_t i = first;
    for (; i < events_.size() && events_[i].call == events_[first].call &&
           events_[i].step == events_[first].step;
         ++i)
      ns += events_[i].ns;
    times.total_ns += ns;
    times.step_ns.push_back(ns);
    return i;
  }

  std::vector<bool> tensor_names() const {
    std::vector<bool> tensor;
    for (const Name& name : session_.names)
      tensor.push_back(name.kind == Kind::kernel && uses_tensor_cores(name.text));
    return tensor;
  }

  const View& view_;
  const Session& session_;
  const StepIndex& steps_;
  IntervalSet exchanges_, captures_;
  std::size_t calls_;
  std::size_t update_;  // steps of one
  AllTimes times_;
  std::vector<CallEvent> events_;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> launches_;  // call and correlation
};

AllTimes find_times(const View& view, std::size_t calls) {
  return Finder(view, calls).run();
}

// Of the session's program; without one, up to the largest index that was recorded.
std::vector<ProgramCall> known_calls(const View& view) {
  const Session& session = view.session;
  std::vector<ProgramCall> calls = view.program;
  if (!calls.empty()) return calls;
  const auto at = [&](std::uint64_t index) -> ProgramCall* {
    if (index >= most_calls) return nullptr;
    if (index >= calls.size()) calls.resize(index + 1);
    return &calls[index];
  };
  for (const Activity& activity : session.activities)
    if (is_on_device(activity))
      if (const auto call = call_of(activity)) at(*call);
  for (const Span& span : session.spans)
    if (session.kind(span) == Kind::call)
      if (ProgramCall* call = at(span.arg)) call->title = session.name(span.name);
  return calls;
}

Peaks find_peaks(const View& view) {
  const auto flops = [&](const Json& peaks) {
    return std::max(0.0,
                    fields::number(fields::child(peaks, "flops_per_second"), view.precision()));
  };
  const Json& peaks = view.session.peaks;
  return {.flops_per_second = flops(peaks),
          .bytes_per_second = std::max(0.0, fields::number(peaks, "bytes_per_second")),
          .flops_now = flops(fields::child(peaks, "now"))};
}

// The shortest time in which a machine of these peaks does it (Williams et al., "Roofline", 2009:
// FLOP/s <= min(peak, intensity * bandwidth)), in ns; 0: not known.
double least_ns(double flops, double bytes, const Peaks& peaks) {
  if (flops > 0 && peaks.flops_per_second <= 0) return 0;
  if (bytes > 0 && peaks.bytes_per_second <= 0) return 0;
  const double compute = flops > 0 ? flops / peaks.flops_per_second : 0;
  const double memory = bytes > 0 ? bytes / peaks.bytes_per_second : 0;
  return 1e9 * std::max(compute, memory);
}

// Linear between the two nearest; `zeros` more values are 0. `sorted` may be empty.
double quantile(const std::vector<std::uint64_t>& sorted, std::size_t zeros, double q) {
  const std::size_t n = sorted.size() + zeros;
  if (n == 0) return 0;
  const auto value = [&](std::size_t i) {
    return i < zeros ? 0.0 : static_cast<double>(sorted[i - zeros]);
  };
  const double at = q * static_cast<double>(n - 1);
  const auto low = static_cast<std::size_t>(at);
  const std::size_t high = std::min(low + 1, n - 1);
  return value(low) + (at - static_cast<double>(low)) * (value(high) - value(low));
}

// Whether an op is a product of matrices, which tensor cores are for.
bool is_product(std::string_view op) {
  return op.starts_with("conv") || op.starts_with("norm_conv") || op.starts_with("linear") ||
         op.find("matmul") != std::string_view::npos ||
         op.find("attention") != std::string_view::npos;
}

// cuBLAS and cuDNN need rows of 16 bytes; unaligned operands run on ordinary units.
std::string why_no_tensor_cores(const ProgramCall& call, const std::string& precision) {
  if (precision == "fp32") return "no: computed in fp32";
  const std::int64_t unit = precision == "tf32" ? 4 : 8;
  const bool is_aligned = std::all_of(call.last_extents.begin(), call.last_extents.end(),
                                      [&](std::int64_t extent) { return extent % unit == 0; });
  return is_aligned ? "no" : fmt::format("no: channels are not multiples of {}", unit);
}

std::string tensor_cores(const ProgramCall& call, const CallTimes& times,
                         const std::string& precision) {
  if (times.has_tensor_kernels) return "yes";
  if (!times.has_kernels || !is_product(call.op)) return "";
  // By a kernel of Warpstep (kernels/linear/few.cuda.cu), whose few sums do not need them.
  constexpr std::string_view few = "few outputs";
  if (call.implementation == few) return fmt::format("no: {}", few);
  return why_no_tensor_cores(call, precision);
}

std::string bound(const ProgramCall& call, const Peaks& peaks) {
  if (least_ns(call.flops, call.bytes, peaks) <= 0) return "";
  const double compute = call.flops > 0 ? call.flops / peaks.flops_per_second : 0;
  const double memory = call.bytes > 0 ? call.bytes / peaks.bytes_per_second : 0;
  return compute >= memory ? "compute" : "memory";
}

void take_times(const CallTimes& times, const StepIndex& steps, CallRow& row) {
  row.count = times.count;
  row.total_ns = times.total_ns;
  row.host_ns = times.host_ns;
  const std::size_t zeros = steps.size() - std::min(steps.size(), times.step_ns.size());
  const std::size_t ran = times.step_ns.size();
  // What only some steps run, as the update with --accumulate, has a median of 0, or of its own.
  if (2 * ran <= steps.size() + 1)
    row.ns = quantile(times.step_ns, 0, 0.5) *
             ratio(static_cast<double>(ran), static_cast<double>(steps.size()));
  else
    row.ns = quantile(times.step_ns, zeros, 0.5);
  row.median_ns = quantile(times.step_ns, 0, 0.5);
  row.p95_ns = quantile(times.step_ns, 0, 0.95);
  row.share = ratio(times.divided_ns, static_cast<double>(steps.total_ns()));
}

CallRow call_row(std::size_t index, const ProgramCall& call, const CallTimes& times,
                 const StepIndex& steps, const Peaks& peaks) {
  CallRow row{.call = static_cast<int>(index),
              .title = call.title.empty() ? fmt::format("call {}", index + 1) : call.title,
              .layer = call.layer,
              .op = call.op,
              .phase = call.phase,
              .implementation = call.implementation,
              .source = call.source,
              .inputs = call.inputs,
              .flops = call.flops,
              .bytes = call.bytes,
              .executed_flops = call.executed_flops};
  take_times(times, steps, row);
  const double runs =
      ratio(static_cast<double>(times.count), static_cast<double>(times.step_ns.size()));
  row.flops_per_second = ratio(1e9 * call.flops * runs, row.median_ns);
  row.bytes_per_second = ratio(1e9 * call.bytes * runs, row.median_ns);
  row.of_peak = ratio(least_ns(call.flops, call.bytes, peaks) * runs, row.median_ns);
  row.bound = bound(call, peaks);
  return row;
}

std::vector<CallRow> call_rows(const View& view, const std::vector<ProgramCall>& calls,
                               const AllTimes& times, const Peaks& peaks) {
  const StepIndex& steps = view.recorded;
  const std::string requested = view.precision();
  std::vector<CallRow> rows;
  for (std::size_t i = 0; i < calls.size(); ++i) {
    rows.push_back(call_row(i, calls[i], times.calls[i], steps, peaks));
    rows.back().tensor_cores = tensor_cores(calls[i], times.calls[i], requested);
  }
  if (times.others.total_ns > 0) {
    CallRow row{.title = "(not of a call)"};
    take_times(times.others, steps, row);
    if (times.others.has_tensor_kernels) row.tensor_cores = "yes";
    rows.push_back(row);
  }
  return rows;
}

struct HostSpan {
  Interval time;
  std::uint32_t name = 0;
};

bool takes_time(Kind kind) {
  return kind != Kind::mark && kind != Kind::counter && kind != Kind::kernel &&
         kind != Kind::metric;
}

// Calls, and the loader's stages, have tables of their own.
std::string_view listed_kind(Kind kind) {
  switch (kind) {
    case Kind::range: return "range";
    case Kind::wait: return "wait for data";
    case Kind::sync: return "sync";
    case Kind::host_api: return "api";
    case Kind::copy: return "copy";
    default: return "";
  }
}

// By thread, each sorted as nest() wants it. Threads that only CUPTI knows come last.
std::vector<std::vector<HostSpan>> items_by_thread(const View& view) {
  const Session& session = view.session;
  const StepIndex& steps = view.recorded;
  std::vector<std::vector<HostSpan>> items(session.threads.size());
  for (const Span& span : session.spans)
    if (takes_time(session.kind(span)) && steps.at(span.begin_ns) >= 0)
      items[span.thread].push_back({{span.begin_ns, span.end_ns}, span.name});
  std::unordered_map<std::uint32_t, std::size_t> by_system;
  for (std::size_t t = 0; t < session.threads.size(); ++t)
    by_system.try_emplace(session.threads[t].system, t);
  for (const Activity& a : session.activities) {
    if ((a.what != What::api && a.what != What::sync) || steps.at(a.start_ns) < 0) continue;
    const auto [at, is_new] = by_system.try_emplace(a.stream, items.size());
    if (is_new) items.emplace_back();
    items[at->second].push_back({{a.start_ns, a.end_ns}, a.name});
  }
  for (auto& of_thread : items)
    std::ranges::stable_sort(of_thread, begins_outside<Interval>, &HostSpan::time);
  return items;
}

std::vector<std::uint64_t> self_times(const std::vector<HostSpan>& items) {
  std::vector<Interval> times;
  for (const HostSpan& item : items) times.push_back(item.time);
  std::vector<std::uint64_t> self(items.size());
  for (const TimeSlice& slice : nest(times).slices)
    self[slice.item] += slice.end_ns - slice.begin_ns;
  return self;
}

std::vector<HostRow> host_rows(const View& view) {
  const Session& session = view.session;
  const double all = static_cast<double>(view.recorded.total_ns());
  std::map<std::uint32_t, HostRow> by_name;
  const auto items = items_by_thread(view);
  for (std::size_t t = 0; t < items.size(); ++t) {
    const std::vector<std::uint64_t> self = self_times(items[t]);
    for (std::size_t i = 0; i < self.size(); ++i) {
      const HostSpan& item = items[t][i];
      const std::string_view kind = listed_kind(session.names[item.name].kind);
      if (kind.empty()) continue;
      HostRow& row = by_name[item.name];
      const std::uint64_t ns = item.time.end_ns - item.time.begin_ns;
      row.kind = kind;
      ++row.count;
      row.total_ns += ns;
      row.self_ns += self[i];
      row.max_ns = std::max(row.max_ns, ns);
      if (view.trainer == t) row.share += ratio(static_cast<double>(self[i]), all);
    }
  }
  std::vector<HostRow> rows;
  for (auto& [name, row] : by_name) {
    row.function = session.name(name);
    rows.push_back(std::move(row));
  }
  std::stable_sort(rows.begin(), rows.end(),
                   [](const HostRow& a, const HostRow& b) { return a.self_ns > b.self_ns; });
  return rows;
}

using Extents = std::array<std::uint32_t, 3>;
using Key =
    std::tuple<std::uint32_t, std::uint32_t, Extents, Extents, std::uint32_t, std::uint64_t>;

void take(std::uint64_t ns, KernelRow& row) {
  row.min_ns = row.count == 0 ? ns : std::min(row.min_ns, ns);
  row.max_ns = std::max(row.max_ns, ns);
  row.total_ns += ns;
  ++row.count;
}

std::string extents_text(const Extents& e) {
  return fmt::format("{}x{}x{}", e[0], e[1], e[2]);
}

// A kernel launched alike, on devices that are alike.
KernelRow kernel_row(const Session& session, const Key& key) {
  const auto& [name, device_id, grid, block, registers, shared] = key;
  KernelRow row{.kernel = session.name(name),
                .launch = fmt::format("grid {} block {}, {} registers, {} B", extents_text(grid),
                                      extents_text(block), registers, shared),
                .tensor_cores = uses_tensor_cores(session.name(name))};
  const auto device = std::ranges::find(session.devices, device_id, &Device::id);
  if (device == session.devices.end() || device->multiprocessors == 0) return row;
  row.blocks_per_multiprocessor =
      static_cast<double>(grid[0]) * grid[1] * grid[2] / device->multiprocessors;
  const Launch launch{grid, block, registers,
                      static_cast<std::uint32_t>(std::min<std::uint64_t>(shared, UINT32_MAX))};
  row.occupancy = occupancy(*device, launch).estimated;
  return row;
}

std::vector<KernelRow> device_kernels(const View& view) {
  const Session& session = view.session;
  const StepIndex& steps = view.recorded;
  std::map<Key, KernelRow> by_key;
  for (const Activity& a : session.activities) {
    if (a.what != What::kernel || steps.at(a.start_ns) < 0) continue;
    const Key key{a.name,  a.device,    a.grid,
                  a.block, a.registers, std::uint64_t{a.smem_static} + a.smem_dynamic};
    const auto [at, is_new] = by_key.try_emplace(key);
    if (is_new) at->second = kernel_row(session, key);
    take(a.end_ns - a.start_ns, at->second);
  }
  std::vector<KernelRow> rows;
  for (auto& [key, row] : by_key) rows.push_back(std::move(row));
  return rows;
}

// Where the host computes, its library's implementations are what kernels are on a device.
std::vector<KernelRow> host_kernels(const View& view, const std::vector<ProgramCall>& calls) {
  const Session& session = view.session;
  const StepIndex& steps = view.recorded;
  const IntervalSet exchanges = exchanges_in_calls(view);
  const std::size_t update = steps_per_update(session);
  std::map<std::string, KernelRow> by_name;
  for (const Span& span : session.spans) {
    if (session.kind(span) != Kind::call) continue;
    const int step = steps.at(span.begin_ns);
    if (step < 0 || returns_at_once(view, update, span.arg, step)) continue;
    const bool is_known = span.arg < calls.size() && !calls[span.arg].implementation.empty();
    const std::string& name = is_known ? calls[span.arg].implementation : session.name(span.name);
    take(span.end_ns - span.begin_ns - exchanges.within(span.begin_ns, span.end_ns), by_name[name]);
  }
  std::vector<KernelRow> rows;
  for (auto& [name, row] : by_name) {
    row.kernel = name;
    rows.push_back(std::move(row));
  }
  return rows;
}

std::vector<KernelRow> kernel_rows(const View& view, const std::vector<ProgramCall>& calls) {
  std::vector<KernelRow> rows =
      view.session.computes_on_host() ? host_kernels(view, calls) : device_kernels(view);
  double all = 0;
  for (const KernelRow& row : rows) all += static_cast<double>(row.total_ns);
  for (KernelRow& row : rows) {
    row.mean_ns = ratio(static_cast<double>(row.total_ns), static_cast<double>(row.count));
    row.share = ratio(static_cast<double>(row.total_ns), all);
  }
  std::stable_sort(rows.begin(), rows.end(),
                   [](const KernelRow& a, const KernelRow& b) { return a.total_ns > b.total_ns; });
  return rows;
}

// Where a layer's time of a phase goes; none: of no call.
double* phase_of(LayerRow& row, const std::string& phase) {
  if (phase == "forward" || phase == "loss") return &row.forward_ns;
  if (phase == "data_grad") return &row.data_grad_ns;
  if (phase == "weight_grad") return &row.weight_grad_ns;
  if (phase == "update") return &row.update_ns;
  return nullptr;
}

struct LayerSums {
  LayerRow row;
  double runs = 0, least_ns = 0;
  bool is_known = true;  // least_ns
};

void add(const CallRow& call, double steps, const Peaks& peaks, LayerSums& sums) {
  const double ns = static_cast<double>(call.total_ns) / steps;
  const double runs = static_cast<double>(call.count) / steps;
  sums.row.ns += ns;
  if (double* phase = phase_of(sums.row, call.phase)) *phase += ns;
  sums.row.flops += call.flops * runs;
  sums.row.bytes += call.bytes * runs;
  sums.row.share += call.share;
  sums.runs += runs;
  const double least = least_ns(call.flops, call.bytes, peaks);
  sums.least_ns += least * runs;
  sums.is_known = sums.is_known && (least > 0 || call.flops + call.bytes <= 0);
}

std::vector<LayerRow> layer_rows(const std::vector<CallRow>& calls, const StepIndex& steps,
                                 const Peaks& peaks) {
  const double n = std::max(1.0, static_cast<double>(steps.size()));
  std::vector<LayerSums> layers;
  std::unordered_map<std::string, std::size_t> index;
  for (const CallRow& call : calls) {
    const std::string& name = call.call < 0 ? call.title : call.layer;
    const auto [at, is_new] = index.try_emplace(name, layers.size());
    if (is_new) layers.emplace_back().row.layer = name;
    add(call, n, peaks, layers[at->second]);
  }
  std::vector<LayerRow> rows;
  for (LayerSums& layer : layers) {
    LayerRow& row = layer.row;
    row.calls = static_cast<std::uint64_t>(layer.runs + 0.5);
    row.flops_per_second = ratio(1e9 * row.flops, row.ns);
    row.bytes_per_second = ratio(1e9 * row.bytes, row.ns);
    if (layer.is_known) row.of_peak = ratio(layer.least_ns, row.ns);
    rows.push_back(std::move(row));
  }
  return rows;
}

std::vector<OpRow> op_rows(const std::vector<CallRow>& calls, const StepIndex& steps) {
  const double n = std::max(1.0, static_cast<double>(steps.size()));
  std::map<std::pair<std::string, std::string>, OpRow> by_op;
  for (const CallRow& call : calls) {
    OpRow& row = by_op[{call.call < 0 ? call.title : call.op, call.phase}];
    const double runs = static_cast<double>(call.count) / n;
    row.count += call.count;
    row.ns += static_cast<double>(call.total_ns) / n;
    row.share += call.share;
    row.flops += call.flops * runs;
    row.bytes += call.bytes * runs;
  }
  std::vector<OpRow> rows;
  for (auto& [key, row] : by_op) {
    row.op = key.first;
    row.phase = key.second;
    row.flops_per_second = ratio(1e9 * row.flops, row.ns);
    rows.push_back(std::move(row));
  }
  std::stable_sort(rows.begin(), rows.end(),
                   [](const OpRow& a, const OpRow& b) { return a.ns > b.ns; });
  return rows;
}

}  // namespace

Work find_work(const View& view) {
  const std::vector<ProgramCall> calls = known_calls(view);
  const AllTimes times = find_times(view, calls.size());
  Work work;
  work.peaks = find_peaks(view);
  work.calls = call_rows(view, calls, times, work.peaks);
  work.layers = layer_rows(work.calls, view.recorded, work.peaks);
  work.ops = op_rows(work.calls, view.recorded);
  work.kernels = kernel_rows(view, calls);
  work.host = host_rows(view);
  work.steps = view.recorded.size();
  double of_calls = 0, all = static_cast<double>(times.others.total_ns),
         divided = times.others.divided_ns;
  for (const CallTimes& call : times.calls) {
    of_calls += static_cast<double>(call.kernels_ns);
    all += static_cast<double>(call.total_ns);
    divided += call.divided_ns;
  }
  work.has_overlaps = divided < 0.99 * all;
  work.attributed = ratio(of_calls, of_calls + static_cast<double>(times.others.kernels_ns));
  return work;
}

}  // namespace warpstep::profiler
