#include <fmt/format.h>

#include <array>

#include "profiler/export/export.h"
#include "profiler/export/html.h"
#include "profiler/export/html_page.h"
#include "profiler/export/html_parts.h"
#include "profiler/export/quantity.h"

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
constexpr std::array<Entry, 12> contents{{{"steps", "Steps"},
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
  return html::verdict_part(session, analysis) + html::steps_part(session, analysis) +
         html::findings_part(session, analysis) + html::cards_part(session, analysis) +
         html::layers_part(session, analysis) + html::kernels_part(session, analysis) +
         html::ops_part(analysis) + html::loader_part(analysis) + html::memory_part(analysis) +
         html::machine_part(session, analysis) + html::path_part(analysis) +
         (comparison ? html::comparison_part(*comparison) : "") + html::stamp_part(session);
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
