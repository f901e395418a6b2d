// Problems that readers of Kineto traces have. Every rule says which reader, and how it fails.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <map>
#include <set>
#include <unordered_map>

#include "profiler/export/export.h"
#include "profiler/export/kineto_events.h"

namespace warpstep::profiler {
namespace {

enum Rule : int {
  few_steps = 100,
  step_without_number,
  steps_overlap,
  device_step,
  loader_annotation,
  compact_rank,
  work_without_place,
  work_elsewhere,
  many_devices,
  undescribed_device,
  no_stream,
  stream_0,
  no_correlation,
  no_launch,
  driver_only,
  two_launches,
  shared_correlation,
  before_launch,
  repeated_external_id,
  arrow_without_end,
  arrow_without_start,
  arrow_unbound,
  no_length,
  crossing,
};

class Checker {
 public:
  Checker(KinetoEvents trace, std::string_view text) : trace_(std::move(trace)), text_(text) {}

  std::vector<std::string> run() {
    check_steps();
    check_loader();
    check_rank();
    check_work();
    check_launches();
    check_external_ids();
    check_arrows();
    check_tracks();
    return trace_.findings.sentences();
  }

 private:
  using Event = TraceEvent;

  template <class... Args>
  void find(Rule rule, fmt::format_string<Args...> format, Args&&... args) {
    std::string text = fmt::format(format, std::forward<Args>(args)...);
    text[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(text[0])));
    trace_.findings.add(rule, std::move(text));
  }

  std::string_view name(const Event& event) const {
    return event.phase == 'X' ? std::string_view(trace_.names[event.name]) : std::string_view{};
  }

  void check_steps() {
    constexpr std::string_view prefix = "ProfilerStep#";
    std::vector<const Event*> steps;
    for (const Event& event : trace_.events) {
      if (!name(event).starts_with(prefix)) continue;
      if (event.category == EventCategory::device_annotation)
        find(device_step, "{} is a step on a device: torch_tb_profiler counts every step twice.",
             trace_.described(event));
      if (event.category != EventCategory::op && event.category != EventCategory::annotation)
        continue;
      steps.push_back(&event);
      const std::string_view number = name(event).substr(prefix.size());
      if (number.empty() || !std::all_of(number.begin(), number.end(),
                                         [](unsigned char c) { return std::isdigit(c) != 0; }))
        find(step_without_number, "{} has no number: torch_tb_profiler stops at it.",
             trace_.described(event));
    }
    if (steps.size() < 2)
      find(
          few_steps,
          "There {} (ProfilerStep#N); HolisticTraceAnalysis leaves the last one out and needs two.",
          steps.empty() ? "is no step" : "is one step");
    std::sort(steps.begin(), steps.end(),
              [](const Event* a, const Event* b) { return a->begin_ns < b->begin_ns; });
    for (std::size_t i = 1; i < steps.size(); ++i)
      if (steps[i]->begin_ns < steps[i - 1]->end_ns)
        find(steps_overlap, "{} begins before {} ends.", trace_.described(*steps[i]),
             trace_.described(*steps[i - 1]));
  }

  void check_loader() {
    for (const Event& event : trace_.events) {
      if (event.phase != 'X' ||
          (event.category != EventCategory::annotation && event.category != EventCategory::op))
        continue;
      const auto thread = trace_.thread_names.find(trace_.tracks[event.track]);
      if (thread == trace_.thread_names.end()) continue;
      if (thread->second.find("loader") != std::string::npos ||
          thread->second.find("worker") != std::string::npos)
        find(loader_annotation,
             "{} is an annotation or op on a loader's thread: torch_tb_profiler counts it as work "
             "of the CPU in the step; use a separate category.",
             trace_.described(event));
    }
  }

  // HolisticTraceAnalysis finds the rank by the pattern "rank":\s+(\d+) in the text.
  void check_rank() {
    if (!trace_.has_rank) return;
    constexpr std::string_view key = "\"rank\":";
    for (std::size_t at = text_.find(key); at != std::string_view::npos;
         at = text_.find(key, at + 1))
      if (at + key.size() < text_.size() &&
          std::isspace(static_cast<unsigned char>(text_[at + key.size()])) != 0)
        return;
    find(compact_rank,
         "\"rank\" is written without a space after the colon: HolisticTraceAnalysis reads every "
         "rank as 0.");
  }

  void check_work() {
    for (const Event& event : trace_.events) {
      if (event.category != EventCategory::work) continue;
      if (!event.device.has_value()) {
        find(work_without_place, "{} does not say its device.", trace_.described(event));
      } else {
        if (event.pid != event.device)
          find(work_elsewhere,
               "{} is of device {}, but its pid is not: torch_tb_profiler drops it.",
               trace_.described(event), *event.device);
        if (*event.device < 0 || *event.device >= 64)
          find(many_devices, "{} is of device {}; torch_tb_profiler knows 0 to 63.",
               trace_.described(event), *event.device);
        if (std::find(trace_.described_devices.begin(), trace_.described_devices.end(),
                      *event.device) == trace_.described_devices.end())
          find(undescribed_device, "{} is of device {}, which deviceProperties does not describe.",
               trace_.described(event), *event.device);
      }
      if (event.stream.value_or(-1) < 0)
        find(no_stream,
             "{} has no stream of 0 or more: HolisticTraceAnalysis counts it as work of the host.",
             trace_.described(event));
      if (event.stream == 0)
        find(stream_0,
             "{} is on stream 0, which HolisticTraceAnalysis reads as no stream; CUPTI calls it 7.",
             trace_.described(event));
      if (event.correlation.value_or(-1) < 0)
        find(no_correlation, "{} has no correlation, so that its launch is unknown.",
             trace_.described(event));
    }
  }

  struct Launches {
    const Event* work = nullptr;
    const Event* launch = nullptr;
    std::size_t works = 0, runtime = 0, driver = 0;
  };

  std::map<std::int64_t, Launches> launches() const {
    std::map<std::int64_t, Launches> all;
    for (const Event& event : trace_.events) {
      if (event.category != EventCategory::work || event.correlation.value_or(-1) < 0) continue;
      Launches& of_work = all[*event.correlation];
      if (of_work.works++ == 0) of_work.work = &event;
    }
    for (const Event& event : trace_.events) {
      const bool is_runtime = event.category == EventCategory::runtime;
      if ((!is_runtime && event.category != EventCategory::driver) || !event.correlation) continue;
      const auto found = all.find(*event.correlation);
      if (found == all.end()) continue;
      ++(is_runtime ? found->second.runtime : found->second.driver);
      if (found->second.launch == nullptr || is_runtime) found->second.launch = &event;
    }
    return all;
  }

  void check_launches() {
    for (const auto& [correlation, found] : launches()) {
      const std::string work = trace_.described(*found.work);
      if (found.launch == nullptr) {
        find(no_launch, "{} has the correlation {}, which no launch has.", work, correlation);
        continue;
      }
      if (found.runtime == 0)
        find(driver_only,
             "{} was launched by cuda_driver alone, which torch_tb_profiler does not link; write "
             "it as cuda_runtime.",
             work);
      if (found.runtime + found.driver > 1)
        find(two_launches,
             "{} has {} launches of the correlation {}: HolisticTraceAnalysis counts the queue "
             "wrong.",
             work, found.runtime + found.driver, correlation);
      if (found.works > 1)
        find(shared_correlation,
             "{} shares the correlation {} with {} more: readers give all the time of a graph's "
             "launch to one op; give each node its own.",
             work, correlation, found.works - 1);
      if (found.work->begin_ns < found.launch->begin_ns)
        find(before_launch, "{} begins before its launch, {}: the clocks differ.", work,
             trace_.described(*found.launch));
    }
  }

  void check_external_ids() {
    std::unordered_map<std::int64_t, const Event*> seen;
    for (const Event& event : trace_.events) {
      if (event.category != EventCategory::op || event.external_id.value_or(0) <= 0) continue;
      const auto [found, is_new] = seen.try_emplace(*event.external_id, &event);
      if (!is_new)
        find(repeated_external_id,
             "{} has the External id of {}: torch_tb_profiler links kernels to ops by it.",
             trace_.described(event), trace_.described(*found->second));
    }
  }

  void check_arrows() {
    std::set<std::int64_t> starts, ends;
    for (const Event& event : trace_.events)
      if (event.flow.has_value()) (event.phase == 's' ? starts : ends).insert(*event.flow);
    for (const Event& event : trace_.events) {
      if (!event.flow.has_value()) continue;
      if (event.phase == 's' && !ends.contains(*event.flow))
        find(arrow_without_end,
             "{}, an arrow (ac2g {}), starts and ends nowhere: no viewer draws it.",
             trace_.described(event), *event.flow);
      if (event.phase == 'f' && !starts.contains(*event.flow))
        find(arrow_without_start,
             "{}, an arrow (ac2g {}), ends and starts nowhere: no viewer draws it.",
             trace_.described(event), *event.flow);
      if (event.phase == 'f' && !event.binds_enclosing)
        find(arrow_unbound,
             "{}, the end of an arrow (ac2g {}), lacks \"bp\": \"e\": it binds to the next slice.",
             trace_.described(event), *event.flow);
    }
  }

  // Slices of a track must nest; who shows them otherwise drops one.
  void check_tracks() {
    std::vector<const Event*> order;
    for (const Event& event : trace_.events)
      if (event.phase == 'X') order.push_back(&event);
    std::ranges::stable_sort(order,
                             [](const Event* a, const Event* b) { return begins_outside(*a, *b); });
    std::vector<std::vector<const Event*>> open(trace_.tracks.size());
    for (const Event* event : order) {
      if (event->begin_ns == event->end_ns) {
        find(no_length, "{} takes no time: Perfetto may drop it.", trace_.described(*event));
        continue;
      }
      auto& stack = open[event->track];
      while (!stack.empty() && stack.back()->end_ns <= event->begin_ns) stack.pop_back();
      if (!stack.empty() && event->end_ns > stack.back()->end_ns)
        find(crossing, "{} begins within {} and ends after it, both on {}: Perfetto drops one.",
             trace_.described(*event), trace_.described(*stack.back()),
             trace_.tracks[event->track]);
      else
        stack.push_back(event);
    }
  }

  KinetoEvents trace_;
  std::string_view text_;
};

}  // namespace

std::vector<std::string> check_kineto(std::string_view json) {
  return Checker(read_kineto(json), json).run();
}

}  // namespace warpstep::profiler
