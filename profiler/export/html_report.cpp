// The whole page, with its first screen (the verdict, how far to trust it, what to do next) and the
// comparison of two runs.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "profiler/analysis/scope.h"
#include "profiler/export/export.h"
#include "profiler/export/html.h"
#include "profiler/export/quantity.h"

namespace warpstep::profiler::html {

namespace {

std::string fact(std::string_view what, const std::string& value, std::string_view note = {}) {
  return fmt::format("<div><dt>{}</dt><dd>{}{}</dd></div>\n", escaped(what), escaped(value),
                     note.empty() ? "" : fmt::format(" <small>{}</small>", escaped(note)));
}

// Which steps the figures are about.
std::string basis(const Session& session, const Breakdown& breakdown) {
  const std::string text = "Means over " + counted(static_cast<double>(breakdown.counted), "step");
  if (!breakdown.from_spans)
    return text + ", from per-step totals: no step was recorded with spans.";
  std::string windows;
  for (const Window& window : View(session).windows)
    windows +=
        fmt::format("{}{} to {}", windows.empty() ? "" : ", ", window.first_step, window.last_step);
  return fmt::format("{} recorded with spans: {}.", text, windows);
}

std::string losses_text(const Losses& losses) {
  if (!lost_something(losses)) return "nothing";
  std::string text;
  const auto add = [&text](std::uint64_t count, const char* what) {
    if (count > 0)
      text += fmt::format("{}{} {}", text.empty() ? "" : ", ",
                          quantity(static_cast<double>(count), Unit::count), what);
  };
  add(losses.entries, "entries");
  add(losses.activities, "device activities");
  add(losses.without_times, "activities without times");
  add(losses.cut_bytes, "bytes at the file's end");
  add(losses.damaged_bytes, "bytes of damaged chunks");
  return text;
}

std::string trust_box(const Session& session, const Analysis& analysis) {
  const Trust& trust = analysis.trust;
  const bool is_sound = !lost_something(trust.losses) && trust.overhead_share < 0.01;
  std::string html = fmt::format(
      "<aside class=\"trust\" aria-labelledby=\"trust-title\">\n<h2 id=\"trust-title\">How far to "
      "trust this <span class=\"{}\">{}</span></h2>\n<dl class=\"facts\">\n",
      is_sound ? "good" : "care", is_sound ? "&#10003; sound" : "! with care");
  html += fact("recording cost", quantity(trust.overhead_share, Unit::share),
               quantity(trust.overhead_ns, Unit::ns) + " per step");
  html += fact("lost", losses_text(trust.losses));
  if (trust.clock_error_ns > 0)
    html +=
        fact("clocks agree within", quantity(static_cast<double>(trust.clock_error_ns), Unit::ns));
  if (!session.computes_on_host())
    html += fact("kernel time tied to a call", quantity(analysis.work.attributed, Unit::share));
  for (const auto& [what, value] : machine_facts(session)) html += fact(what, value);
  html += "</dl>\n<p>" + escaped(basis(session, analysis.breakdown)) + "</p>\n";
  if (!trust.notes.empty()) {
    html += "<ul>\n";
    for (const std::string& note : trust.notes) html += "<li>" + prose(sentence(note)) + "</li>\n";
    html += "</ul>\n";
  }
  return html + "</aside>\n";
}

// Of gain_text(), without what is shown before it.
std::string without_epoch(const std::string& gain) {
  const std::size_t epoch = gain.find(", ");
  const std::size_t run = gain.find(", ", epoch + 1);
  return gain.substr(0, epoch) + (run == gain.npos ? "" : gain.substr(run));
}
std::string of_run(const std::string& gain) {
  const std::size_t run = gain.find(", ");
  return run == gain.npos ? "" : gain.substr(run + 2);
}

std::string finding_html(const Session& session, const Analysis& analysis, const Finding& finding) {
  std::string html = fmt::format("<li class=\"finding\" data-key=\"{}\">\n<h3>{}</h3>\n",
                                 escaped(finding.key), prose(sentence(finding.text)));
  const std::string gain = gain_text(session, analysis, finding);
  const double epoch = finding.outside_steps ? 0 : steps_per_epoch(session) * finding.gain_ns;
  if (!gain.empty())
    html += fmt::format("<p class=\"gain\"><b>{}</b> {}</p>\n",
                        escaped("saves " + quantity(epoch > 0 ? epoch : finding.gain_ns, Unit::ns) +
                                (epoch > 0 ? " per epoch" : " per step")),
                        prose(epoch > 0 ? without_epoch(gain) : of_run(gain)));
  else
    html += "<p class=\"gain\"><span>gain not known</span></p>\n";
  html += fmt::format("<p>{}</p>\n<p class=\"advice\">{}</p>\n", prose(sentence(finding.evidence)),
                      prose(sentence(finding.advice)));
  if (!finding.flag.empty())
    html += fmt::format("<p class=\"flag\"><code>{}</code></p>\n", escaped(finding.flag));
  return html + "</li>\n";
}

std::string card(const std::string& value, std::string_view title, const std::string& note,
                 double share = -1) {
  std::string html =
      fmt::format("<li><span class=\"what\">{}</span><b>{}</b>", escaped(title), escaped(value));
  if (share >= 0)
    html += fmt::format(
        "<svg class=\"meter\" aria-hidden=\"true\"><rect width=\"{}\" height=\"100%\"/></svg>",
        percent(std::clamp(share, 0.0, 1.0)));
  return html + fmt::format("<small>{}</small></li>\n", escaped(note));
}

// Which GPU a card is of, where there are several.
std::string owner(const Analysis& analysis, const DeviceMetrics& device) {
  return analysis.devices.size() > 1 ? fmt::format("GPU {}: ", device.device) : std::string();
}

// What the GPU's own counters said, where they were sampled.
std::string measured_cards(const Analysis& analysis, const DeviceMetrics& device) {
  const auto share = [&](std::string_view title, std::optional<double> value, const char* note) {
    if (!value) return std::string();
    return card(quantity(*value, Unit::share), title, owner(analysis, device) + note, *value);
  };
  return share("SM active", device.measured.sm_active,
               "measured: of the multiprocessors' time with a warp") +
         share("Tensor pipe", device.measured.tensor_pipe, "measured: of the time it is active") +
         share("DRAM", device.measured.dram, "measured: of its peak throughput");
}

std::string device_cards(const Analysis& analysis, const DeviceMetrics& device) {
  const std::string of = owner(analysis, device);
  const auto share = [&](std::string_view title, double value, std::string_view note) {
    return card(quantity(value, Unit::share), title, of + std::string(note), value);
  };
  return share("GPU utilisation", device.utilization, "of the time, at least one kernel runs") +
         share("SM efficiency", device.sm_efficiency,
               "estimated: of the multiprocessors have a block") +
         share("Occupancy", device.occupancy, "estimated: of the threads that would fit") +
         share("Tensor cores", device.tensor_core_share, "of the kernels' time is on them");
}

}  // namespace

std::string verdict_part(const Session& session, const Analysis& analysis) {
  std::string best;
  if (!analysis.findings.empty()) {
    const Finding& finding = analysis.findings.front();
    const std::string gain = gain_text(session, analysis, finding);
    best =
        fmt::format("<p class=\"next\"><b>Do next:</b> {}{}</p>\n", prose(sentence(finding.advice)),
                    gain.empty() ? "" : fmt::format(" <span>Saves {}.</span>", prose(gain)));
  }
  const std::string outside = analysis.run.has_phases ? "" : outside_steps(session);
  if (!outside.empty()) best = fmt::format("<p class=\"note\">{}</p>\n", prose(outside)) + best;
  return fmt::format(
      "<section id=\"verdict\" aria-labelledby=\"verdict-title\" class=\"first\">\n<div>\n"
      "<h2 id=\"verdict-title\" class=\"hidden\">Verdict</h2>\n<p class=\"verdict\">{}</p>\n{}{}"
      "</div>\n{}</section>\n",
      prose(verdict(session, analysis)), best, mean_part(analysis), trust_box(session, analysis));
}

std::string findings_part(const Session& session, const Analysis& analysis) {
  if (analysis.findings.empty())
    return section("findings", "What to do next", "",
                   "<p>" + prose(nothing_found(session, analysis)) + "</p>\n");
  std::string body = "<ol class=\"findings\">\n";
  for (const Finding& finding : analysis.findings) body += finding_html(session, analysis, finding);
  return section("findings", "What to do next",
                 "Largest expected gain first; each gain is counted by itself, they do not add up.",
                 body + "</ol>\n");
}

std::string cards_part(const Session& session, const Analysis& analysis) {
  std::string cards;
  const double rate = samples_per_second(session, analysis.breakdown);
  if (rate > 0)
    cards += card(quantity(rate, Unit::count),
                  items(session) == "tokens" ? "Tokens per second" : "Samples per second",
                  "over whole steps");
  if (analysis.breakdown.step_ns > 0)
    cards +=
        card(quantity(analysis.breakdown.step_ns, Unit::ns), "Step time", "mean, including waits");
  const double flops = step_flops(analysis.work);
  const double peak = analysis.work.peaks.flops_per_second;
  if (flops > 0 && peak > 0 && analysis.breakdown.step_ns > 0) {
    const double share = flops / (analysis.breakdown.step_ns * 1e-9) / peak;
    // A peak that was measured while other programs ran can be too low.
    const char* note =
        share > 1 ? "whole steps; above the measured peak of {}" : "whole steps, of {} measured";
    cards += card(quantity(share, Unit::share), "Share of peak",
                  fmt::format(fmt::runtime(note), quantity(peak, Unit::per_second_flops)), share);
  }
  std::string about;
  if (session.computes_on_host())
    about =
        "<p class=\"note\">This run computed on the host, so there is no GPU whose utilisation, "
        "multiprocessors, occupancy or tensor cores could be reported.</p>\n";
  else if (!has_kernels(session))
    about =
        "<p class=\"note\">No window with device activities is complete: record one with "
        "<code>--profile deep</code> to see utilisation and occupancy.</p>\n";
  else
    for (const DeviceMetrics& device : analysis.devices) cards += device_cards(analysis, device);
  for (const DeviceMetrics& device : analysis.devices) cards += measured_cards(analysis, device);
  return section("figures", "Key figures", "",
                 "<ul class=\"cards\">\n" + cards + "</ul>\n" + about);
}

namespace {

std::string signed_time(double ns) {
  return fmt::format("{}{}", ns > 0 ? "+" : "", quantity(ns, Unit::ns));
}

// Each part's change starts where the one before ended.
std::string waterfall(const Comparison& comparison) {
  if (comparison.waterfall.empty()) return "";
  constexpr int row_height = 40;
  double low = 0, high = 0, sum = 0;
  for (const auto& [what, ns] : comparison.waterfall) {
    sum += ns;
    low = std::min(low, sum);
    high = std::max(high, sum);
  }
  const double range = std::max(high - low, 1.0);
  const auto across = [&](double ns) { return (ns - low) / range; };
  Table data{.key = "waterfall",
             .title = "The step's change as a sum",
             .columns = {{"what", "what"}, {"change_ns", "change", Unit::ns}}};
  std::string body;
  double at = 0;
  int y = 0;
  for (const auto& [what, ns] : comparison.waterfall) {
    const double begin = std::min(at, at + ns);
    body += text(0, y + 14, fmt::format("{} {}", what, signed_time(ns)), "lane", "start");
    body += bar(ns > 0 ? "slower" : "faster", across(begin), y + 19,
                std::max(std::abs(ns) / range, 0.002), 14);
    at += ns;
    y += row_height;
    data.rows.push_back({what, ns});
  }
  return chart({.id = "waterfall",
                .title = fmt::format("Together: {} per step", signed_time(sum)),
                .summary = "A bar per part, each from where the one before ended.",
                .height = y,
                .body = vertical("l-mark", across(0), 0, y) + body,
                .legend = legend_item("slower", "slower") + legend_item("faster", "faster"),
                .table = table(data)});
}

std::string intervals(const Comparison& comparison) {
  std::vector<const Change*> significant;
  for (const Change& change : comparison.changes)
    if (change.is_significant) significant.push_back(&change);
  if (significant.empty()) return "";
  constexpr int row_height = 38;
  double low = 0, high = 0;
  for (const Change* change : significant) {
    low = std::min(low, change->low);
    high = std::max(high, change->high);
  }
  const double range = std::max(high - low, 1.0) * 1.04;
  const auto across = [&](double ns) { return 0.02 + (ns - low) / range; };
  std::string body =
      vertical("l-mark", across(0), 0, row_height * static_cast<double>(significant.size()));
  Table data{.key = "significant",
             .title = "Significant changes",
             .columns = {{"what", "what"},
                         {"change_ns", "change", Unit::ns},
                         {"low_ns", "95 % from", Unit::ns},
                         {"high_ns", "to", Unit::ns}}};
  int y = 0;
  for (const Change* change : significant) {
    const double ns = change->after_ns - change->before_ns;
    const char* css = ns > 0 ? "slower" : "faster";
    body += text(0, y + 14,
                 fmt::format("{}{}{}: {}", change->what, change->phase.empty() ? "" : ", ",
                             change->phase, signed_time(ns)),
                 "lane", "start");
    body += bar(css, across(change->low), y + 23, (change->high - change->low) / range, 4);
    body += fmt::format("<circle class=\"{}\" cx=\"{}\" cy=\"{}\" r=\"6\"/>", css,
                        percent(across(ns)), y + 25);
    y += row_height;
    data.rows.push_back({change->what, ns, change->low, change->high});
  }
  return chart(
      {.id = "intervals",
       .title = "Changes with their 95 % intervals",
       .summary = "A dot per change, a line for its interval; right of the mark is slower.",
       .height = y,
       .body = body,
       .table = table(data)});
}

std::string differences_part(std::string_view title,
                             const std::vector<FootingDifference>& differences) {
  if (differences.empty()) return "";
  std::string html = fmt::format("<h3>{}</h3>\n<ul class=\"warnings\">\n", escaped(title));
  for (const FootingDifference& difference : differences)
    html += "<li>" + escaped(difference.text()) + "</li>\n";
  return html + "</ul>\n";
}

}  // namespace

std::string comparison_part(const Comparison& comparison) {
  std::string body = "<p class=\"diagnosis\">" + escaped(comparison.verdict) + "</p>\n";
  body += differences_part("Differs by intent", comparison.footing.by_intent) +
          differences_part("Differs by machine", comparison.footing.by_machine);
  if (!comparison.warnings.empty()) {
    body += "<ul class=\"warnings\">\n";
    for (const std::string& warning : comparison.warnings)
      body += "<li>" + escaped(warning) + "</li>\n";
    body += "</ul>\n";
  }
  body += waterfall(comparison) + intervals(comparison);
  if (!comparison.changes.empty())
    body += table(with_columns(to_table(comparison)), {.titled = true, .filter = true, .code = 0});
  return section("comparison", "Against the run before", "", body);
}

}  // namespace warpstep::profiler::html

namespace warpstep::profiler {
namespace {

// Nothing is fetched and nothing runs but the page's own style and script, by their hashes: names
// from a session could not do anything even if one were not escaped.
std::string policy() {
  return fmt::format(
      "default-src 'none'; style-src {}; script-src {}; base-uri 'none'; form-action 'none'",
      html::policy_source(html::page::style_sha256),
      html::policy_source(html::page::script_sha256));
}

struct Entry {
  std::string_view id, title;
};
constexpr std::array<Entry, 13> contents{{{"run", "Whole run"},
                                          {"steps", "Steps"},
                                          {"findings", "What to do"},
                                          {"figures", "Figures"},
                                          {"layers", "Layers"},
                                          {"kernels", "Kernels"},
                                          {"ops", "Operations"},
                                          {"loader", "Loader"},
                                          {"memory", "Memory"},
                                          {"machine", "Machine"},
                                          {"path", "Critical path"},
                                          {"comparison", "Comparison"},
                                          {"stamp", "Environment"}}};

// Links to the sections that the page has.
std::string navigation(const std::string& body) {
  std::string html = "<nav aria-label=\"Sections\"><ul>\n";
  for (const Entry& entry : contents)
    if (body.find(fmt::format("<section id=\"{}\"", entry.id)) != std::string::npos)
      html += fmt::format("<li><a href=\"#{}\">{}</a></li>\n", entry.id, entry.title);
  return html + "</ul></nav>\n";
}

std::string sections(const Session& session, const Analysis& analysis,
                     const Comparison* comparison) {
  return html::verdict_part(session, analysis) + html::run_part(analysis) +
         html::steps_part(session, analysis) + html::findings_part(session, analysis) +
         html::cards_part(session, analysis) + html::layers_part(analysis) +
         html::kernels_part(analysis) + html::ops_part(analysis) + html::loader_part(analysis) +
         html::memory_part(analysis) + html::machine_part(session, analysis) +
         html::path_part(analysis) + (comparison ? html::comparison_part(*comparison) : "") +
         html::stamp_part(session);
}

}  // namespace

std::string html_report(const Session& session, const Analysis& analysis,
                        const Comparison* comparison) {
  const std::string title = html::escaped(run_title(session));
  const std::string body = sections(session, analysis, comparison);
  std::string page = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"{}\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta name=\"color-scheme\" content=\"light dark\">\n<title>{}: where its steps' time "
      "went</title>\n<style>",
      policy(), title);
  page += html::page::style;
  page += fmt::format(
      "</style>\n</head>\n<body>\n<a class=\"skip\" href=\"#main\">Skip to the report</a>\n{}"
      "<header>\n<div class=\"top\"><h1>{}</h1>\n<button type=\"button\" id=\"theme\" hidden>Dark "
      "or light</button></div>\n{}</header>\n<main id=\"main\">\n{}</main>\n<footer><p>Written by "
      "warpstep report. This page fetches nothing and sends nothing.</p></footer>\n<script>",
      html::page::patterns, title, navigation(body), body);
  page += html::page::script;
  return page + "</script>\n</body>\n</html>\n";
}

std::string html_report(const Session& session, const Analysis& analysis) {
  return html_report(session, analysis, nullptr);
}

}  // namespace warpstep::profiler
