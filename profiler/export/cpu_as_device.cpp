#include "profiler/export/cpu_as_device.h"

#include <algorithm>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "engine/core/error.h"
#include "profiler/analysis/scope.h"
#include "profiler/export/launches.h"

namespace warpstep::profiler {
namespace {

std::uint32_t add_name(Session& session, Kind kind, std::string text) {
  session.names.push_back({std::move(text), kind});
  return static_cast<std::uint32_t>(session.names.size() - 1);
}

std::string cpu_name(const Session& session) {
  const std::string model = fields::text(fields::child(session.stamp, "cpu"), "model");
  return model.empty() ? "CPU shown as a device" : "CPU shown as a device: " + model;
}

// Ids of streams: 7 is the trainer's, as of the stream that CUDA programs use unless they ask.
class Streams {
 public:
  explicit Streams(std::uint32_t trainer) : streams_{{trainer, 7}} {}
  std::uint32_t of(std::uint32_t thread) {
    return streams_.try_emplace(thread, static_cast<std::uint32_t>(7 + streams_.size()))
        .first->second;
  }

 private:
  std::map<std::uint32_t, std::uint32_t> streams_;
};

}  // namespace

Session cpu_as_device(Session session) {
  if (!session.computes_on_host())
    fail<UsageError>("this run computed on a GPU, whose kernels the file has anyway");
  const std::uint32_t launch_name = add_name(session, Kind::host_api, "cudaLaunchKernel");
  Streams streams(trace_facts(session).trainer);
  std::map<std::uint32_t, std::uint64_t> ends;  // of the last call, by thread
  for (const Span& span : session.spans) {
    if (session.kind(span) != Kind::call || span.end_ns <= span.begin_ns + 1) continue;
    if (const auto last = ends.find(span.thread);
        last != ends.end() && span.begin_ns < last->second)
      continue;
    ends[span.thread] = span.end_ns;
    Activity kernel{.start_ns = span.begin_ns + 1,
                    .end_ns = span.end_ns,
                    .correlation = static_cast<std::uint32_t>(session.activities.size() / 2 + 1),
                    .name = span.name,
                    .stream = streams.of(span.thread),
                    .grid = {1, 1, 1},
                    .block = {1, 1, 1},
                    .what = What::kernel};
    if (span.arg < std::numeric_limits<std::uint32_t>::max())
      kernel.external = static_cast<std::uint32_t>(span.arg + 1);
    Activity launch{.start_ns = span.begin_ns,
                    .end_ns = span.begin_ns + 1,
                    .correlation = kernel.correlation,
                    .name = launch_name,
                    .stream = session.threads[span.thread].system,
                    .what = What::api};
    session.activities.push_back(launch);
    session.activities.push_back(kernel);
  }
  std::stable_sort(session.activities.begin(), session.activities.end(),
                   [](const Activity& a, const Activity& b) { return a.start_ns < b.start_ns; });
  Device device{.id = 0, .multiprocessors = 1, .warp_size = 1};
  device.name = add_name(session, Kind::range, cpu_name(session));
  session.devices.push_back(device);
  if (!session.stamp.is_object()) session.stamp = Json::object();
  session.stamp["cpu_as_device"] =
      "device 0 is the CPU: its kernels are the calls that the CPU computed, and their launches "
      "were added at the begins of these calls";
  return session;
}

}  // namespace warpstep::profiler
