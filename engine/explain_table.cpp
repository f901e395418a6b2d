#include "engine/explain_table.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/core/types.h"

namespace warpstep::explained {
namespace {

constexpr int least_cut = 12;  // characters of a cut column at the least

}  // namespace

std::string Table::text() const {
  std::vector<int> widths;
  for (std::size_t c = 0; c < columns_.size(); ++c) {
    int width = static_cast<int>(columns_[c].title.size());
    for (const auto& row : rows_)
      if (row.size() > 1) width = std::max(width, static_cast<int>(row[c].size()));
    widths.push_back(std::min(width, columns_[c].limit));
  }
  std::vector<std::string> titles;
  for (const Column& column : columns_) titles.push_back(column.title);
  std::string all = line(titles, widths);
  for (const auto& row : rows_) all += row.size() > 1 ? line(row, widths) : row[0] + "\n";
  return all;
}

std::string Table::line(const std::vector<std::string>& cells,
                        const std::vector<int>& widths) const {
  std::string text;
  int end = 0;  // of the columns so far
  for (std::size_t c = 0; c < columns_.size(); ++c) {
    end += widths[c] + (c > 0 ? 2 : 0);
    if (c > 0) text += "  ";
    const int room = std::max(0, end - static_cast<int>(text.size()));
    text += columns_[c].number ? fmt::format("{:>{}}", cells[c], room)
                               : fmt::format("{:<{}}", cells[c], room);
  }
  text.erase(text.find_last_not_of(' ') + 1);
  const int cut = std::max(page_width, end - widths.back() + least_cut);
  if (static_cast<int>(text.size()) > cut) text.replace(idx(cut - 1), std::string::npos, "…");
  return text + "\n";
}

}  // namespace warpstep::explained
