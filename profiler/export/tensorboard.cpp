#include <string>
#include <vector>

#include "profiler/export/event_file.h"
#include "profiler/export/export.h"
#include "profiler/export/launches.h"

namespace warpstep::profiler {
namespace {

double seconds(const TraceFacts& facts, std::uint64_t monotonic_ns) {
  return static_cast<double>(facts.realtime_ns(monotonic_ns)) / 1e9;
}

double ms(std::uint64_t ns) {
  return static_cast<double>(ns) / 1e6;
}

std::vector<Scalar> scalars(const Step& step) {
  std::vector<Scalar> all{{"train/loss", step.loss}};
  if (step.samples > 0)
    all.push_back(
        {"train/accuracy", static_cast<double>(step.correct) / static_cast<double>(step.samples)});
  const std::initializer_list<Scalar> others{{"train/learning_rate", step.learning_rate},
                                             {"step/time_ms", ms(step.end_ns - step.begin_ns)},
                                             {"step/data_ms", ms(step.data_ns)},
                                             {"step/kernels_ms", ms(step.kernels_ns)},
                                             {"step/copies_ms", ms(step.copies_ns)},
                                             {"step/cpu_ms", ms(step.cpu_ns)},
                                             {"step/other_ms", ms(step.other_ns)}};
  all.insert(all.end(), others);
  return all;
}

}  // namespace

std::string tensorboard_events(const Session& session) {
  const TraceFacts facts = trace_facts(session);
  std::string file = version_event(seconds(facts, facts.base_ns));
  for (const Step& step : session.steps)
    file += scalars_event(seconds(facts, step.end_ns), step.step, scalars(step));
  return file;
}

std::string tensorboard_name(const Session& session) {
  const TraceFacts facts = trace_facts(session);
  return event_file_name(facts.realtime_ns(facts.base_ns) / 1'000'000'000, facts.host);
}

}  // namespace warpstep::profiler
