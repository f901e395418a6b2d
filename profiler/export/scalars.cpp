#include "profiler/export/scalars.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

namespace warpstep::profiler {
namespace {

using Record = nlohmann::ordered_json;

void add_numbers(const std::string& tag, const Record& value, std::vector<Scalar>& scalars) {
  if (value.is_number()) {
    scalars.push_back({tag, value.get<double>()});
  } else if (value.is_structured()) {
    for (const auto& [key, part] : value.items())
      add_numbers(fmt::format("{}/{}", tag, key), part, scalars);
  }
}

}  // namespace

std::vector<Scalar> scalars_of(const Record& record) {
  std::string prefix = record.value("kind", "other");
  if (prefix == "step") prefix = "train";
  if (prefix == "evaluation") prefix = "validation";
  std::vector<Scalar> scalars;
  for (const auto& [key, value] : record.items())
    if (key != "step" && key != "time")
      add_numbers(fmt::format("{}/{}", prefix, key), value, scalars);
  return scalars;
}

std::optional<Scalar> machine_scalar(std::string_view metric, double value) {
  const bool of_core =
      metric.starts_with("cpu ") && metric.size() > 4 && metric[4] >= '0' && metric[4] <= '9';
  if (of_core || metric.ends_with("throttle reasons")) return std::nullopt;
  std::string_view unit;
  for (const auto& [end, replacement] :
       {std::pair<std::string_view, std::string_view>{" %", "_percent"},
        {" bytes", "_MB"},
        {" bytes/s", "_MB_per_s"},
        {"/s", "_per_s"}}) {  // a slash would begin a group of tags
    if (!metric.ends_with(end)) continue;
    metric.remove_suffix(end.size());
    unit = replacement;
    if (unit.starts_with("_MB")) value *= 1e-6;
    break;
  }
  std::string tag = fmt::format("system/{}{}", metric, unit);
  std::ranges::replace(tag, ' ', '_');
  return Scalar{std::move(tag), value};
}

}  // namespace warpstep::profiler
