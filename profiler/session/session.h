// A session: the raw data of a profiled run, from which all analyses are computed.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "engine/core/phase.h"
#include "engine/core/record.h"

namespace warpstep::profiler {

using Json = nlohmann::ordered_json;

// All times are ns of CLOCK_MONOTONIC (engine/core/clock.h). Sources map a device's times to it.

// A training step, recorded at every level except off. The five parts add up to end - begin.
struct Step {
  std::uint64_t step = 0;      // of the run, from 1
  std::uint64_t epoch = 0;     // from 1
  std::uint64_t begin_ns = 0;  // end of the previous step, or begin of the run, epoch or evaluation
  std::uint64_t end_ns = 0;
  std::uint64_t data_ns = 0;     // the trainer waited for a batch
  std::uint64_t copies_ns = 0;   // it waited for a copy to the device
  std::uint64_t kernels_ns = 0;  // the device's own clock, first call to last
  std::uint64_t cpu_ns = 0;      // the trainer's thread prepared, enqueued, and notified observers
  std::uint64_t other_ns = 0;    // the rest: idle gaps, the scheduler
  std::int64_t samples = 0;
  double loss = 0;
  double learning_rate = 0;
  std::int64_t correct = 0;  // samples
};

// An entry of record::Span, note() or mark().
struct Span {
  std::uint64_t begin_ns = 0, end_ns = 0;
  std::uint64_t arg = 0;
  std::uint32_t name = 0;    // into Session::names
  std::uint32_t thread = 0;  // into Session::threads
};

// The kind of an activity.
enum class What : std::uint8_t {
  kernel,
  copy,      // between memories
  set,       // memset
  api,       // a call of the runtime or driver on a host thread
  sync,      // a host thread waited for the device
  graph,     // a whole graph launch
  overhead,  // of CUPTI
};

// What a device did, or the host for it; independent of CUPTI's versions.
struct Activity {
  std::uint64_t start_ns = 0, end_ns = 0;
  std::uint64_t graph_node = 0;   // 0: not in a graph
  std::uint64_t bytes = 0;        // of copies and sets
  std::uint32_t correlation = 0;  // the same for a launch (What::api) and its work; 0: unknown
  std::uint32_t external = 0;     // 1 + the call's index; 0: none
  std::uint32_t name = 0;         // into Session::names
  std::uint32_t device = 0;
  std::uint32_t stream = 0;  // for What::api and What::sync: the thread, gettid()
  std::uint32_t context = 0;
  std::uint32_t graph = 0;
  std::uint32_t smem_static = 0, smem_dynamic = 0;  // bytes per block
  std::array<std::uint32_t, 3> grid{}, block{};
  std::uint16_t registers = 0;  // per thread
  What what = What::kernel;
  std::uint8_t copy_kind = 0;  // CUpti_ActivityMemcpyKind: 1 HtoD, 2 DtoH, 8 DtoD
  std::uint8_t source_memory = 0,
               target_memory = 0;  // CUpti_ActivityMemoryKind: 1 pageable, 2 pinned, 3 device
  std::uint8_t reserved[6] = {};
};

// A value at one moment, from the host's sampler, NVML or PM sampling.
struct Sample {
  std::uint64_t at_ns = 0;
  std::uint32_t name = 0;  // into Session::names: "cpu 0 %", "process rss bytes", ...
  std::uint32_t reserved = 0;
  double value = 0;
};

// A reading of all clocks at the same time.
struct ClockReading {
  std::uint64_t monotonic_ns = 0;
  std::uint64_t realtime_ns = 0;
  std::uint64_t device_ns = 0;  // cuptiGetTimestamp; 0 without it
  std::uint64_t error_ns = 0;   // how long the reading took
};

// Rank 0's clock as read by this process over the network; see recorder/rank_clock.h.
struct PeerClock {
  std::uint64_t at_ns = 0;          // of this process, halfway between request and answer
  std::uint64_t peer_ns = 0;        // of rank 0; the error is at most half of the round trip
  std::uint64_t round_trip_ns = 0;  // of the shortest exchange
};

// Consecutive steps that were recorded with spans.
struct Window {
  std::uint64_t first_step = 0, last_step = 0;  // of the run, both included
  std::uint64_t begin_ns = 0, end_ns = 0;
  std::uint64_t deep = 0;      // 1: with device activities, but where it is cut
  std::uint64_t complete = 0;  // 0: no analysis counts it
  std::uint64_t past = 0;      // 1: kept when it was over, by `warpstep profile --last`
  // 1: the session ends inside it. Its last step is the last one whose spans are all there; device
  // activities are written when a window closes, and lack.
  std::uint64_t cut = 0;
};

// A stretch of the past that was kept when it was over: what rings still had. A slow step's spans
// are in Session::past, those that were asked for in Session::spans.
struct Kept {
  std::uint64_t begin_ns = 0, end_ns = 0;
  std::uint64_t first_step = 0, last_step = 0;  // both included
  std::uint64_t step = 0;                       // the slow one; 0: asked for
  std::uint64_t median_ns = 0;                  // of the steps before the slow one
  std::uint64_t asked_ns = 0;                   // how long a past was asked for
};

struct Device {
  std::uint32_t id = 0;
  std::uint32_t compute_major = 0, compute_minor = 0;
  std::uint32_t multiprocessors = 0;
  std::uint32_t max_threads_per_block = 0, max_threads_per_multiprocessor = 0;
  std::uint32_t max_blocks_per_multiprocessor = 0;
  std::uint32_t registers_per_block = 0, registers_per_multiprocessor = 0;
  std::uint32_t warp_size = 0;
  std::uint64_t total_memory = 0;  // bytes, like the following
  std::uint64_t shared_per_block = 0, shared_per_block_optin = 0, shared_per_multiprocessor = 0;
  std::uint64_t reserved_shared_per_block = 0;
  std::uint32_t name = 0;  // into Session::names
  std::uint32_t reserved = 0;
};

// Lost data, so that a report can say how far it may be trusted.
struct Losses {
  std::uint64_t entries = 0;        // lost by full rings
  std::uint64_t activities = 0;     // dropped by CUPTI
  std::uint64_t without_times = 0;  // activities whose start or end is 0
  std::uint64_t cut_bytes = 0;      // of an incomplete chunk at the end of a killed run's file
  // Chunks damaged after they were written, and records that refer to names in such chunks.
  std::uint64_t damaged_chunks = 0, damaged_bytes = 0, damaged_records = 0;
};

static_assert(std::is_trivially_copyable_v<Activity> && sizeof(Activity) == 104);
static_assert(sizeof(Step) == 104 && sizeof(Span) == 32 && sizeof(Sample) == 24);

struct Thread {
  std::uint32_t system = 0;  // gettid()
  std::string name;          // "main", "loader 0", "copier"
};

using record::Kind;
using Name = record::NameInfo;     // text and kind
using Phase = record::PhaseEntry;  // of the run: start, an evaluation, ...; at every level but off

struct Session {
  // Objects; empty if the run did not record them:
  Json stamp;    // versions, options, seed, host, device, quotas: see stamp.h
  Json program;  // calls, values, memory plan: explain_json() of engine/explain
  Json loader;   // {"workers", "prefetch", "batch", "tier", "encoding", "steps_per_epoch", ...}
  Json peaks;    // {"flops_per_second": {"fp32": x}, "bytes_per_second": y}, measured; may be empty
  std::vector<std::string> notes;  // data that could not be recorded, and why: one sentence each

  std::vector<Name> names;
  std::vector<Thread> threads;
  std::vector<Device> devices;  // empty: the host computed
  std::vector<Step> steps;      // in order
  std::vector<Window> windows;
  std::vector<Span> spans;           // by thread, then by begin, then by falling length
  std::vector<Activity> activities;  // by start
  std::vector<Sample> samples;       // by time
  std::vector<ClockReading> clocks;
  std::vector<PeerClock> peer_clocks;  // in order; empty for rank 0
  std::vector<Kept> kept;              // in the order in which they were written
  std::vector<Span> past;              // of slow steps, as `spans`; no other analysis counts them
  std::vector<Phase> phases;           // by begin, those around others first
  Losses losses;

  const std::string& name(std::uint32_t id) const { return names[id].text; }
  Kind kind(const Span& span) const { return names[span.name].kind; }
  bool computes_on_host() const { return devices.empty(); }
};

// CUPTI writes times of 0 when its buffers are full.
inline bool has_times(const Activity& activity) {
  return activity.start_ns != 0 && activity.end_ns != 0;
}

// Whether it is the device's own work, not a host thread's.
inline bool is_on_device(const Activity& activity) {
  return activity.what == What::kernel || activity.what == What::copy ||
         activity.what == What::set || activity.what == What::graph;
}

// The index of the program's call that an activity is of; empty: of none.
inline std::optional<std::uint64_t> call_of(const Activity& activity) {
  return activity.external != 0 ? std::optional<std::uint64_t>(activity.external - 1)
                                : std::nullopt;
}

// The earliest time of steps, spans, activities, samples and the first clock reading; 0 without
// any.
std::uint64_t earliest_ns(const Session& session);

// Whether the activity belongs to the host or to a device that the session describes.
bool has_device(const Session& session, const Activity& activity);

// Reads a session file: all complete chunks, up to the end or to the point where a killed process
// stopped (Losses::cut_bytes). Chunks with a wrong checksum are left out (Losses::damaged_chunks).
// A window that was open there ends with the last step whose spans were written (Window::cut), and
// is complete unless it lacks device activities that other windows have.
// Throws DataError that names the file for content that no run writes: a missing name, thread or
// device, an end before its begin, steps that overlap or whose numbers do not rise, a phase longer
// than from its begin to its end, a sample that is no finite number, times more than 2^53 ns (104
// days) apart, the precision of exports.
Session read_session(const std::filesystem::path& path);
Session parse_session(std::string_view bytes, const std::string& path);  // `path` for messages

// For sessions made in memory: finish_session() sorts the records and checks names, threads and the
// order of times; refuse_impossible() does the other checks of read_session(). Both throw
// DataError.
void finish_session(Session& session, const std::string& path);
void refuse_impossible(const Session& session, const std::string& path);

}  // namespace warpstep::profiler
