#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "profiler/export/html.h"

namespace warpstep::profiler::html {
namespace {

// In base units, with all digits, for sorting and CSV; nothing for what is not known.
std::string raw(const Cell& cell) {
  if (const auto* whole = std::get_if<std::int64_t>(&cell)) return fmt::format("{}", *whole);
  if (const auto* real = std::get_if<double>(&cell))
    return std::isfinite(*real) ? fmt::format("{}", *real) : "";
  return "";
}

bool is_number(const Cell& cell) {
  return std::holds_alternative<std::int64_t>(cell) || std::holds_alternative<double>(cell);
}

// A column is one of numbers when any of its cells is.
std::vector<bool> number_columns(const Table& data) {
  std::vector<bool> result(data.columns.size());
  for (const auto& row : data.rows)
    for (std::size_t i = 0; i < row.size() && i < result.size(); ++i)
      if (is_number(row[i])) result[i] = true;
  return result;
}

// Columns of long names, as kernels have, get more room, and break in lines.
bool has_long(const Table& data, int column) {
  constexpr std::size_t long_name = 24;
  if (column < 0) return false;
  for (const auto& row : data.rows) {
    const auto* text = std::get_if<std::string>(&row[static_cast<std::size_t>(column)]);
    if (text && text->size() > long_name) return true;
  }
  return false;
}

// The length of a share beside its number.
std::string share_bar(const Cell& cell) {
  const auto* share = std::get_if<double>(&cell);
  if (!share || !(*share > 0)) return "<svg class=\"bar\" aria-hidden=\"true\"></svg>";
  return fmt::format(
      "<svg class=\"bar\" aria-hidden=\"true\"><rect width=\"{}\" height=\"100%\"/></svg>",
      percent(std::min(*share, 1.0)));
}

std::string row_html(const Table& data, const std::vector<Cell>& row,
                     const std::vector<bool>& numbers, int code) {
  std::string html = "<tr>";
  for (std::size_t i = 0; i < data.columns.size() && i < row.size(); ++i) {
    const Unit unit = data.columns[i].unit;
    const std::string shown = escaped(cell_text(row[i], unit));
    if (i == 0 && !numbers[0])
      html += fmt::format("<th scope=\"row\"{}>{}</th>", code == 0 ? " class=\"code\"" : "", shown);
    else if (!numbers[i])
      html +=
          fmt::format("<td{}>{}</td>", code == static_cast<int>(i) ? " class=\"code\"" : "", shown);
    else
      html += fmt::format("<td class=\"n\" data-v=\"{}\">{}{}</td>", raw(row[i]), shown,
                          unit == Unit::share ? share_bar(row[i]) : "");
  }
  return html + "</tr>\n";
}

std::string head(const Table& data, const std::vector<bool>& numbers) {
  std::string html = "<thead><tr>";
  for (std::size_t i = 0; i < data.columns.size(); ++i)
    html += fmt::format("<th scope=\"col\" data-k=\"{}\"{}>{}</th>", escaped(data.columns[i].key),
                        numbers[i] ? " class=\"n\"" : "", escaped(data.columns[i].title));
  return html + "</tr></thead>\n";
}

}  // namespace

std::string table(const Table& data, const TableStyle& style) {
  const std::vector<bool> numbers = number_columns(data);
  std::string note = data.note;
  if (data.rows.size() > table_rows)
    note += fmt::format("{}The first {} of {} rows; --json has all.", note.empty() ? "" : " ",
                        table_rows, data.rows.size());
  const std::string title = escaped(data.title);
  std::string html = fmt::format("<div class=\"table\"{}>\n", style.filter ? " data-filter" : "");
  if (style.titled)
    html += fmt::format("<div class=\"head\"><h3>{}</h3><p>{}</p></div>\n", title, escaped(note));
  html += fmt::format(
      "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"{0}, table\">\n<table "
      "data-key=\"{1}\"{5}><caption{2}><b>{0}</b>{3}</caption>\n{4}<tbody>\n",
      title, escaped(data.key), style.titled ? " class=\"hidden\"" : "",
      style.titled || note.empty() ? "" : fmt::format(" {}", escaped(note)), head(data, numbers),
      has_long(data, style.code) ? " class=\"long\"" : "");
  for (std::size_t i = 0; i < std::min(data.rows.size(), table_rows); ++i)
    html += row_html(data, data.rows[i], numbers, style.code);
  return html + "</tbody></table>\n</div>\n</div>\n";
}

}  // namespace warpstep::profiler::html
