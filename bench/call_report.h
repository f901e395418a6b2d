// Which calls are slow, and how that is shown.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>

#include "bench/call_timing.h"
#include "bench/excuses.h"

namespace warpstep::bench {

struct Limits {
  double minimum_share = 0.6;  // of the roof
  double above_s = 1e-3;       // shorter calls are never slow
};

enum class Verdict : std::uint8_t {
  brief,
  fast,
  excused,
  slow
};  // brief: not above Limits::above_s

struct JudgedCall {
  TimedCall timed;
  std::string name;  // "resnet50@224/conv1/conv": the model's size, and the call
  double share = 0;
  bool bytes_bind = false;
  Verdict verdict = Verdict::brief;
  const Excuse* excuse = nullptr;  // of a slow call, even if it is too slow for this one

  // Milliseconds above what the least share would take.
  double lost_ms(const Limits& limits) const;
};

struct JudgedModel {
  ModelSize size;
  CpuRoofs roofs;
  std::vector<JudgedCall> calls;
};

bool is_slow(const TimedCall& call, const CpuRoofs& roofs, const Limits& limits);
// `excuses` must outlive the result.
JudgedModel judge(const ModelSize& size, const CpuRoofs& roofs, std::vector<TimedCall> calls,
                  const Limits& limits, std::span<const Excuse> excuses);

std::string roofs_text(const CpuRoofs& roofs);
// The calls that are long enough to be judged, or all of them, in the order of the step.
std::string table(const JudgedModel& model, bool all);
// Of all models: the calls that are slow without excuse, the most expensive first, and a count.
std::string summary(std::span<const JudgedModel> models, const Limits& limits);
// The excuses that excused nothing although they match a call of these models; if `all_models` were
// run, also those that match no call.
std::vector<const Excuse*> stale(std::span<const Excuse> excuses,
                                 std::span<const JudgedModel> models, bool all_models);
bool any_slow(std::span<const JudgedModel> models);
nlohmann::json report_json(std::span<const JudgedModel> models);

}  // namespace warpstep::bench
