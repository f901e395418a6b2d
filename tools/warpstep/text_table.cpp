#include "tools/warpstep/text_table.h"

#include <algorithm>

#include "engine/core/text.h"

namespace warpstep::tools {
std::string TextTable::text() const {
  TextTable clean = *this;
  for (Column& column : clean.columns) column.heading = printable(column.heading);
  for (auto& row : clean.rows)
    for (std::string& cell : row) cell = printable(cell);
  return clean.laid_out();
}

std::string TextTable::laid_out() const {
  std::vector<std::size_t> widths;
  for (std::size_t i = 0; i < columns.size(); ++i) {
    widths.push_back(characters(columns[i].heading));
    for (const auto& row : rows) widths[i] = std::max(widths[i], characters(row[i]));
  }
  std::string text;
  const auto add = [&](const auto& cell_of) {
    std::string line;
    for (std::size_t i = 0; i < columns.size(); ++i) {
      const std::string& cell = cell_of(i);
      const std::string space(widths[i] - characters(cell), ' ');
      line += (i ? "  " : "") + (columns[i].right ? space + cell : cell + space);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  };
  add([&](std::size_t i) -> const std::string& { return columns[i].heading; });
  for (const auto& row : rows) add([&](std::size_t i) -> const std::string& { return row[i]; });
  return text;
}

}  // namespace warpstep::tools
