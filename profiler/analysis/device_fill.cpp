#include "profiler/analysis/device_fill.h"

#include <algorithm>
#include <map>

#include "profiler/analysis/breakdown.h"
#include "profiler/analysis/device.h"

namespace warpstep::profiler {
namespace {

constexpr double few = 0.5;  // blocks per multiprocessor

struct Event {
  std::uint64_t at_ns = 0;
  bool begins = false;
  std::int64_t blocks = 0, call = -1;

  bool operator<(const Event& other) const {
    return at_ns != other.at_ns ? at_ns < other.at_ns : begins < other.begins;
  }
};

// Begins and ends of a device's kernels that begin in recorded steps, without exchanges between
// ranks: those need few blocks.
std::vector<Event> events_of(const View& view, std::uint32_t device) {
  std::vector<Event> events;
  for (const Activity& a : view.session.activities) {
    if (a.what != What::kernel || a.device != device || a.start_ns >= a.end_ns ||
        view.recorded.at(a.start_ns) < 0 || is_communication(view.session.name(a.name)))
      continue;
    const auto call = call_of(a);
    const Event begin{a.start_ns, true, static_cast<std::int64_t>(blocks_of(a)),
                      call ? static_cast<std::int64_t>(*call) : -1};
    events.push_back(begin);
    events.push_back({a.end_ns, false, begin.blocks, begin.call});
  }
  std::sort(events.begin(), events.end());
  return events;
}

struct Sum {
  double ns = 0, block_ns = 0;
};

DeviceFill fill_of(const View& view, const Device& device) {
  DeviceFill fill{.multiprocessors = device.multiprocessors, .few_ns = 0, .calls = {}};
  std::map<std::int64_t, Sum> by_call;
  std::vector<std::int64_t> running;  // calls of the kernels
  std::int64_t blocks = 0;
  std::uint64_t before = 0;
  for (const Event& event : events_of(view, device.id)) {
    const auto ns = static_cast<double>(event.at_ns - before);
    if (!running.empty() && static_cast<double>(blocks) < few * device.multiprocessors) {
      fill.few_ns += ns;
      const double each = ns / static_cast<double>(running.size());
      for (const std::int64_t call : running) {
        Sum& sum = by_call[call];
        sum.ns += each;
        sum.block_ns += each * static_cast<double>(blocks);
      }
    }
    if (event.begins)
      running.push_back(event.call);
    else
      running.erase(std::ranges::find(running, event.call));
    blocks += event.begins ? event.blocks : -event.blocks;
    before = event.at_ns;
  }
  const auto steps = static_cast<double>(std::max<std::size_t>(1, view.recorded.size()));
  fill.few_ns /= steps;
  for (const auto& [call, sum] : by_call)
    if (sum.ns > 0) fill.calls.push_back({call, sum.ns / steps, sum.block_ns / sum.ns});
  std::ranges::stable_sort(fill.calls, std::ranges::greater(), &FewBlocks::ns);
  return fill;
}

}  // namespace

DeviceFill device_fill(const View& view) {
  DeviceFill most;
  for (const Device& device : view.session.devices) {
    DeviceFill fill = fill_of(view, device);
    if (fill.few_ns > most.few_ns) most = std::move(fill);
  }
  return most;
}

}  // namespace warpstep::profiler
