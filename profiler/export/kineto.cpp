// Kineto's Chrome trace events, one a line: first the metadata, then all by time.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <set>
#include <utility>

#include "profiler/export/json_text.h"
#include "profiler/export/kineto_slices.h"

namespace warpstep::profiler {
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
        slices_(kineto_slices(session, facts_, options)) {}

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
        " \"distributedInfo\": {{\"backend\": \"nccl\", \"rank\": {}, \"world_size\": {}}},\n"
        " \"displayTimeUnit\": \"ms\",\n \"baseTimeNanoseconds\": {},\n",
        spaced(device_properties(session_)), stamped(session_, "rank", 0),
        stamped(session_, "world_size", 1), facts_.realtime_ns(facts_.base_ns));
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

  // The trainer's thread first, then the others as they are numbered; a lane beside its track.
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
    // A lane is a stream of its own for readers too, who take work of one stream for serial.
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
  std::vector<Line> lines_;
  std::string out_;
  bool is_first_ = true;
};

}  // namespace

std::string kineto_json(const Session& session, const KinetoOptions& options) {
  return Writer(session, options).run();
}

std::string kineto_name(const Session& session) {
  return trace_name(trace_facts(session)) + ".gz";
}

}  // namespace warpstep::profiler
