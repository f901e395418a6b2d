// A session in other programs' formats. Deterministic: the same session gives the same bytes.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "profiler/analysis/analysis.h"
#include "profiler/analysis/compare.h"
#include "profiler/session/session.h"

namespace warpstep::profiler {

struct KinetoOptions {
  bool split_graphs =
      true;  // a separate correlation for each node of a graph launch, as readers expect
  // Calls that the CPU computed as kernels of a device that the file says is the CPU, for readers
  // that analyse devices only. Throws UsageError when a device computed.
  bool cpu_as_device = false;
};
// Chrome trace events in Kineto's dialect (HolisticTraceAnalysis, torch_tb_profiler, Perfetto).
std::string kineto_json(const Session& session, const KinetoOptions& options = {});
std::string gzipped(std::string_view text);  // without a time stamp
// "train_4242.1700000000000000000.pt.trace.json.gz"
std::string kineto_name(const Session& session);

// Problems that readers of the Kineto trace would have: one sentence each, empty for a sound trace.
// Throws DataError when the text is not JSON.
std::vector<std::string> check_kineto(std::string_view json);

// Perfetto's native protobuf.
std::string perfetto_trace(const Session& session);

// TensorBoard's event file: every step with the tags of --tensorboard (scalars.h), and "train/ms",
// all of its time. `records` are the lines of the run's metrics.jsonl, of which evaluations, epochs
// and what the session does not have are added.
std::string tensorboard_events(const Session& session, const std::vector<Json>& records = {});
// A file of its own with the machine's samples, the mean of each second: its steps are seconds.
std::string tensorboard_machine_events(const Session& session);
std::string tensorboard_name(const Session& session);  // "events.out.tfevents.1700000000.host"

// XPlane, for xprof and TensorBoard's profile plugin.
std::string xplane_space(const Session& session);
// "plugins/profile/2026_11_23_19_45_12/HOST.xplane.pb", as its readers want it
std::string xplane_name(const Session& session);

// The memory plan of a step as a snapshot of PyTorch's allocator, a pickle: for
// https://pytorch.org/memory_viz and torch.cuda._memory_viz. A us of its time is a call.
std::string memory_snapshot(const Session& session);

// One page, nothing fetched from anywhere; with a section of what changed since another run, unless
// null.
std::string html_report(const Session& session, const Analysis& analysis,
                        const Comparison* comparison = nullptr);
struct TerminalOptions {
  int depth = 1;  // of the tree of modules; 0: without it
};
// The summary of a run: breakdown, the tree of modules, the ten longest calls, three findings.
std::string terminal_report(const Session& session, const Analysis& analysis,
                            const TerminalOptions& options = {});

}  // namespace warpstep::profiler
