#include "profiler/export/quantity.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "profiler/analysis/contention.h"
#include "profiler/analysis/scope.h"
#include "profiler/analysis/tables.h"

namespace warpstep::profiler {

double steps_per_epoch(const Session& session) {
  const double recorded = fields::number(session.loader, "steps_per_epoch", 0);
  if (recorded > 0 || session.steps.empty()) return recorded;
  const std::uint64_t first = session.steps.front().epoch;
  if (session.steps.back().epoch == first) return 0;
  return static_cast<double>(
      std::ranges::count_if(session.steps, [&](const Step& step) { return step.epoch == first; }));
}

double samples_per_second(const Session& session, const Breakdown& breakdown) {
  if (session.steps.empty() || breakdown.step_ns <= 0) return 0;
  double samples = 0;
  for (const Step& step : session.steps) samples += static_cast<double>(step.samples);
  return samples / static_cast<double>(session.steps.size()) / breakdown.step_ns * 1e9;
}

double step_flops(const Work& work) {
  double sum = 0;
  for (const LayerRow& row : work.layers) sum += row.flops;
  return sum;
}

std::string run_title(const Session& session) {
  const Json& options = fields::child(session.stamp, "options");
  std::string text = fields::text(options, "model", "Training run");
  if (const std::vector<const Device*> devices = run_devices(session); !devices.empty()) {
    text += " on " + session.name(devices.front()->name);
    if (devices.size() > 1) text += fmt::format(" x {}", devices.size());
  } else {
    text += " on the CPU";
  }
  const double batch = fields::number(options, "batch", fields::number(session.loader, "batch", 0));
  if (batch > 0) text += fmt::format(", batch {:.0f}", batch);
  const std::string precision = fields::text(options, "precision", "");
  return precision.empty() ? text : text + ", " + precision;
}

std::string verdict(const Session& session, const Analysis& analysis) {
  const Breakdown& breakdown = analysis.breakdown;
  if (breakdown.step_ns <= 0) return "No step was recorded.";
  std::array<std::size_t, categories> order{};
  for (std::size_t i = 0; i < categories; ++i) order[i] = i;
  std::ranges::stable_sort(
      order, [&](std::size_t a, std::size_t b) { return breakdown.mean[a] > breakdown.mean[b]; });
  std::string text = fmt::format("A step takes {}", quantity(breakdown.step_ns, Unit::ns));
  for (std::size_t i = 0; i < 3; ++i) {
    const double share = breakdown.mean[order[i]] / breakdown.step_ns;
    if (share < 0.005) break;
    text += fmt::format("{} {} {}", i == 0 ? ":" : ",", quantity(share, Unit::share),
                        label(static_cast<Category>(order[i]), breakdown));
  }
  const double rate = samples_per_second(session, breakdown);
  return text +
         (rate > 0 ? fmt::format("; {} {}/s in steps.", quantity(rate, Unit::count), items(session))
                   : ".");
}

std::string outside_steps(const Session& session) {
  if (session.steps.empty()) return "";
  const auto all = static_cast<double>(session.steps.back().end_ns) -
                   static_cast<double>(session.steps.front().begin_ns);
  double inside = 0;
  for (const Step& step : session.steps) inside += static_cast<double>(step.end_ns - step.begin_ns);
  const double outside = all - inside;
  if (outside <= 0.01 * all) return "";
  const auto has_range = [&](std::string_view name) {
    return std::ranges::any_of(session.spans, [&](const Span& span) {
      return session.kind(span) == Kind::range && session.name(span.name) == name;
    });
  };
  const bool evaluates = has_range("evaluation"), saves = has_range("checkpoint");
  const char* what = evaluates && saves ? "evaluation, checkpoints"
                     : evaluates        ? "evaluation"
                     : saves            ? "checkpoints"
                                        : "evaluations, checkpoints and the like";
  return fmt::format("Outside of steps: {} of {} ({}): {}.", quantity(outside, Unit::ns),
                     quantity(all, Unit::ns), quantity(outside / all, Unit::share), what);
}

bool has_call_times(const Work& work) {
  return std::ranges::any_of(work.calls,
                             [](const CallRow& call) { return call.ns > 0 || call.total_ns > 0; });
}

std::string why_none(const Session& session, std::string_view level) {
  const Json& profiler = fields::child(session.stamp, "profiler");
  const std::string given = fields::text(profiler, "level");
  if (given != level && given != "deep") return "";
  if (!session.windows.empty()) return "no window of steps is complete";
  const std::string schedule = fields::text(profiler, "schedule");
  const bool per_epoch = schedule.find("per=epoch") != std::string::npos;
  return fmt::format(
      "no window of --profile-schedule {} has ended yet, or {} was too short for one: use smaller "
      "numbers in it, or {}",
      schedule, per_epoch ? "each epoch" : "the run", per_epoch ? "per=run" : "more steps");
}

std::string nothing_found(const Session& session, const Analysis& analysis) {
  if (has_call_times(analysis.work)) return "Nothing was found that an option would shorten.";
  const bool on_host = session.computes_on_host();
  const std::string_view what = on_host ? "Calls" : "Kernels", level = on_host ? "spans" : "deep";
  const std::string why = why_none(session, level);
  return why.empty() ? fmt::format("{} were not recorded; --profile {} records them.", what, level)
                     : fmt::format("{} were not recorded: {}.", what, why);
}

double epoch_gain_ns(const Session& session, const Analysis& analysis, const Finding& finding) {
  constexpr double nearly_all = 0.9;  // of the run's steps
  const double all = analysis.run.steps * finding.gain_ns;
  if (all > 0 && finding.run_gain_ns > 0 && finding.run_gain_ns < nearly_all * all) return 0;
  return steps_per_epoch(session) * finding.gain_ns;
}

namespace {

// ", and 1.2 s between steps", behind a range of each step.
std::string between_text(const Analysis& analysis, const Finding& finding) {
  constexpr double least = 0.05;  // of the run's gain
  const double steps = analysis.run.steps > 0 ? analysis.run.steps
                                              : static_cast<double>(analysis.breakdown.counted),
               between = finding.run_gain_ns - steps * finding.gain_ns;
  if (between <= least * finding.run_gain_ns) return "";
  return fmt::format(", and {} between steps", quantity(between, Unit::ns));
}

}  // namespace

std::string gain_text(const Session& session, const Analysis& analysis, const Finding& finding) {
  if (finding.gain_ns <= 0 && finding.run_gain_ns <= 0) return "";
  if (finding.gain_most_ns > 0) {
    const std::string least = finding.gain_least_ns > 0
                                  ? quantity(finding.gain_least_ns, Unit::ns) + " to"
                                  : std::string("at most");
    return fmt::format("{} {} per step{}", least, quantity(finding.gain_most_ns, Unit::ns),
                       between_text(analysis, finding));
  }
  // Time between steps, or of some steps only: a mean per step would say little.
  const bool is_of_run = finding.outside_steps || finding.gain_ns <= 0;
  std::string text = is_of_run ? quantity(finding.run_gain_ns, Unit::ns)
                               : quantity(finding.gain_ns, Unit::ns) + " per step";
  const double left = analysis.breakdown.step_ns - finding.gain_ns;
  if (!is_of_run && left > 0) text += fmt::format(" ({:.2f}x)", analysis.breakdown.step_ns / left);
  const double epoch = is_of_run ? 0 : epoch_gain_ns(session, analysis, finding);
  if (epoch > 0) text += fmt::format(", {} per epoch", quantity(epoch, Unit::ns));
  const WholeRun& run = analysis.run;
  if (run.has_phases && run.wall_ns > 0)
    text +=
        fmt::format(", {} of this run", quantity(finding.run_gain_ns / run.wall_ns, Unit::share));
  return text;
}

std::string sentence(std::string text) {
  if (text.empty()) return text;
  // A word, and not a name such as conv1/conv.
  const std::size_t end =
      std::min(text.find_first_not_of("abcdefghijklmnopqrstuvwxyz"), text.size());
  if (end > 0 &&
      (end == text.size() || std::string_view(" ,:;").find(text[end]) != std::string_view::npos))
    text[0] = static_cast<char>(text[0] - 'a' + 'A');
  if (std::string_view(".!?:").find(text.back()) == std::string_view::npos) text += '.';
  return text;
}

bool lost_something(const Losses& losses) {
  return losses.entries + losses.activities + losses.without_times + losses.cut_bytes +
             losses.damaged_chunks >
         0;
}

std::string cost_text(const Trust& trust) {
  const auto of_step = [](double share, double ns) {
    return fmt::format("{} of a step ({})", quantity(share, Unit::share), quantity(ns, Unit::ns));
  };
  std::string found = of_step(trust.overhead_share, trust.overhead_ns);
  switch (trust.cost) {
    case Trust::Cost::unknown:
      return fmt::format("not known for device records; of spans {}", found);
    case Trust::Cost::measured:
      return (trust.overhead_ns > trust.overhead_error_ns
                  ? found
                  : "at most " + of_step(trust.overhead_share + trust.overhead_error_share,
                                         trust.overhead_ns + trust.overhead_error_ns)) +
             ", against steps outside of windows";
    case Trust::Cost::calibrated: break;
  }
  return found;
}

std::string trust_line(const Analysis& analysis) {
  const Trust& trust = analysis.trust;
  std::string text = fmt::format(
      "{} {}; ", trust.cost == Trust::Cost::unknown ? "The cost of recording is" : "Recording cost",
      cost_text(trust));
  std::string lost;
  const auto add = [&lost](std::uint64_t count, const char* what) {
    if (count > 0)
      lost += fmt::format("{}{} {}", lost.empty() ? "" : ", ",
                          quantity(static_cast<double>(count), Unit::count), what);
  };
  add(trust.losses.entries, "entries of full rings");
  add(trust.losses.activities, "activities dropped by CUPTI");
  add(trust.losses.without_times, "activities without times");
  add(trust.losses.cut_bytes, "bytes at the end of the file");
  add(trust.losses.damaged_bytes, "bytes of damaged chunks");
  text += lost.empty() ? "nothing was lost" : fmt::format("lost: {}", lost);
  if (trust.clock_error_ns > 0)
    text += fmt::format("; clocks agree within {}",
                        quantity(static_cast<double>(trust.clock_error_ns), Unit::ns));
  text += '.';
  if (trust.is_disturbed) text += " The measurement was disturbed: treat the times with care.";
  return text;
}

namespace {

// "performance at 800 to 3800 MHz (CPUs 0-3)", one after the other; or "not readable".
std::string clocks_text(const Json& cpu) {
  const Json& groups = fields::child(cpu, "clocks");
  std::string text;
  if (groups.is_array())
    for (const Json& group : groups)
      text += fmt::format("{}{} at {:.0f} to {:.0f} MHz (CPUs {})", text.empty() ? "" : ", ",
                          fields::text(group, "governor", "governor not readable"),
                          fields::number(group, "min_mhz"), fields::number(group, "max_mhz"),
                          fields::text(group, "cpus"));
  return text.empty() ? "not readable" : text;
}

std::string gpu_text(const Json& gpu) {
  std::string text = fields::text(gpu, "name", "GPU");
  const auto add = [&](const char* key, std::string_view format) {
    if (const double value = fields::number(gpu, key); value > 0)
      text += fmt::format(fmt::runtime(format), value);
  };
  if (const std::string driver = fields::text(gpu, "driver"); !driver.empty())
    text += ", driver " + driver;
  add("max_sm_clock_mhz", ", clock up to {:.0f} MHz");
  add("application_sm_clock_mhz", " (set to {:.0f})");
  add("power_limit_w", ", power limit {:.0f} W");
  if (gpu.is_object() && gpu.contains("persistence"))
    text += fields::flag(gpu, "persistence") ? ", persistence on" : ", persistence off";
  return text;
}

}  // namespace

std::vector<std::pair<std::string, std::string>> machine_facts(const Session& session) {
  const Json& stamp = session.stamp;
  const Json& cpu = fields::child(stamp, "cpu");
  const std::string model = fields::text(cpu, "model");
  if (model.empty()) return {};
  std::vector<std::pair<std::string, std::string>> facts{{"CPU", model}};
  const auto add = [&](const char* what, std::string value) {
    facts.emplace_back(what, value.empty() ? "not recorded" : std::move(value));
  };
  add("instruction set", fields::text(cpu, "instruction_set"));
  add("clocks", clocks_text(cpu));
  add("boost", fields::text(cpu, "boost", "not readable"));
  add("SMT", fields::text(cpu, "smt", "not readable"));
  add("allowed CPUs", fields::text(stamp, "affinity"));
  const double quota = fields::number(fields::child(stamp, "cgroup"), "cpu_quota_cores");
  add("CPU quota", quota > 0 ? fmt::format("{:.2f} cores", quota) : "none");
  if (std::string scheduling = scheduling_text(session); !scheduling.empty())
    add("scheduling", std::move(scheduling));
  const Json& pinned = fields::child(stamp, "pinned");
  const std::string team = fields::text(pinned, "team");
  add("pinned", team.empty() || team == "none"
                    ? team
                    : fmt::format("{}, loader {}", team, fields::text(pinned, "others")));
  if (const Json& load = fields::child(stamp, "load_average");
      load.is_array() && !load.empty() && load[0].is_number())
    add("load at the start", fmt::format("{:.2f}", load[0].get<double>()));
  if (const Json& gpus = fields::child(stamp, "gpus"); gpus.is_array())
    for (const Json& gpu : gpus) add("GPU", gpu_text(gpu));
  return facts;
}

std::string_view label(Category category) {
  switch (category) {
    case Category::kernel: return "kernels";
    case Category::copy: return "copies";
    case Category::memset: return "memset";
    case Category::communication: return "communication";
    case Category::runtime: return "runtime";
    case Category::data: return "loader wait";
    case Category::sync: return "device sync";
    case Category::cpu: return "CPU";
    case Category::core_wait: return "core wait";
    case Category::other: return "idle, other";
  }
  return "";
}

std::string_view label(Category category, const Breakdown& breakdown) {
  return breakdown.tb_compatible ? title(category) : label(category);
}

Table labelled_breakdown(const Analysis& analysis) {
  Table table = breakdown_table(analysis);  // a row per category, then the total
  for (std::size_t c = 0; c < categories; ++c)
    table.rows[c][0] = std::string(label(static_cast<Category>(c), analysis.breakdown));
  std::erase_if(table.rows,
                [](const std::vector<Cell>& row) { return std::get<double>(row[1]) <= 0; });
  return table;
}

}  // namespace warpstep::profiler
