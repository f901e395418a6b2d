#include "bench/call_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace warpstep::bench {
namespace {

double milliseconds(const TimedCall& call) {
  return 1e3 * call.seconds;
}
double gflops_per_s(const TimedCall& call) {
  return call.cost.flops / call.seconds / 1e9;
}
double gbytes_per_s(const TimedCall& call) {
  return call.cost.bytes / call.seconds / 1e9;
}

std::string_view name(Verdict verdict) {
  switch (verdict) {
    case Verdict::brief: return "brief";
    case Verdict::fast: return "fast";
    case Verdict::excused: return "excused";
    case Verdict::slow: return "slow";
  }
  return "unknown";
}

std::string_view bound(const JudgedCall& call) {
  return call.bytes_bind ? "bytes" : "flops";
}

std::string remark(const JudgedCall& call) {
  if (call.verdict == Verdict::excused) return fmt::format("excused: {}", call.excuse->reason);
  if (call.verdict != Verdict::slow) return {};
  return call.excuse ? fmt::format("SLOW: excused only down to {:.4g} %, by line {}",
                                   100 * call.excuse->least_share, call.excuse->line)
                     : "SLOW";
}

std::string row(const JudgedCall& call, std::string_view title, std::size_t width) {
  std::string text =
      fmt::format("  {:<{}}  {:<28} {:>8.2f} {:>8.1f} {:>7.1f} {:>6.1f} %  {}  {}", title, width,
                  call.timed.implementation, milliseconds(call.timed), gflops_per_s(call.timed),
                  gbytes_per_s(call.timed), 100 * call.share, bound(call), remark(call));
  text.erase(text.find_last_not_of(' ') + 1);
  return text + "\n";
}

std::string head(std::size_t width) {
  return fmt::format("  {:<{}}  {:<28} {:>8} {:>8} {:>7} {:>8}  {}\n", "call", width,
                     "implementation", "ms", "GFLOP/s", "GB/s", "of roof", "bound");
}

std::size_t count(std::span<const JudgedModel> models, Verdict verdict) {
  std::size_t calls = 0;
  for (const JudgedModel& model : models)
    for (const JudgedCall& call : model.calls) calls += call.verdict == verdict;
  return calls;
}

template <class Wanted>
std::vector<const JudgedCall*> calls_of(std::span<const JudgedModel> models, Wanted wanted) {
  std::vector<const JudgedCall*> found;
  for (const JudgedModel& model : models)
    for (const JudgedCall& call : model.calls)
      if (wanted(call)) found.push_back(&call);
  return found;
}

}  // namespace

double JudgedCall::lost_ms(const Limits& limits) const {
  return milliseconds(timed) * (1 - share / limits.minimum_share);
}

bool is_slow(const TimedCall& call, const CpuRoofs& roofs, const Limits& limits) {
  return call.seconds > limits.above_s &&
         roofs.share(call.cost, call.seconds) < limits.minimum_share;
}

JudgedModel judge(const ModelSize& size, const CpuRoofs& roofs, std::vector<TimedCall> calls,
                  const Limits& limits, std::span<const Excuse> excuses) {
  JudgedModel model{.size = size, .roofs = roofs, .calls = {}};
  for (TimedCall& timed : calls) {
    JudgedCall call{.timed = std::move(timed), .name = {}};
    call.name = fmt::format("{}/{}", size.name(), call.timed.title);
    call.share = roofs.share(call.timed.cost, call.timed.seconds);
    call.bytes_bind = roofs.bytes_bind(call.timed.cost);
    if (is_slow(call.timed, roofs, limits)) {
      const auto excuse = std::find_if(excuses.begin(), excuses.end(),
                                       [&](const Excuse& e) { return e.matches(call.name); });
      call.excuse = excuse == excuses.end() ? nullptr : &*excuse;
      const bool excused = call.excuse && call.share >= call.excuse->least_share;
      call.verdict = excused ? Verdict::excused : Verdict::slow;
    } else if (call.timed.seconds > limits.above_s) {
      call.verdict = Verdict::fast;
    }
    model.calls.push_back(std::move(call));
  }
  return model;
}

std::string roofs_text(const CpuRoofs& roofs) {
  return fmt::format("{:.1f} GFLOP/s, {:.1f} GB/s", roofs.flops_per_s / 1e9,
                     roofs.bytes_per_s / 1e9);
}

std::string table(const JudgedModel& model, bool all) {
  std::size_t width = 4, judged = 0;
  double total_ms = 0, judged_ms = 0;
  for (const JudgedCall& call : model.calls) {
    total_ms += milliseconds(call.timed);
    if (call.verdict != Verdict::brief) {
      ++judged;
      judged_ms += milliseconds(call.timed);
    }
    if (all || call.verdict != Verdict::brief) width = std::max(width, call.timed.title.size());
  }
  std::string text = fmt::format(
      "{}, batch {}: {} calls in {:.1f} ms, of which {} in {:.1f} ms are judged; roofs {}\n",
      model.size.name(), model.size.batch, model.calls.size(), total_ms, judged, judged_ms,
      roofs_text(model.roofs));
  if (all || judged > 0) text += head(width);
  for (const JudgedCall& call : model.calls)
    if (all || call.verdict != Verdict::brief) text += row(call, call.timed.title, width);
  return text + "\n";
}

std::string summary(std::span<const JudgedModel> models, const Limits& limits) {
  std::vector<const JudgedCall*> slow =
      calls_of(models, [](const JudgedCall& call) { return call.verdict == Verdict::slow; });
  std::stable_sort(slow.begin(), slow.end(), [&](const JudgedCall* a, const JudgedCall* b) {
    return a->lost_ms(limits) > b->lost_ms(limits);
  });
  std::string text;
  std::size_t width = 4;
  for (const JudgedCall* call : slow) width = std::max(width, call->name.size());
  if (!slow.empty()) text += "slow calls, those that lose most first:\n" + head(width);
  for (const JudgedCall* call : slow) text += row(*call, call->name, width);
  const std::size_t excused = count(models, Verdict::excused);
  const std::size_t fast = count(models, Verdict::fast);
  text += fmt::format(
      "{}: of {} calls above {:g} ms, {} reach {:.0f} % of their roof, {} are excused, {} are "
      "slow\n",
      slow.empty() ? "passed" : "FAILED", fast + excused + slow.size(), 1e3 * limits.above_s, fast,
      100 * limits.minimum_share, excused, slow.size());
  return text;
}

std::vector<const Excuse*> stale(std::span<const Excuse> excuses,
                                 std::span<const JudgedModel> models, bool all_models) {
  std::vector<const Excuse*> found;
  for (const Excuse& excuse : excuses) {
    const auto used =
        calls_of(models, [&](const JudgedCall& call) { return call.excuse == &excuse; });
    if (!used.empty()) continue;
    const auto matched =
        calls_of(models, [&](const JudgedCall& call) { return excuse.matches(call.name); });
    if (all_models || !matched.empty()) found.push_back(&excuse);
  }
  return found;
}

bool any_slow(std::span<const JudgedModel> models) {
  return count(models, Verdict::slow) > 0;
}

nlohmann::json report_json(std::span<const JudgedModel> models) {
  auto list = nlohmann::json::array();
  for (const JudgedModel& model : models) {
    auto calls = nlohmann::json::array();
    for (const JudgedCall& call : model.calls)
      calls.push_back({{"call", call.timed.title},
                       {"phase", call.timed.phase},
                       {"implementation", call.timed.implementation},
                       {"ms", milliseconds(call.timed)},
                       {"flops", call.timed.cost.flops},
                       {"bytes", call.timed.cost.bytes},
                       {"share", call.share},
                       {"bound", bound(call)},
                       {"verdict", name(call.verdict)}});
    const bool is_text = model.size.model->is_text();
    list.push_back({{"model", model.size.model->name},
                    is_text ? nlohmann::json::array({"sequence", model.size.sequence})
                            : nlohmann::json::array({"image", model.size.image}),
                    {"batch", model.size.batch},
                    {"flops_per_s", model.roofs.flops_per_s},
                    {"bytes_per_s", model.roofs.bytes_per_s},
                    {"calls", std::move(calls)}});
  }
  return list;
}

}  // namespace warpstep::bench
