// Tables of text for the listings.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace warpstep::explained {

constexpr int page_width = 140;  // characters of a line; only the last column is cut

// Rows of cells under a heading; numbers stand at the right of their column, words at the left. A
// word wider than its column's limit runs into the spare room of the next one.
class Table {
 public:
  struct Column {
    std::string title;
    bool number = false;
    int limit = page_width;
  };

  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}
  void add(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  void heading(std::string text) { rows_.push_back({std::move(text)}); }  // across the columns
  std::string text() const;

 private:
  std::string line(const std::vector<std::string>& cells, const std::vector<int>& widths) const;

  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace warpstep::explained
