#include "profiler/analysis/compare_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>

#include "engine/core/error.h"
#include "profiler/analysis/counted.h"
#include "profiler/analysis/fields.h"

namespace warpstep::profiler::advice {
namespace {

std::string devices_of(const Session& session) {
  std::string names;
  for (const Device& device : session.devices)
    names += (names.empty() ? "" : ", ") + session.name(device.name);
  if (!names.empty()) return names;
  return fields::text(fields::child(session.stamp, "cpu"), "model", "a CPU");
}

std::string model_of(const Session& session) {
  return fields::text(fields::child(session.stamp, "options"), "model");
}

std::int64_t batch_of(const Session& session) {
  const std::int64_t told = fields::whole(fields::child(session.stamp, "options"), "batch",
                                          fields::whole(session.loader, "batch"));
  if (told > 0 || session.steps.empty()) return told;
  return session.steps.front().samples;
}

std::string shown(const Json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

// Every field of either side that is not the same, by the name that leads to it.
void differences(const std::string& path, const Json& before, const Json& after,
                 const std::set<std::string>& left_out, std::vector<std::string>& found) {
  std::set<std::string> seen;
  const auto visit = [&](const std::string& key) {
    if (!seen.insert(key).second || left_out.contains(key)) return;
    const Json b = before.contains(key) ? before.at(key) : Json();
    const Json a = after.contains(key) ? after.at(key) : Json();
    if (b == a) return;
    const std::string name = path.empty() ? key : path + "." + key;
    if (b.is_object() && a.is_object()) return differences(name, b, a, left_out, found);
    const auto said = [](const Json& value) { return value.is_null() ? "not told" : shown(value); };
    found.push_back(fmt::format("{}: {} before, {} after", name, said(b), said(a)));
  };
  for (const auto& [key, value] : before.items()) visit(key);
  for (const auto& [key, value] : after.items()) visit(key);
}

bool samples_counters(const Session& session) {
  return !fields::text(fields::child(session.stamp, "profiler"), "counters").empty();
}

void told_losses(const char* which, const Session& session, std::vector<std::string>& warnings) {
  const std::uint64_t lost = session.losses.entries + session.losses.activities;
  if (lost > 0)
    warnings.push_back(
        fmt::format("the run {} lost {} records: sums of its calls may be too small", which, lost));
}

}  // namespace

std::vector<std::string> check_comparable(const Session& before, const Session& after, bool force) {
  std::vector<std::string> warnings;
  const auto require = [&](const char* what, const std::string& b, const std::string& a,
                           const char* fix) {
    if (b == a || b.empty() || a.empty()) return;
    if (!force)
      fail<UsageError>(
          "the runs differ in their {}: {} before, {} after; {}, or compare them "
          "nevertheless with --force",
          what, b, a, fix);
    warnings.push_back(fmt::format("{}: {} before, {} after", what, b, a));
  };
  require("device", devices_of(before), devices_of(after), "run both on one");
  require("model", model_of(before), model_of(after), "run one model twice");
  require("batch", std::to_string(batch_of(before)), std::to_string(batch_of(after)),
          "run both with one --batch");
  // Where a run goes, how long it is and what it is called do not change a step.
  differences("", fields::child(before.stamp, "options"), fields::child(after.stamp, "options"),
              {"out", "model", "batch", "device", "seed", "epochs", "steps", "profile",
               "profile_schedule", "profile_counters", "resume"},
              warnings);
  if (samples_counters(before) != samples_counters(after))
    warnings.push_back(
        fmt::format("the GPU's clocks were locked by PM sampling in the run {} only: give "
                    "--profile-counters to "
                    "both or to none",
                    samples_counters(before) ? "before" : "after"));
  for (const char* const key : {"cpu", "affinity", "cgroup", "kernel", "libraries", "gpus",
                                "version", "commit", "versions"}) {
    const auto side = [&](const Session& session) {
      Json object = Json::object();
      if (session.stamp.is_object() && session.stamp.contains(key))
        object[key] = session.stamp.at(key);
      return object;
    };
    differences("", side(before), side(after), {"frequency_mhz", "load_average"}, warnings);
  }
  told_losses("before", before, warnings);
  told_losses("after", after, warnings);
  return warnings;
}

}  // namespace warpstep::profiler::advice
