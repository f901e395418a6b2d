#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "profiler/analysis/analysis.h"
#include "profiler/analysis/table_parts.h"

namespace warpstep::profiler {

using namespace analysis;

std::vector<Table> tables(const Session& session, const Analysis& analysis) {
  return {breakdown_table(analysis),
          steps_table(session, analysis),
          layers_table(analysis),
          calls_table(analysis),
          ops_table(analysis),
          kernels_table(analysis),
          host_table(analysis),
          memory_table(analysis),
          loader_table(analysis),
          stalls_table(analysis),
          critical_path_table(analysis),
          findings_table(analysis),
          devices_table(session, analysis),
          samples_table(session)};
}

namespace analysis {

Table breakdown_table(const Analysis& analysis) {
  const Breakdown& breakdown = analysis.breakdown;
  Table table{"breakdown",
              "Where a step's time goes",
              fmt::format("Means over {} steps, {}; a moment counts once, for the first that it "
                          "belongs to.",
                          breakdown.counted,
                          breakdown.from_spans ? "from spans and activities"
                                               : "from what every step tells"),
              {{"category", "category"},
               {"ns", "time a step", Unit::ns},
               {"share", "share of the step", Unit::share}},
              {}};
  for (std::size_t c = 0; c < categories; ++c) {
    const double ns = breakdown.mean[c];
    table.rows.push_back({std::string(title(static_cast<Category>(c))), cell(ns),
                          breakdown.step_ns > 0 ? Cell(ns / breakdown.step_ns) : Cell()});
  }
  table.rows.push_back(
      {std::string("Total"), cell(breakdown.step_ns), breakdown.step_ns > 0 ? Cell(1.0) : Cell()});
  return table;
}

Table steps_table(const Session& session, const Analysis& analysis) {
  Table table{
      "steps",
      "Steps",
      "All steps that were told, with the parts that their time is the sum of.",
      {{"step", "step", Unit::count}, {"epoch", "epoch", Unit::count}, {"ns", "time", Unit::ns}},
      {}};
  for (std::size_t c = 0; c < categories; ++c)
    table.columns.push_back({fmt::format("{}_ns", name(static_cast<Category>(c))),
                             std::string(title(static_cast<Category>(c))), Unit::ns});
  for (const auto& column :
       {Column{"samples", "samples", Unit::count}, Column{"loss", "loss"},
        Column{"learning_rate", "learning rate"}, Column{"from_spans", "parts from"}})
    table.columns.push_back(column);
  const std::size_t n = std::min(session.steps.size(), analysis.breakdown.steps.size());
  for (std::size_t i = 0; i < n; ++i) {
    const Step& step = session.steps[i];
    const StepParts& parts = analysis.breakdown.steps[i];
    std::vector<Cell> row{cell(step.step), cell(step.epoch),
                          cell(parts.time.end_ns - parts.time.begin_ns)};
    for (const std::uint64_t ns : parts.parts) row.push_back(cell(ns));
    row.insert(row.end(), {step.samples, step.loss, step.learning_rate,
                           std::string(parts.from_spans ? "spans" : "the step")});
    table.rows.push_back(std::move(row));
  }
  return table;
}

Table critical_path_table(const Analysis& analysis) {
  Table table{"critical_path",
              "Critical path",
              "What the length of the recorded steps is made of, walking back from each one's end "
              "along what it waited for; the gain is what a step would be shorter if these took no "
              "time and nothing else moved up.",
              {{"bound", "bound by"},
               {"ns", "time a step", Unit::ns},
               {"share", "share of the step", Unit::share},
               {"gain_ns", "gain if free", Unit::ns}},
              {}};
  for (const PathShare& share : analysis.path.shares)
    table.rows.push_back({share.bound, share.ns, share.share, share.gain_ns});
  return table;
}

Table findings_table(const Analysis& analysis) {
  Table table{"findings",
              "What to do next",
              "Largest expected gain first.",
              {{"key", "finding"},
               {"text", "what"},
               {"evidence", "evidence"},
               {"advice", "advice"},
               {"flag", "option"},
               {"gain_ns", "gain a step", Unit::ns}},
              {}};
  for (const Finding& finding : analysis.findings)
    table.rows.push_back({finding.key, finding.text, finding.evidence, finding.advice,
                          known(finding.flag), known(finding.gain_ns)});
  return table;
}

Table samples_table(const Session& session) {
  Table table{"samples",
              "The machine meanwhile",
              "Metrics sampled during the run, in the units that their names tell.",
              {{"metric", "metric"},
               {"count", "samples", Unit::count},
               {"min", "least"},
               {"mean", "mean"},
               {"max", "most"},
               {"last", "last"}},
              {}};
  struct Level {
    std::int64_t count = 0;
    double least = 0, most = 0, sum = 0, last = 0;
  };
  std::map<std::uint32_t, Level> levels;  // by name: the order in which they were first told
  for (const Sample& sample : session.samples) {
    if (!std::isfinite(sample.value)) continue;
    Level& level = levels[sample.name];
    level.least = level.count == 0 ? sample.value : std::min(level.least, sample.value);
    level.most = level.count == 0 ? sample.value : std::max(level.most, sample.value);
    level.sum += sample.value;
    level.last = sample.value;
    ++level.count;
  }
  for (const auto& [name, level] : levels)
    table.rows.push_back({session.name(name), level.count, level.least,
                          level.sum / static_cast<double>(level.count), level.most, level.last});
  return table;
}

}  // namespace analysis

}  // namespace warpstep::profiler
