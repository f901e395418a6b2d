#include "profiler/analysis/program_view.h"

#include <cmath>

namespace warpstep::profiler::analysis {
namespace {

std::string shape_text(const Json& value, std::vector<std::int64_t>& last_extents) {
  std::string shown = text(value, "dtype");
  const bool is_float = shown == "f32" || shown == "f16" || shown == "bf16";
  const Json& shape = part(value, "shape");
  if (!shape.is_array() || shape.empty()) return shown;
  char separator = ' ';
  for (const Json& extent : shape) {
    shown += separator;
    shown += extent.is_number_integer() ? std::to_string(extent.get<std::int64_t>()) : "?";
    separator = 'x';
  }
  if (is_float && shape.back().is_number_integer())
    last_extents.push_back(shape.back().get<std::int64_t>());
  return shown;
}

ProgramCall call_of(const Json& json) {
  ProgramCall call{.title = text(json, "title"),
                   .layer = text(json, "layer"),
                   .op = text(json, "op"),
                   .implementation = text(json, "implementation"),
                   .phase = phase_of(json),
                   .flops = std::max(0.0, number(json, "flops")),
                   .bytes = std::max(0.0, number(json, "bytes"))};
  const Json& in = part(json, "in");
  if (in.is_array())
    for (const Json& value : in) {
      if (!call.inputs.empty()) call.inputs += ", ";
      call.inputs += shape_text(value, call.last_extents);
    }
  const Json& out = part(json, "out");
  if (out.is_array())
    for (const Json& value : out) shape_text(value, call.last_extents);
  return call;
}

}  // namespace

const Json& part(const Json& object, std::string_view key) {
  static const Json none;
  if (!object.is_object()) return none;
  const auto found = object.find(key);
  return found == object.end() ? none : *found;
}

double number(const Json& object, std::string_view key, double otherwise) {
  const Json& value = part(object, key);
  if (!value.is_number()) return otherwise;
  const double told = value.get<double>();
  return std::isfinite(told) ? told : otherwise;
}

std::uint64_t count(const Json& object, std::string_view key) {
  const Json& value = part(object, key);
  if (value.is_number_unsigned()) return value.get<std::uint64_t>();
  const double told = number(object, key);
  return told >= 1 && told < 1e18 ? static_cast<std::uint64_t>(told) : 0;
}

std::string text(const Json& object, std::string_view key, std::string_view otherwise) {
  const Json& value = part(object, key);
  return value.is_string() ? value.get<std::string>() : std::string(otherwise);
}

std::string phase_of(const Json& call) {
  const std::string phase = text(call, "phase");
  if (phase == "dgrad") return "data_grad";
  if (phase == "wgrad") return "weight_grad";
  return phase;
}

std::vector<ProgramCall> program_calls(const Session& session) {
  std::vector<ProgramCall> calls;
  const Json& listed = part(session.program, "calls");
  if (listed.is_array())
    for (const Json& call : listed) calls.push_back(call_of(call));
  return calls;
}

std::string precision(const Session& session) {
  return text(part(session.stamp, "options"), "precision", "fp32");
}

}  // namespace warpstep::profiler::analysis
