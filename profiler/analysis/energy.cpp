#include "profiler/analysis/energy.h"

#include <algorithm>
#include <cmath>
#include <string_view>

namespace warpstep::profiler {
namespace {

using PowerCurve = std::vector<std::pair<double, double>>;  // ns, W; by time

double power_at(const PowerCurve& curve, double ns) {
  const auto after = std::ranges::upper_bound(curve, ns, {}, &std::pair<double, double>::first);
  if (after == curve.begin()) return curve.front().second;
  if (after == curve.end()) return curve.back().second;
  const auto before = std::prev(after);
  const double part = (ns - before->first) / (after->first - before->first);
  return before->second + part * (after->second - before->second);
}

// In joules.
double energy_of(const PowerCurve& curve, double begin, double end) {
  double joules = 0, at = begin, watts = power_at(curve, begin);
  const auto add = [&](double to, double then) {
    joules += (to - at) * 1e-9 * (watts + then) / 2;
    at = to;
    watts = then;
  };
  for (auto next = std::ranges::upper_bound(curve, begin, {}, &std::pair<double, double>::first);
       next != curve.end() && next->first < end; ++next)
    add(next->first, next->second);
  add(end, power_at(curve, end));
  return joules;
}

}  // namespace

std::vector<EnergyRow> energy_per_step(const View& view) {
  constexpr std::string_view ending = " power W";
  const Session& session = view.session;
  std::vector<EnergyRow> rows;
  if (view.counted.empty()) return rows;
  const std::vector<Interval> all = step_times(session);
  const auto is_part = [&](const Device& device) {  // the driver knows the power of whole GPUs
    return session.name(device.name).find(" MIG ") != std::string::npos;
  };
  const bool has_part = std::ranges::any_of(session.devices, is_part);
  for (std::size_t name = 0; name < session.names.size(); ++name) {
    const std::string& metric = session.names[name].text;
    if (!metric.ends_with(ending)) continue;
    PowerCurve curve;
    for (const Sample& sample : session.samples)
      if (sample.name == name && std::isfinite(sample.value))
        curve.emplace_back(static_cast<double>(sample.at_ns), sample.value);
    if (curve.empty()) continue;
    double joules = 0, ns = 0;
    for (const std::size_t step : view.counted) {
      joules += energy_of(curve, static_cast<double>(all[step].begin_ns),
                          static_cast<double>(all[step].end_ns));
      ns += static_cast<double>(all[step].end_ns - all[step].begin_ns);
    }
    if (!(joules > 0) || ns <= 0) continue;
    std::string source = metric.substr(0, metric.size() - ending.size());
    if (has_part && source.starts_with("gpu ")) source += ", all of its instances";
    rows.push_back({std::move(source), joules / static_cast<double>(view.counted.size()),
                    joules / (ns * 1e-9)});
  }
  return rows;
}

}  // namespace warpstep::profiler
