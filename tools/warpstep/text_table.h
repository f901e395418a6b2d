// Tables of text on stdout, where profiler::Table has no unit for a cell.
#pragma once

#include <string>
#include <vector>

namespace warpstep::tools {

struct TextTable {
  struct Column {
    std::string heading;
    bool right = false;  // numbers
  };
  std::vector<Column> columns;
  std::vector<std::vector<std::string>> rows;  // one cell per column

  // Two spaces between columns, as wide as their longest cells; the last is not padded. Names in
  // cells are made printable.
  std::string text() const;

 private:
  std::string laid_out() const;
};

}  // namespace warpstep::tools
