// The session's program as the analysis wants it: engine's explain_json() without the JSON. What is
// missing or of another type is empty, 0 or left out: nothing here throws.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "profiler/session/session.h"

namespace warpstep::profiler::analysis {

// Fields of an object that may have them; else the fallback.
const Json& part(const Json& object, std::string_view key);  // null when there is none
double number(const Json& object, std::string_view key, double otherwise = 0);
std::uint64_t count(const Json& object, std::string_view key);  // 0 also for negative ones
std::string text(const Json& object, std::string_view key, std::string_view otherwise = "");

struct ProgramCall {
  std::string title, layer, op, implementation;
  std::string phase;                       // "forward", "loss", "data_grad", ..., as CallRow
  std::string inputs;                      // "f32 128x32x32x3, f32 8x3x3x3"
  double flops = 0, bytes = 0;             // a run
  std::vector<std::int64_t> last_extents;  // of the inputs and outputs that are float: channels
};
// As work.h has them; the engine's listing has some short.
std::string phase_of(const Json& call);
std::vector<ProgramCall> program_calls(const Session& session);

// "fp32", "tf32", "bf16" or "fp16": what the run was asked to compute in.
std::string precision(const Session& session);

}  // namespace warpstep::profiler::analysis
