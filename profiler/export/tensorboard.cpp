#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "profiler/analysis/scope.h"
#include "profiler/export/event_file.h"
#include "profiler/export/export.h"
#include "profiler/export/launches.h"
#include "profiler/export/scalars.h"

namespace warpstep::profiler {
namespace {

double seconds(const TraceFacts& facts, std::uint64_t monotonic_ns) {
  return static_cast<double>(facts.realtime_ns(monotonic_ns)) / 1e9;
}

double ms(std::uint64_t ns) {
  return static_cast<double>(ns) / 1e6;
}

// "images_per_second" or "tokens_per_second", as the run's own records have it.
std::string throughput_key(const std::vector<Json>& records) {
  for (const Json& record : records)
    for (const char* key : {"images_per_second", "tokens_per_second"})
      if (record.contains(key)) return key;
  return "samples_per_second";
}

// A step as a record of metrics.jsonl, and "ms", all of its time.
Json record_of(const Step& step, const std::string& throughput) {
  const double all_ms = ms(step.end_ns - step.begin_ns);
  Json record{{"kind", "step"}, {"epoch", step.epoch}, {"loss", step.loss}};
  if (step.samples > 0) {
    const auto samples = static_cast<double>(step.samples);
    if (std::isfinite(step.loss))  // else a skipped step, which has no score
      record["accuracy"] = static_cast<double>(step.correct) / samples;
    if (all_ms > 0) record[throughput] = samples / (all_ms / 1000);
  }
  record.update({{"learning_rate", step.learning_rate},
                 {"data_ms", ms(step.data_ns)},
                 {"kernels_ms", ms(step.kernels_ns)},
                 {"copies_ms", ms(step.copies_ns)},
                 {"cpu_ms", ms(step.cpu_ns)},
                 {"other_ms", ms(step.other_ns)},
                 {"ms", all_ms}});
  return record;
}

struct ScalarEvent {
  double wall = 0;
  std::uint64_t step = 0;
  std::vector<Scalar> scalars;
};

// What the run recorded, without what the session says of the same step.
void add_records(const std::vector<Json>& records, std::uint64_t last_step,
                 const std::map<std::uint64_t, std::size_t>& by_step,
                 std::vector<ScalarEvent>& events) {
  for (const Json& record : records) {
    const std::uint64_t number = fields::count(record, "step");
    if (!record.is_object() || number > last_step) continue;
    std::vector<Scalar> scalars = scalars_of(record);
    const auto found = by_step.find(number);
    if (found != by_step.end())
      std::erase_if(scalars, [&](const Scalar& scalar) {
        const auto& known = events[found->second].scalars;
        return std::any_of(known.begin(), known.end(),
                           [&](const Scalar& other) { return other.tag == scalar.tag; });
      });
    if (!scalars.empty())
      events.push_back({fields::number(record, "time"), number, std::move(scalars)});
  }
}

}  // namespace

std::string tensorboard_events(const Session& session, const std::vector<Json>& records) {
  const TraceFacts facts = trace_facts(session);
  const std::string throughput = throughput_key(records);
  std::vector<ScalarEvent> events;
  std::map<std::uint64_t, std::size_t> by_step;
  for (const Step& step : session.steps) {
    by_step[step.step] = events.size();
    events.push_back(
        {seconds(facts, step.end_ns), step.step, scalars_of(record_of(step, throughput))});
  }
  if (!session.steps.empty()) add_records(records, session.steps.back().step, by_step, events);
  std::stable_sort(events.begin(), events.end(),
                   [](const ScalarEvent& a, const ScalarEvent& b) { return a.step < b.step; });
  std::string file = version_event(seconds(facts, facts.base_ns));
  for (const ScalarEvent& event : events)
    file += scalars_event(event.wall, event.step, event.scalars);
  return file;
}

std::string tensorboard_machine_events(const Session& session) {
  struct Mean {
    double sum = 0;
    std::uint64_t count = 0;
  };
  const TraceFacts facts = trace_facts(session);
  std::map<std::uint64_t, std::map<std::string, Mean>> by_second;
  for (const Sample& sample : session.samples)
    if (const auto scalar = machine_scalar(session.name(sample.name), sample.value)) {
      Mean& mean = by_second[(sample.at_ns - facts.base_ns) / 1'000'000'000][scalar->tag];
      mean.sum += scalar->value;
      ++mean.count;
    }
  std::string file = version_event(seconds(facts, facts.base_ns));
  for (const auto& [second, means] : by_second) {
    std::vector<Scalar> scalars;
    for (const auto& [tag, mean] : means)
      scalars.push_back({tag, mean.sum / static_cast<double>(mean.count)});
    file += scalars_event(seconds(facts, facts.base_ns + second * 1'000'000'000), second, scalars);
  }
  return file;
}

std::string tensorboard_name(const Session& session) {
  const TraceFacts facts = trace_facts(session);
  return event_file_name(facts.realtime_ns(facts.base_ns) / 1'000'000'000, facts.host);
}

}  // namespace warpstep::profiler
