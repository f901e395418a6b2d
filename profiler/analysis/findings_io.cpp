// Findings about reads and writes that the control group delays.
#include <fmt/format.h>

#include <string>
#include <vector>

#include "profiler/analysis/findings.h"
#include "profiler/analysis/loader_model.h"
#include "profiler/analysis/stall.h"

namespace warpstep::profiler {
namespace {

// Of all devices that are limited: "vda to 2 MB/s of reads and 600 reads/s".
std::string limits_of(const Session& session, const char* what, const char* bytes_key,
                      const char* count_key) {
  const Json& limits = fields::child(fields::child(session.stamp, "cgroup"), "io_limits");
  std::string text;
  if (!limits.is_array()) return text;
  for (const Json& limit : limits) {
    const double bytes = fields::number(limit, bytes_key), count = fields::number(limit, count_key);
    if (bytes <= 0 && count <= 0) continue;
    text += fmt::format("{}{} to ", text.empty() ? "" : ", ", fields::text(limit, "device"));
    if (bytes > 0) text += fmt::format("{:.3g} MB/s of {}", bytes / 1e6, what);
    if (count > 0) text += fmt::format("{}{:.0f} {}/s", bytes > 0 ? " and " : "", count, what);
  }
  return text.empty() ? text : "; the control group limits " + text;
}

}  // namespace

std::string read_limits_text(const Session& session) {
  return limits_of(session, "reads", "read_bytes_per_s", "reads_per_s");
}

std::string write_limits_text(const Session& session) {
  return limits_of(session, "writes", "write_bytes_per_s", "writes_per_s");
}

// Beside other programs workers also wait for cores, and for reads less than half of their time.
// The limit binds them as long as some read is in progress for most of the time, at the rate that
// it allows: with more cores no more would be read. Where reads are seldom it is far away, whatever
// they took.
bool reads_are_limited(const Facts& facts) {
  constexpr double least_blocked = 0.25;  // of the workers' time
  constexpr double least_reading = 0.5;   // of the step
  const Stall& stall = facts.analysis.stall;
  const LoaderView& view = facts.analysis.loader;
  if (!stall.is_stalled || !view.source.is_limited) return false;
  if (stall.bound == Bound::io) return true;
  const double read_ns = static_cast<double>(view.batch) / view.source.reads_per_s * 1e9;
  return stall.bound == Bound::unknown && view.knows_cpu &&
         view.blocked_ns >= least_blocked * view.work_ns &&
         read_ns >= least_reading * stall.step_ns;
}

void find_io_limit(const Facts& facts, std::vector<Finding>& findings) {
  if (!reads_are_limited(facts)) return;
  const LoaderView& view = facts.analysis.loader;
  Finding finding{
      .key = "io-limit",
      .text = "The control group's limit of I/O delays the reads; more workers would share it.",
      .evidence = fmt::format(
          "{} of {} per step waiting for the loader; {:.0f} samples per second read, {:.3g} MB/s{}",
          quantity(facts.analysis.stall.wait_ns, Unit::ns), quantity(facts.step_ns, Unit::ns),
          view.source.reads_per_s, view.source.bytes_per_s / 1e6, read_limits_text(facts.session)),
      .advice =
          "raise the limit (docker --device-read-iops and --device-read-bps, systemd's "
          "IOReadIOPSMax and IOReadBandwidthMax, io.max), or copy the set to a device that "
          "is not limited"};
  if (can_keep_decoded(facts) && !reads_once(facts)) {
    finding.flag = "--tier mapped";
    finding.advice += "; --tier mapped reads each sample once, in the first epoch";
  }
  // How fast the device is without it is not known.
  constexpr double hardly_any = 0.01;
  finding.gain_most_ns =
      LoaderModel(view, facts.view).gain({.latency = hardly_any, .bytes = hardly_any}).most_ns;
  finding.gain_ns = finding.gain_most_ns / 2;
  findings.push_back(finding);
}

}  // namespace warpstep::profiler
