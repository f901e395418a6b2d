// Events of an exported Kineto trace, for tests.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "profiler/export/export.h"

namespace warpstep::profiler::testing {

inline std::vector<Json> events_of(const Session& session, const KinetoOptions& options = {}) {
  return Json::parse(kineto_json(session, options))["traceEvents"].get<std::vector<Json>>();
}

inline std::vector<Json> of_category(const std::vector<Json>& events, std::string_view category) {
  std::vector<Json> found;
  std::copy_if(events.begin(), events.end(), std::back_inserter(found),
               [&](const Json& event) { return event["ph"] == "X" && event["cat"] == category; });
  return found;
}

inline std::vector<std::string> names_of(const std::vector<Json>& events) {
  std::vector<std::string> names;
  for (const Json& event : events) names.push_back(event["name"]);
  return names;
}

inline std::int64_t ns(const Json& us) {
  return std::llround(us.get<double>() * 1000);
}

}  // namespace warpstep::profiler::testing
