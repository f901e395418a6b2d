#include "profiler/analysis/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string_view>

#include "engine/core/text.h"

namespace warpstep::profiler {

std::string shown(const Cell& cell, Unit unit) {
  if (const auto* text = std::get_if<std::string>(&cell)) return *text;
  if (const auto* number = std::get_if<double>(&cell)) return quantity(*number, unit);
  if (const auto* count = std::get_if<std::int64_t>(&cell))
    return unit == Unit::none ? fmt::format("{}", *count)
                              : quantity(static_cast<double>(*count), unit);
  return "-";
}

namespace {

constexpr std::size_t widest = 64;  // characters of a cell on the terminal

bool is_decimal(std::string_view text) {
  if (text.starts_with('+')) text.remove_prefix(1);
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && std::isfinite(value);
}

// A spreadsheet computes what begins like a formula, unless an apostrophe makes it text: names come
// from sessions that others may have sent.
std::string field_text(std::string_view text) {
  constexpr std::string_view formula = "=+-@\t\r";
  if (!text.empty() && formula.find(text[0]) != formula.npos && !is_decimal(text))
    return field_text(fmt::format("'{}", text));
  if (text.find_first_of(",\"\r\n") == std::string_view::npos) return std::string(text);
  std::string field = "\"";
  for (const char c : text) {
    if (c == '"') field += '"';
    field += c;
  }
  return field + '"';
}

std::string csv_field(const Cell& cell) {
  if (const auto* text = std::get_if<std::string>(&cell)) return field_text(*text);
  if (const auto* count = std::get_if<std::int64_t>(&cell)) return fmt::format("{}", *count);
  if (const auto* number = std::get_if<double>(&cell))
    return std::isfinite(*number) ? fmt::format("{}", *number) : "";
  return "";
}

// One line of at most `widest` characters.
std::string in_one_line(std::string text) {
  std::ranges::replace_if(
      text, [](char c) { return c == '\n' || c == '\r' || c == '\t'; }, ' ');
  return clipped(printable(text), widest);
}

bool is_number(const Cell& cell) {
  return std::holds_alternative<std::int64_t>(cell) || std::holds_alternative<double>(cell);
}

const Cell& cell_of(const std::vector<Cell>& row, std::size_t column) {
  static const Cell none;
  return column < row.size() ? row[column] : none;
}

struct Layout {
  std::vector<std::size_t> widths;
  std::vector<bool> is_right;
};

std::string line_of(const std::vector<std::string>& cells, const Layout& layout) {
  std::string line;
  for (std::size_t c = 0; c < cells.size(); ++c) {
    const std::string padding(layout.widths[c] - characters(cells[c]), ' ');
    if (c > 0) line += "  ";
    line += layout.is_right[c] ? padding + cells[c] : cells[c] + padding;
  }
  line.erase(line.find_last_not_of(' ') + 1);
  return line + '\n';
}

}  // namespace

Table with_columns(const Table& table, std::initializer_list<std::string_view> keys) {
  std::vector<std::size_t> chosen;
  const auto choose = [&](std::size_t column) {
    const bool is_known = std::ranges::any_of(table.rows, [&](const std::vector<Cell>& row) {
      return !std::holds_alternative<std::monostate>(cell_of(row, column));
    });
    if (is_known) chosen.push_back(column);
  };
  if (keys.size() == 0)
    for (std::size_t c = 0; c < table.columns.size(); ++c) choose(c);
  for (const std::string_view key : keys)
    for (std::size_t c = 0; c < table.columns.size(); ++c)
      if (table.columns[c].key == key) choose(c);
  Table result{table.key, table.title, table.note, {}, {}};
  for (const std::size_t c : chosen) result.columns.push_back(table.columns[c]);
  for (const auto& row : table.rows) {
    std::vector<Cell>& cells = result.rows.emplace_back();
    for (const std::size_t c : chosen) cells.push_back(cell_of(row, c));
  }
  return result;
}

Table rows_of(Table table, std::string_view key, std::string_view text) {
  const auto column = std::ranges::find(table.columns, key, &Column::key);
  const auto at = static_cast<std::size_t>(column - table.columns.begin());
  std::erase_if(table.rows, [&](const std::vector<Cell>& row) {
    const auto* cell = std::get_if<std::string>(&cell_of(row, at));
    return cell == nullptr || *cell != text;
  });
  return table;
}

std::string to_csv(const Table& table) {
  std::string csv;
  for (std::size_t c = 0; c < table.columns.size(); ++c)
    csv.append(c > 0 ? "," : "").append(field_text(table.columns[c].key));
  csv += "\r\n";
  for (const auto& row : table.rows) {
    for (std::size_t c = 0; c < table.columns.size(); ++c)
      csv.append(c > 0 ? "," : "").append(csv_field(cell_of(row, c)));
    csv += "\r\n";
  }
  return csv;
}

Json to_json(const Table& table) {
  Json rows = Json::array();
  for (const auto& row : table.rows) {
    Json object = Json::object();
    for (std::size_t c = 0; c < table.columns.size(); ++c) {
      const Cell& cell = cell_of(row, c);
      Json& value = object[table.columns[c].key];
      if (const auto* text = std::get_if<std::string>(&cell)) value = *text;
      if (const auto* count = std::get_if<std::int64_t>(&cell)) value = *count;
      if (const auto* number = std::get_if<double>(&cell); number && std::isfinite(*number))
        value = *number;
    }
    rows.push_back(std::move(object));
  }
  return rows;
}

std::string to_text(const Table& table, std::size_t rows) {
  const std::size_t columns = table.columns.size(), n = std::min(rows, table.rows.size());
  Layout layout{std::vector<std::size_t>(columns), std::vector<bool>(columns)};
  std::vector<std::vector<std::string>> lines(1);
  for (const Column& column : table.columns) lines[0].push_back(in_one_line(column.title));
  for (std::size_t r = 0; r < n; ++r) {
    auto& line = lines.emplace_back();
    for (std::size_t c = 0; c < columns; ++c) {
      const Cell& cell = cell_of(table.rows[r], c);
      line.push_back(in_one_line(shown(cell, table.columns[c].unit)));
      if (is_number(cell)) layout.is_right[c] = true;
    }
  }
  for (const auto& line : lines)
    for (std::size_t c = 0; c < columns; ++c)
      layout.widths[c] = std::max(layout.widths[c], characters(line[c]));
  std::string text;
  for (const auto& line : lines) text += line_of(line, layout);
  if (n < table.rows.size()) text += fmt::format("... and {} more\n", table.rows.size() - n);
  return text;
}

}  // namespace warpstep::profiler
