// What somebody else needs to have the same run, and the raw counts behind the report.
#include <fmt/format.h>

#include "profiler/export/html.h"
#include "profiler/export/html_parts.h"
#include "profiler/export/quantity.h"

namespace warpstep::profiler::html {
namespace {

std::string value_html(const Json& value, int depth);

std::string list(const Json& object, int depth) {
  std::string html = "<dl class=\"stamp\">\n";
  for (const auto& [key, value] : object.items())
    html += fmt::format("<div><dt>{}</dt><dd>{}</dd></div>\n", escaped(key),
                        value_html(value, depth + 1));
  return html + "</dl>\n";
}

bool is_plain(const Json& array) {
  for (const Json& item : array)
    if (item.is_structured()) return false;
  return true;
}

std::string value_html(const Json& value, int depth) {
  constexpr int deepest = 8;
  if (depth > deepest || !value.is_structured())
    return escaped(value.is_string() ? value.get<std::string>()
                                     : value.dump(-1, ' ', false, Json::error_handler_t::replace));
  if (value.is_object()) return list(value, depth);
  std::string html;
  if (is_plain(value)) {
    for (const Json& item : value)
      html += fmt::format("{}{}", html.empty() ? "" : ", ", value_html(item, depth + 1));
    return html.empty() ? "none" : html;
  }
  html = "<ol>\n";
  for (const Json& item : value) html += "<li>" + value_html(item, depth + 1) + "</li>\n";
  return html + "</ol>\n";
}

Table counts(const Session& session) {
  const auto whole = [](std::size_t count) { return static_cast<std::int64_t>(count); };
  return {.key = "counts",
          .title = "What the session holds",
          .columns = {{"what", "what"}, {"count", "count", Unit::count}},
          .rows = {{"steps", whole(session.steps.size())},
                   {"windows with spans", whole(session.windows.size())},
                   {"threads", whole(session.threads.size())},
                   {"spans", whole(session.spans.size())},
                   {"device activities", whole(session.activities.size())},
                   {"samples of the machine", whole(session.samples.size())},
                   {"names", whole(session.names.size())},
                   {"clock readings", whole(session.clocks.size())},
                   {"graph nodes tied to calls", whole(session.graph_nodes.size())},
                   {"entries lost", whole(session.losses.entries)},
                   {"activities lost", whole(session.losses.activities)},
                   {"activities without times", whole(session.losses.without_times)},
                   {"bytes cut at the file's end", whole(session.losses.cut_bytes)},
                   {"bytes of damaged chunks", whole(session.losses.damaged_bytes)}}};
}

Table windows(const Session& session) {
  Table table{.key = "windows",
              .title = "Recorded windows",
              .columns = {{"first_step", "from step", Unit::count},
                          {"last_step", "to step", Unit::count},
                          {"time_ns", "length", Unit::ns},
                          {"device", "device activities"},
                          {"complete", "complete"}}};
  for (const Window& window : session.windows)
    table.rows.push_back({static_cast<std::int64_t>(window.first_step),
                          static_cast<std::int64_t>(window.last_step),
                          static_cast<std::int64_t>(window.end_ns - window.begin_ns),
                          window.deep != 0 ? "yes" : "no", window.complete != 0 ? "yes" : "no"});
  return table;
}

}  // namespace

std::string stamp_part(const Session& session) {
  std::string body;
  if (session.stamp.is_object() && !session.stamp.empty()) body += list(session.stamp, 0);
  if (session.loader.is_object() && !session.loader.empty())
    body += "<h3>Loader</h3>\n" + list(session.loader, 0);
  if (session.peaks.is_object() && !session.peaks.empty())
    body += "<h3>Measured peaks</h3>\n" + list(session.peaks, 0);
  if (!session.windows.empty()) body += table(windows(session), {.titled = true});
  body += table(counts(session), {.titled = true});
  if (!session.notes.empty()) {
    body += "<h3>Notes of the recorder</h3>\n<ul>\n";
    for (const std::string& note : session.notes) body += "<li>" + escaped(note) + "</li>\n";
    body += "</ul>\n";
  }
  return section("stamp", "Environment and recording", "", body);
}

}  // namespace warpstep::profiler::html
