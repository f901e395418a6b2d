// The whole page, with its first screen (the verdict, how far to trust it, what to do next) and the
// order of all sections.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "profiler/analysis/energy.h"
#include "profiler/analysis/scope.h"
#include "profiler/analysis/tables.h"
#include "profiler/export/export.h"
#include "profiler/export/html.h"
#include "profiler/export/quantity.h"

namespace warpstep::profiler::html {

namespace {

std::string fact(std::string_view what, const std::string& value, std::string_view note = {}) {
  return fmt::format("<div><dt>{}</dt><dd>{}{}</dd></div>\n", escaped(what), escaped(value),
                     note.empty() ? "" : fmt::format(" <small>{}</small>", escaped(note)));
}

std::string why_no_spans(const Session& session) {
  if (session.windows.empty()) return "no step was recorded with spans.";
  if (session.computes_on_host()) return "no window of steps is complete.";
  const bool is_cut = std::ranges::any_of(
      session.windows, [](const Window& window) { return window.deep != 0 && window.cut != 0; });
  return is_cut ? "the GPU's work is written when a window ends, and the session ends inside one."
         : why_none(session, "deep").empty()
             ? "the GPU's work was not recorded; --profile deep does."
             : "the GPU's work was not recorded; the notes below may say why.";
}

// Which steps the figures are about.
std::string basis(const Session& session, const Breakdown& breakdown) {
  const std::string text = "Means over " + counted(static_cast<double>(breakdown.counted), "step");
  if (!breakdown.from_spans) return text + ", from per-step totals: " + why_no_spans(session);
  constexpr std::size_t most_shown = 8;
  const std::vector<Window> windows = View(session).windows;
  std::string shown;
  for (const Window& window : std::span(windows).first(std::min(windows.size(), most_shown)))
    shown +=
        fmt::format("{}{} to {}", shown.empty() ? "" : ", ", window.first_step, window.last_step);
  if (windows.size() > most_shown)
    shown += fmt::format(" and {} more", windows.size() - most_shown);
  return fmt::format("{} recorded with spans: {}.", text, shown);
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
  const bool is_sound = !lost_something(trust.losses) && costs_little(trust) && !trust.is_disturbed;
  std::string html = fmt::format(
      "<aside class=\"trust\" aria-labelledby=\"trust-title\">\n<h2 id=\"trust-title\">How far to "
      "trust this <span class=\"{}\">{}</span></h2>\n<dl class=\"facts\">\n",
      is_sound ? "good" : "care", is_sound ? "&#10003; sound" : "! with care");
  html += fact("recording cost", cost_text(trust));
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

// What it saves: a range as it is, else per epoch first where the run has epochs.
std::string gain_html(const Session& session, const Analysis& analysis, const Finding& finding) {
  const std::string gain = gain_text(session, analysis, finding);
  if (gain.empty()) return "<span>gain not known</span>";
  if (finding.gain_most_ns > 0) return fmt::format("<b>saves {}</b>", escaped(gain));
  if (finding.outside_steps || finding.gain_ns <= 0)
    return fmt::format("<b>saves {}</b> {}", escaped(quantity(finding.run_gain_ns, Unit::ns)),
                       prose(of_run(gain)));
  const double epoch = epoch_gain_ns(session, analysis, finding);
  if (epoch > 0)
    return fmt::format("<b>saves {} per epoch</b> {}", escaped(quantity(epoch, Unit::ns)),
                       prose(without_epoch(gain)));
  return fmt::format("<b>saves {} per step</b> {}", escaped(quantity(finding.gain_ns, Unit::ns)),
                     prose(of_run(gain)));
}

std::string finding_html(const Session& session, const Analysis& analysis, const Finding& finding) {
  std::string html = fmt::format(
      "<li class=\"finding\" data-key=\"{}\">\n<h3>{}</h3>\n<p class=\"gain\">{}</p>\n",
      escaped(finding.key), prose(sentence(finding.text)), gain_html(session, analysis, finding));
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
  return share("GPU utilisation", device.utilization,
               device.of_windows ? "of the windows' time, at least one kernel runs"
                                 : "of the steps' time, at least one kernel runs") +
         (device.is_described
              ? share("SM efficiency", device.sm_efficiency,
                      "estimated: of the multiprocessors have a block") +
                    share("Occupancy", device.occupancy, "estimated: of the threads that would fit")
              : "") +
         share("Tensor cores", device.tensor_core_share, "of the kernels' time is on them");
}

}  // namespace

namespace {

std::string joules_text(double joules) {
  return joules >= 0.9995 ? fmt::format("{:.3g} J", joules)
                          : fmt::format("{:.3g} mJ", joules * 1000);
}

std::string energy_cards(const View& view) {
  std::string cards;
  for (const EnergyRow& row : energy_per_step(view))
    cards += card(joules_text(row.joules), "Energy per step",
                  fmt::format("{}: {:.3g} W on average, sampled", row.source, row.watts));
  return cards;
}

// Of the whole process, loader included.
std::string cores_card(const View& view) {
  const MetricLevel level = metric_level(view, "process cpu %");
  const int allowed = usable_cores(view.session);
  if (level.count == 0 || allowed <= 0) return "";
  const double used = level.mean / 100;
  return card(fmt::format("{:.2f} of {}", used, allowed), "Cores used",
              "of the cores allowed, by all threads of the process", used / allowed);
}

std::string no_device_activities(const Session& session) {
  const std::string why = why_none(session, "deep");
  return fmt::format(
      "<p class=\"note\">No window with device activities is complete: {}.</p>\n",
      why.empty() ? "record one with <code>--profile deep</code> to see utilisation and occupancy"
                  : prose(why));
}

// The figures to know first: time, throughput, waiting, and what the best advice would gain.
std::string key_cards(const Session& session, const Analysis& analysis) {
  const Breakdown& breakdown = analysis.breakdown;
  if (breakdown.step_ns <= 0) return "";
  std::string cards = card(quantity(breakdown.step_ns, Unit::ns), "Step time", "mean");
  if (const double rate = samples_per_second(session, breakdown); rate > 0)
    cards += card(quantity(rate, Unit::count),
                  items(session) == "tokens" ? "Tokens per second" : "Samples per second",
                  "over whole steps");
  const double waits = breakdown.mean[static_cast<std::size_t>(Category::data)];
  cards += card(quantity(waits / breakdown.step_ns, Unit::share), "Waiting for data",
                quantity(waits, Unit::ns) + " per step", waits / breakdown.step_ns);
  if (!analysis.findings.empty() && analysis.findings.front().gain_ns > 0) {
    const Finding& best = analysis.findings.front();
    const std::string of = best.outside_steps ? "of the run" : "per step";
    cards += card((best.gain_most_ns > 0 ? "about " : "") +
                      quantity(best.outside_steps ? best.run_gain_ns : best.gain_ns, Unit::ns),
                  "Best advice saves", best.flag.empty() ? of : of + ": " + best.flag);
  }
  return "<ul class=\"cards major\">\n" + cards + "</ul>\n";
}

}  // namespace

std::string verdict_part(const Session& session, const Analysis& analysis) {
  std::string best;
  if (!analysis.findings.empty()) {
    const Finding& finding = analysis.findings.front();
    const std::string gain = gain_text(session, analysis, finding);
    // The advice alone may refer to its problem: "Write them to a faster disk".
    best = fmt::format("<p class=\"next\"><b>Do next:</b> {} {}{}</p>\n",
                       prose(sentence(finding.text)), prose(sentence(finding.advice)),
                       gain.empty() ? "" : fmt::format(" <span>Saves {}.</span>", prose(gain)));
  }
  const std::string outside = analysis.run.has_phases ? "" : outside_steps(session);
  if (!outside.empty()) best = fmt::format("<p class=\"note\">{}</p>\n", prose(outside)) + best;
  return fmt::format(
      "<section id=\"verdict\" aria-labelledby=\"verdict-title\" class=\"first\">\n<div>\n"
      "<h2 id=\"verdict-title\" class=\"hidden\">Verdict</h2>\n<p class=\"verdict\">{}</p>\n{}{}{}"
      "</div>\n{}</section>\n",
      prose(verdict(session, analysis)), key_cards(session, analysis), best, mean_part(analysis),
      trust_box(session, analysis));
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
  const View view(session);
  cards += cores_card(view) + energy_cards(view);
  std::string about;
  if (session.computes_on_host())
    about =
        "<p class=\"note\">This run computed on the host, so there is no GPU whose utilisation, "
        "multiprocessors, occupancy or tensor cores could be reported.</p>\n";
  else if (!has_kernels(session))
    about = no_device_activities(session);
  else
    for (const DeviceMetrics& device : analysis.devices) cards += device_cards(analysis, device);
  for (const DeviceMetrics& device : analysis.devices) cards += measured_cards(analysis, device);
  return section("figures", "Key figures", "",
                 "<ul class=\"cards\">\n" + cards + "</ul>\n" + about);
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
constexpr std::array<Entry, 15> contents{{{"comparison", "Comparison"},
                                          {"run-after", "The run after"},
                                          {"verdict", "Top"},
                                          {"run", "Whole run"},
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
  return (comparison ? html::comparison_part(*comparison) : "") +
         html::verdict_part(session, analysis) + html::run_part(analysis) +
         html::steps_part(session, analysis) + html::findings_part(session, analysis) +
         html::cards_part(session, analysis) + html::layers_part(session, analysis) +
         html::kernels_part(analysis) + html::ops_part(analysis) + html::loader_part(analysis) +
         html::memory_part(analysis) + html::machine_part(session, analysis) +
         html::path_part(analysis) + html::stamp_part(session);
}

}  // namespace

std::string html_report(const Session& session, const Analysis& analysis,
                        const Comparison* comparison) {
  const std::string run = html::escaped(run_title(session));
  const std::string title =
      comparison ? (comparison->is_halves ? "Odd and even steps: " : "Before and after: ") + run
                 : run;
  const std::string body = sections(session, analysis, comparison);
  std::string page = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"{}\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta name=\"color-scheme\" content=\"light dark\">\n<title>{}{}</title>\n"
      "<style>",
      policy(), title, comparison ? "" : ": where its steps' time went");
  page += html::page::style;
  page += fmt::format(
      "</style>\n</head>\n<body>\n<a class=\"skip\" href=\"#main\">Skip to the report</a>\n{}"
      "<header>\n<div class=\"top\"><h1>{}</h1>\n<button type=\"button\" id=\"theme\" hidden>Dark "
      "or light</button></div>\n</header>\n{}<main id=\"main\">\n{}</main>\n<footer><p>Written by "
      "warpstep report. This page fetches nothing and sends nothing.</p></footer>\n<script>",
      html::page::patterns, title, navigation(body), body);
  page += html::page::script;
  return page + "</script>\n</body>\n</html>\n";
}

}  // namespace warpstep::profiler
