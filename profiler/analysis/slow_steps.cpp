#include "profiler/analysis/slow_steps.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <optional>
#include <utility>

#include "profiler/analysis/compare_statistics.h"
#include "profiler/analysis/scope.h"
#include "profiler/analysis/tables.h"

namespace warpstep::profiler {
namespace {

constexpr std::size_t most_steps = 5, most_spans = 3;
constexpr std::size_t most_kept = 20;  // that a run writes (recorder/flight.h); more are damage
constexpr double least_span = 0.1;     // of what the step took longer

struct Part {
  const char* name;
  std::uint64_t Step::*ns;
};
constexpr std::array parts{Part{"loader wait", &Step::data_ns}, Part{"copies", &Step::copies_ns},
                           Part{"kernels", &Step::kernels_ns}, Part{"CPU", &Step::cpu_ns},
                           Part{"idle, other", &Step::other_ns}};

// The medians of the parts, of steps with an update and of those without.
class UsualParts {
 public:
  explicit UsualParts(const Session& session) : update_(steps_per_update(session)) {
    for (const bool updates : {false, true})
      for (std::size_t p = 0; p < parts.size(); ++p) {
        std::vector<double> values;
        for (const Step& step : session.steps)
          if (ends_update(step) == updates)
            values.push_back(static_cast<double>(step.*parts[p].ns));
        medians_[updates][p] = median(std::move(values));
      }
  }

  double median_ns(const Step& like, std::size_t part) const {
    return medians_[ends_update(like)][part];
  }

 private:
  bool ends_update(const Step& step) const { return update_ > 1 && step.step % update_ == 0; }

  std::size_t update_;
  std::array<std::array<double, parts.size()>, 2> medians_{};
};

// Spans that are as long as the step, or around it, say nothing.
std::string longest_spans(const Session& session, const Step& step, double grew_ns) {
  std::map<std::pair<std::uint32_t, std::uint32_t>, double> by_name;
  for (const Span& span : session.past) {
    const std::uint64_t begin = std::max(span.begin_ns, step.begin_ns);
    const std::uint64_t end = std::min(span.end_ns, step.end_ns);
    const Kind kind = session.kind(span);
    const bool is_step = kind == Kind::range && session.name(span.name) == "step";
    if (begin >= end || is_step || kind == Kind::idle || kind == Kind::mark) continue;
    double& longest = by_name[{span.name, span.thread}];
    longest = std::max(longest, static_cast<double>(end - begin));
  }
  std::vector<std::pair<double, std::string>> spans;
  for (const auto& [id, ns] : by_name)
    if (ns >= least_span * grew_ns)
      spans.emplace_back(ns, fmt::format("{} {} ({})", quantity(ns, Unit::ns),
                                         session.name(id.first), session.threads[id.second].name));
  std::ranges::stable_sort(spans, std::ranges::greater(),
                           [](const auto& span) { return span.first; });
  std::string text;
  for (std::size_t i = 0; i < std::min(spans.size(), most_spans); ++i)
    text += (i == 0 ? "" : ", ") + spans[i].second;
  return text;
}

SlowStep slow_step(const Session& session, const UsualParts& usual, const Step& step,
                   const Kept& kept) {
  SlowStep slow{.step = step.step,
                .ns = static_cast<double>(step.end_ns - step.begin_ns),
                .median_ns = static_cast<double>(kept.median_ns)};
  for (std::size_t p = 0; p < parts.size(); ++p) {
    const double grew = static_cast<double>(step.*parts[p].ns) - usual.median_ns(step, p);
    if (grew <= slow.grew_ns) continue;
    slow.grew_ns = grew;
    slow.part = parts[p].name;
  }
  slow.ran = longest_spans(session, step, slow.grew_ns);
  return slow;
}

}  // namespace

std::vector<SlowStep> slow_steps(const Session& session) {
  std::vector<SlowStep> slow;
  std::optional<UsualParts> usual;
  for (const Kept& kept : session.kept) {
    if (kept.step == 0) continue;
    const auto step = std::ranges::lower_bound(session.steps, kept.step, {}, &Step::step);
    if (step == session.steps.end() || step->step != kept.step) continue;
    if (!usual) usual.emplace(session);
    slow.push_back(slow_step(session, *usual, *step, kept));
    if (slow.size() == most_kept) break;
  }
  std::ranges::stable_sort(slow, std::ranges::greater(), &SlowStep::ns);
  slow.resize(std::min(slow.size(), most_steps));
  return slow;
}

Table slow_steps_table(const std::vector<SlowStep>& steps) {
  Table table{"slow_steps",
              "Slow steps",
              "Steps above 3 times the median of those before them; what ran then is known from "
              "spans that are always kept for a while.",
              {{"step", "step"},
               {"ns", "time", Unit::ns},
               {"median_ns", "median", Unit::ns},
               {"part", "part that grew"},
               {"grew_ns", "by", Unit::ns},
               {"ran", "longest spans in it"}},
              {}};
  for (const SlowStep& step : steps)
    table.rows.push_back({cell(step.step), step.ns, known(step.median_ns), known(step.part),
                          known(step.grew_ns), known(step.ran)});
  return table;
}

}  // namespace warpstep::profiler
