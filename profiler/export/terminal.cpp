// The report for a terminal of 80 columns.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "engine/core/text.h"
#include "profiler/analysis/modules.h"
#include "profiler/analysis/tables.h"
#include "profiler/export/export.h"
#include "profiler/export/quantity.h"

namespace warpstep::profiler {
namespace {

constexpr std::size_t columns = 80;
constexpr std::size_t longest_calls = 10;
constexpr std::size_t shown_findings = 3;

// At most `width` characters: what does not fit ends in "...".
std::string fitted(std::string_view text, std::size_t width) {
  std::string clean = clipped(printable(text), width);
  clean.append(width - characters(clean), ' ');
  return clean;
}

// Words in lines of at most 80 columns, all but the first indented.
std::string wrapped(std::string_view text, std::size_t indent) {
  const std::string clean = printable(text);
  std::string result;
  std::size_t column = indent, at = 0;
  while (at < clean.size()) {
    const std::size_t end = std::min(clean.find(' ', at), clean.size());
    const std::string_view word = std::string_view(clean).substr(at, end - at);
    const bool is_first = result.empty();
    if (!is_first && column + 1 + characters(word) > columns) {
      result += '\n';
      result.append(indent, ' ');
      column = indent;
    } else if (!is_first) {
      result += ' ';
      ++column;
    }
    result += word;
    column += characters(word);
    at = end + 1;
  }
  return result;
}

// In eighths of a character cell; what is there at all has one.
std::string blocks(double share, std::size_t width) {
  constexpr const char* parts[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  const double exact = std::clamp(share, 0.0, 1.0) * static_cast<double>(width) * 8;
  const auto eighths = static_cast<std::size_t>(std::max(std::lround(exact), 1L));
  std::string bar;
  for (std::size_t i = 0; i < eighths / 8; ++i) bar += "█";
  return bar + parts[eighths % 8];
}

std::string breakdown_text(const Analysis& analysis) {
  const Breakdown& breakdown = analysis.breakdown;
  const char* basis = breakdown.tb_compatible ? ", by torch_tb_profiler's rules"
                      : breakdown.from_spans  ? ", recorded with spans"
                                              : ", from per-step totals";
  std::string text = fmt::format("Where a step's time goes (mean of {}{})\n",
                                 counted(static_cast<double>(breakdown.counted), "step"), basis);
  Table table = labelled_breakdown(analysis);
  table.rows.pop_back();  // the total
  for (const auto& row : table.rows)
    text += fmt::format("  {:<14} {:>9} {:>7}  {}\n", shown(row[0], Unit::none),
                        shown(row[1], Unit::ns), shown(row[2], Unit::share),
                        blocks(std::get<double>(row[2]), 40));
  return text;
}

// "resnet.cpp:20" of "models/resnet.cpp:20".
std::string without_folder(const std::string& source) {
  return source.substr(source.rfind('/') + 1);
}

std::string module_line(const ModuleRow& row) {
  const auto time = [](double ns) { return ns > 0 ? quantity(ns, Unit::ns) : std::string("-"); };
  const std::string indent(static_cast<std::size_t>(2 * std::max(row.depth - 1, 0)), ' ');
  std::string line = fmt::format("{} {:>8} {:>8} {:>8} {:>7} {}", fitted(indent + row.label, 22),
                                 time(row.forward_ns), time(row.backward_ns), time(row.update_ns),
                                 quantity(row.share, Unit::share),
                                 row.source.empty() ? "" : fitted(without_folder(row.source), 22));
  line.erase(line.find_last_not_of(' ') + 1);
  return line + '\n';
}

// The tree down to `depth`, longest first; of each module's content so many rows.
std::string modules_text(const Work& work, int depth) {
  constexpr std::size_t most_children = 12;
  const std::vector<ModuleRow> modules = by_time(find_modules(work));
  if (modules.size() < 2 || depth <= 0) return "";
  std::string text = fmt::format("\n{:<22} {:>8} {:>8} {:>8} {:>7} {}\n", "Modules, longest first",
                                 "forward", "backward", "update", "share", "line of the model");
  std::vector<std::size_t> shown(modules.size(), 0);  // children of each
  std::vector<std::size_t> open;                      // the modules around the row
  const auto close = [&](int parent) {
    while (!open.empty() && static_cast<int>(open.back()) != parent) {
      const std::size_t left_out = shown[open.back()] - std::min(shown[open.back()], most_children);
      if (left_out > 0)
        text += fmt::format(
            "{}... and {} more\n",
            std::string(static_cast<std::size_t>(2 * modules[open.back()].depth), ' '), left_out);
      open.pop_back();
    }
  };
  std::vector<bool> is_shown(modules.size(), false);
  for (std::size_t i = 0; i < modules.size(); ++i) {
    const ModuleRow& row = modules[i];
    const bool is_step = row.parent < 0;
    const auto parent = static_cast<std::size_t>(std::max(row.parent, 0));
    if (row.depth > depth || (!is_step && !is_shown[parent])) continue;
    close(row.parent);
    is_shown[i] = is_step || ++shown[parent] <= most_children;
    if (!is_shown[i]) continue;
    if (!is_step) text += module_line(row);
    open.push_back(i);
  }
  close(-1);
  return text;
}

// The phases of the run; those of less than 0.5 % are one row.
std::string run_text(const WholeRun& run) {
  constexpr double least = 0.005;
  std::string text =
      fmt::format("\nWhere the run's wall time went ({}", quantity(run.wall_ns, Unit::ns));
  if (run.first_step_ns > 0)
    text +=
        fmt::format("; the first step was done after {}", quantity(run.first_step_ns, Unit::ns));
  text += ")\n";
  std::string few;
  double few_ns = 0;
  const auto row = [&](const std::string& name, double ns, int indent) {
    const double share = ns / run.wall_ns;
    text += fmt::format("  {:<14} {:>9} {:>7}  {}\n",
                        std::string(static_cast<std::size_t>(indent), ' ') + name,
                        quantity(ns, Unit::ns), quantity(share, Unit::share), blocks(share, 40));
  };
  for (const RunPart& part : run.parts) {
    if (part.ns < least * run.wall_ns) {
      few += (few.empty() ? "" : ", ") + part.name;
      few_ns += part.ns;
      continue;
    }
    row(part.name, part.ns, 0);
    for (const RunPart& within : part.parts)
      if (within.ns >= least * run.wall_ns) row(within.name, within.ns, 2);
  }
  if (few_ns > 0) {
    row("the rest", few_ns, 0);
    text += fmt::format("    {}\n", wrapped("The rest: " + few + ".", 4));
  }
  return text;
}

std::string slow_steps_text(const std::vector<SlowStep>& steps) {
  if (steps.empty()) return "";
  std::string text = "\nSlow steps\n";
  for (const SlowStep& step : steps) {
    std::string line = fmt::format("step {}: {} instead of the usual {}", step.step,
                                   quantity(step.ns, Unit::ns), quantity(step.median_ns, Unit::ns));
    if (!step.part.empty())
      line += fmt::format("; {} +{}", step.part, quantity(step.grew_ns, Unit::ns));
    if (!step.ran.empty()) line += "; ran: " + step.ran;
    text += fmt::format("  {}\n", wrapped(line + ".", 4));
  }
  return text;
}

// Calls by what they compute, for steps of so many alike that the longest say little.
std::string ops_text(const Work& work, double steps) {
  std::vector<const OpRow*> ops;
  for (const OpRow& op : work.ops) ops.push_back(&op);
  std::ranges::stable_sort(ops, std::ranges::greater(), [](const OpRow* op) { return op->ns; });
  const std::size_t count = std::min(ops.size(), longest_calls);
  std::string text = fmt::format("\n{:<26} {:<11} {:>7} {:>8} {:>7} {:>8} {:>7}\n",
                                 fmt::format("Longest {} of {} ops", count, ops.size()), "phase",
                                 "calls", "time", "share", "MiB", "GFLOP");
  for (std::size_t i = 0; i < count; ++i) {
    const OpRow& op = *ops[i];
    text += fmt::format("{} {} {:>7.0f} {:>8} {:>7} {:>8.1f} {:>7}\n", fitted(op.op, 26),
                        fitted(op.phase, 11), static_cast<double>(op.count) / steps,
                        quantity(op.ns, Unit::ns), quantity(op.share, Unit::share),
                        op.bytes / (1 << 20),
                        op.flops > 0 ? fmt::format("{:.2f}", op.flops * 1e-9) : "-");
  }
  return text;
}

// The longest calls, or the ops where these calls are less than a quarter of the step.
std::string calls_text(const Work& work, double steps) {
  constexpr double least_shown = 0.25;
  std::vector<const CallRow*> calls;
  for (const CallRow& call : work.calls) calls.push_back(&call);
  std::ranges::stable_sort(calls, std::ranges::greater(),
                           [](const CallRow* call) { return call->total_ns; });
  const std::size_t count = std::min(calls.size(), longest_calls);
  if (count == 0 || !has_call_times(work)) return "";
  double together = 0;
  for (std::size_t i = 0; i < count; ++i) together += calls[i]->share;
  if (together < least_shown && calls.size() > count && !work.ops.empty())
    return ops_text(work, std::max(1.0, steps));
  std::string text = fmt::format("\n{:<26} {:<11} {:>8} {:>8} {:>7} {:>7} {:>7}\n",
                                 fmt::format("Longest {} of {} calls", count, calls.size()),
                                 "phase", "median", "p95", "share", "GFLOP/s", "of peak");
  for (std::size_t i = 0; i < count; ++i) {
    const CallRow& call = *calls[i];
    text += fmt::format(
        "{} {} {:>8} {:>8} {:>7} {:>7} {:>7}\n",
        fitted(call.title.empty() ? "(of no call)" : call.title, 26), fitted(call.phase, 11),
        quantity(call.median_ns, Unit::ns), quantity(call.p95_ns, Unit::ns),
        quantity(call.share, Unit::share),
        call.flops_per_second > 0 ? fmt::format("{:.0f}", call.flops_per_second * 1e-9) : "-",
        call.of_peak > 0 ? quantity(call.of_peak, Unit::share) : "-");
  }
  if (std::any_of(calls.begin(), calls.begin() + static_cast<std::ptrdiff_t>(count),
                  [](const CallRow* call) { return call->of_peak > 1; }))
    text += wrapped(
                "Above 100 %: an algorithm that needs fewer operations than are counted "
                "(Winograd), data in a cache, or a peak that was measured while the machine was "
                "busy.",
                0) +
            "\n";
  return text;
}

// What the GPU's own counters said; "" where they were not sampled.
std::string measured_text(const DeviceMetrics& device) {
  std::string text;
  const auto add = [&](const char* what, std::optional<double> share) {
    if (share)
      text += fmt::format("{}{} {}", text.empty() ? "" : ", ", what, quantity(*share, Unit::share));
  };
  add("multiprocessors active", device.measured.sm_active);
  add("tensor pipe", device.measured.tensor_pipe);
  add("DRAM throughput", device.measured.dram);
  if (text.empty()) return text;
  return wrapped(fmt::format("{} {}, measured: {}.", device.name, device.device, text), 0) + "\n";
}

std::string kernels_text(const DeviceMetrics& device) {
  std::string text = fmt::format("{} {}: kernels run {} of the {}' time", device.name,
                                 device.device, quantity(device.utilization, Unit::share),
                                 device.of_windows ? "windows" : "steps");
  if (device.is_described)
    text += fmt::format(", on {} of the multiprocessors (estimated)",
                        quantity(device.sm_efficiency, Unit::share));
  text += fmt::format(", {} of their time on tensor cores",
                      quantity(device.tensor_core_share, Unit::share));
  if (device.is_described)
    text += fmt::format("; occupancy {} (estimated)", quantity(device.occupancy, Unit::share));
  return wrapped(text + ".", 0) + "\n";
}

std::string devices_text(const Session& session, const std::vector<DeviceMetrics>& devices) {
  std::string text;
  const bool is_traced = has_kernels(session);
  for (const DeviceMetrics& device : devices)
    text += (is_traced ? kernels_text(device) : "") + measured_text(device);
  return text.empty() ? text : fmt::format("\n{}", text);
}

std::string findings_text(const Session& session, const Analysis& analysis) {
  const std::size_t count = std::min(analysis.findings.size(), shown_findings);
  if (count == 0) return fmt::format("\n{}\n", wrapped(nothing_found(session, analysis), 0));
  std::string text = "\nWhat to do next\n";
  for (std::size_t i = 0; i < count; ++i) {
    const Finding& finding = analysis.findings[i];
    const std::string gain = gain_text(session, analysis, finding);
    text += fmt::format(
        " {}. {}\n    {}\n    {}\n", i + 1, wrapped(sentence(finding.text), 4),
        wrapped(sentence(finding.evidence), 4),
        wrapped(gain.empty() ? sentence(finding.advice)
                             : fmt::format("{} Saves {}.", sentence(finding.advice), gain),
                4));
  }
  if (analysis.findings.size() > count)
    text += fmt::format("    {} more in report.html.\n", analysis.findings.size() - count);
  return text;
}

}  // namespace

std::string terminal_report(const Session& session, const Analysis& analysis,
                            const TerminalOptions& options) {
  std::string text = fmt::format("{}\n{}\n\n", wrapped(run_title(session), 0),
                                 wrapped(verdict(session, analysis), 0));
  if (analysis.breakdown.step_ns > 0) text += breakdown_text(analysis);
  if (analysis.run.has_phases)
    text += run_text(analysis.run);
  else if (const std::string outside = outside_steps(session); !outside.empty())
    text += fmt::format("  {}\n", wrapped(outside, 2));
  text += slow_steps_text(analysis.slow_steps);
  if (!session.computes_on_host()) text += devices_text(session, analysis.devices);
  text += modules_text(analysis.work, options.depth);
  text += calls_text(analysis.work, static_cast<double>(analysis.breakdown.counted));
  if (const std::string overlaps = overlaps_text(analysis.work); !overlaps.empty())
    text += fmt::format("{}\n", wrapped(overlaps.substr(1), 0));
  text += findings_text(session, analysis);
  text += fmt::format("\n{}\n", wrapped(trust_line(analysis), 0));
  std::string machine;
  for (const auto& [what, value] : machine_facts(session))
    machine += fmt::format("{}{} {}", machine.empty() ? "" : "; ", what, value);
  if (!machine.empty()) text += fmt::format("{}\n", wrapped("Machine: " + machine + ".", 0));
  for (const std::string& note : analysis.trust.notes)
    text += fmt::format("- {}\n", wrapped(sentence(note), 2));
  return text;
}

}  // namespace warpstep::profiler
