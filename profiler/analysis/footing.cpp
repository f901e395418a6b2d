#include "profiler/analysis/footing.h"

#include <fmt/format.h>

#include <set>
#include <utility>

#include "engine/core/error.h"
#include "engine/core/json_text.h"
#include "profiler/analysis/contention.h"
#include "profiler/analysis/scope.h"

namespace warpstep::profiler {
namespace {

constexpr const char* not_recorded = "not recorded";

std::string value_text(const Json& value) {
  if (value.is_null()) return not_recorded;
  std::string text = value.is_string() ? value.get<std::string>() : printed(value);
  if (text.empty() || value == Json::array()) return "none";
  return text;
}

// Collects every field that is not the same on both sides, by the path that leads to it.
class Differences {
 public:
  explicit Differences(std::set<std::string> left_out) : left_out_(std::move(left_out)) {}

  void compare(const std::string& path, const Json& before, const Json& after) {
    if (before == after) return;
    if (before.is_object() && after.is_object()) return compare_objects(path, before, after);
    if (before.is_array() && after.is_array() && before.size() == after.size()) {
      for (std::size_t i = 0; i < before.size(); ++i)
        compare(fmt::format("{}.{}", path, i), before[i], after[i]);
      return;
    }
    found.push_back({path, value_text(before), value_text(after)});
  }

  std::vector<FootingDifference> found;

 private:
  void compare_objects(const std::string& path, const Json& before, const Json& after) {
    const auto visit = [&](const std::string& key, const Json& b, const Json& a) {
      if (!left_out_.contains(key)) compare(path.empty() ? key : path + "." + key, b, a);
    };
    for (const auto& [key, value] : before.items())
      visit(key, value, after.contains(key) ? after.at(key) : Json());
    for (const auto& [key, value] : after.items())
      if (!before.contains(key)) visit(key, Json(), value);
  }

  std::set<std::string> left_out_;
};

// "" where it is not known: of a process that was killed before it began.
std::string devices_of(const Session& session) {
  std::string names;
  for (const Device* const device : run_devices(session))
    names += (names.empty() ? "" : ", ") + session.name(device->name);
  if (!names.empty() || session.stamp.empty()) return names;
  return fields::text(fields::child(session.stamp, "cpu"), "model", "a CPU");
}

const Json& options_of(const Session& session) {
  return fields::child(session.stamp, "options");
}

std::int64_t batch_of(const Session& session) {
  const std::int64_t batch =
      fields::whole(options_of(session), "batch", fields::whole(session.loader, "batch"));
  if (batch > 0 || session.steps.empty()) return batch;
  return session.steps.front().samples;
}

void require_comparable(const Session& before, const Session& after, bool force, Footing& footing) {
  const auto require = [&](std::vector<FootingDifference>& list, const char* what, std::string b,
                           std::string a, const char* fix) {
    if (b == a || b.empty() || a.empty()) return;
    if (!force)
      fail<UsageError>(
          "the runs differ in their {}: {} before, {} after; {}, or compare them "
          "nevertheless with --force",
          what, b, a, fix);
    list.push_back({what, std::move(b), std::move(a)});
  };
  const auto model_of = [](const Session& session) {
    return fields::text(options_of(session), "model");
  };
  require(footing.by_machine, "device", devices_of(before), devices_of(after), "run both on one");
  require(footing.by_intent, "model", model_of(before), model_of(after), "run one model twice");
  const auto batch_text = [](const Session& session) {
    const std::int64_t batch = batch_of(session);
    return batch > 0 ? std::to_string(batch) : "";
  };
  require(footing.by_intent, "batch", batch_text(before), batch_text(after),
          "run both with one --batch");
}

// A copy of the data elsewhere has the same fingerprint.
void compare_data(const Session& before, const Session& after, Footing& footing) {
  const auto field = [](const Session& session, const char* object, const char* key) {
    return fields::text(fields::child(session.stamp, object), key);
  };
  const std::string b = field(before, "data", "fingerprint"),
                    a = field(after, "data", "fingerprint");
  const std::string path_b = field(before, "options", "data"),
                    path_a = field(after, "options", "data");
  if (!b.empty() && b == a) return;
  if (path_b != path_a)
    footing.by_intent.push_back({"data", path_b, path_a});
  else if (b != a)
    footing.by_intent.push_back({"data.fingerprint", b, a});
}

bool same_option(const Session& before, const Session& after, const char* key) {
  const auto value = [key](const Session& session) {
    const Json& options = options_of(session);
    return options.is_object() && options.contains(key) ? options.at(key) : Json();
  };
  return value(before) == value(after);
}

// What was recorded on one side only is no difference, but may hide one.
void add(std::vector<FootingDifference> found, std::vector<FootingDifference>& to,
         Footing& footing) {
  for (FootingDifference& difference : found) {
    const bool is_known = difference.before != not_recorded && difference.after != not_recorded;
    if (is_known)
      to.push_back(std::move(difference));
    else
      footing.warnings.push_back(difference.text());
  }
}

void compare_intent(const Session& before, const Session& after, Footing& footing) {
  // Where a run goes, how long it is and what it is called do not change a step.
  Differences options({"out", "model", "batch", "device", "data", "epochs", "steps", "profile",
                       "profile_schedule", "profile_counters", "profile_rank", "resume"});
  options.compare("", options_of(before), options_of(after));
  add(std::move(options.found), footing.by_intent, footing);
  compare_data(before, after, footing);
  Differences program({"compiler"});
  program.compare("program", fields::child(before.stamp, "program"),
                  fields::child(after.stamp, "program"));
  add(std::move(program.found), footing.by_intent, footing);
}

// Left out where there is no limit, so that its absence is a value.
std::string quota_of(const Session& session, const char* key) {
  const Json& group = fields::child(session.stamp, "cgroup");
  return group.is_object() && group.contains(key) ? value_text(group.at(key)) : "none";
}

// Those that the run computed on, one after the other: which numbers they have is no difference.
Json gpus_of(const Session& session) {
  Json gpus = Json::array();
  const std::vector<const Device*> devices = run_devices(session);
  for (const Device* const device : devices)
    if (const Json* const gpu = stamped_gpu(session, device->id)) gpus.push_back(*gpu);
  if (!gpus.empty()) return gpus;
  const Json* const all = devices.empty() ? fields::member(session.stamp, "gpus") : nullptr;
  return all == nullptr ? Json() : *all;
}

void compare_machine(const Session& before, const Session& after, Footing& footing) {
  Differences machine({"frequency_mhz", "current_mhz", "sm_clock_mhz", "memory_clock_mhz", "id"});
  const auto field = [](const Session& session, const char* key) {
    return session.stamp.is_object() && session.stamp.contains(key) ? session.stamp.at(key)
                                                                    : Json();
  };
  for (const char* const key :
       {"cpu", "affinity", "kernel", "transparent_huge_pages", "libraries", "openmp"})
    machine.compare(key, field(before, key), field(after, key));
  machine.compare("gpus", gpus_of(before), gpus_of(after));
  const auto compiler = [](const Session& session) {
    const std::string text = fields::text(fields::child(session.stamp, "program"), "compiler");
    return text.empty() ? Json() : Json(text);
  };
  machine.compare("program.compiler", compiler(before), compiler(after));
  // The cause, if it is one of the options, is named already.
  if (same_option(before, after, "pin_cpus") && same_option(before, after, "threads")) {
    machine.compare("pinned", field(before, "pinned"), field(after, "pinned"));
    const auto threads = [](const Session& session) {
      const std::int64_t count = fields::whole(fields::child(session.stamp, "device"), "threads");
      return count > 0 ? Json(count) : Json();
    };
    machine.compare("device.threads", threads(before), threads(after));
  }
  // A CPU that is the run's device is named already.
  if (!footing.by_machine.empty() && before.devices.empty() && after.devices.empty())
    std::erase_if(machine.found,
                  [](const FootingDifference& found) { return found.what == "cpu.model"; });
  add(std::move(machine.found), footing.by_machine, footing);
  const auto scheduling = [](const Session& session) {
    const std::string text = scheduling_text(session);
    return text.empty() ? "nice 0" : text;
  };
  if (scheduling(before) != scheduling(after))
    footing.by_machine.push_back({"scheduling", scheduling(before), scheduling(after)});
  for (const char* const key : {"cpu_quota_cores", "cpu_weight", "memory_limit_bytes"})
    if (quota_of(before, key) != quota_of(after, key))
      footing.by_machine.push_back(
          {std::string("cgroup.") + key, quota_of(before, key), quota_of(after, key)});
}

}  // namespace

Footing compare_footing(const Session& before, const Session& after, bool force) {
  Footing footing;
  require_comparable(before, after, force, footing);
  compare_intent(before, after, footing);
  compare_machine(before, after, footing);
  return footing;
}

std::string footing_verdict(const Footing& footing) {
  if (footing.is_equal()) return {};
  const std::size_t more = footing.by_machine.size() - 1;
  return fmt::format("Not on equal footing: the machine differs in {}{}.",
                     footing.by_machine.front().text(),
                     more == 0   ? ""
                     : more == 1 ? ", and in one more point"
                                 : fmt::format(", and in {} more points", more));
}

}  // namespace warpstep::profiler
