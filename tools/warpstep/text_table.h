// Tables of text on stdout: columns for people, CSV for spreadsheets.
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

  // Two spaces between columns, as wide as their longest cells; the last is not padded.
  std::string text() const;
};

// A line of RFC 4180 without its end: cells with a comma, a quote or a line's end are quoted.
std::string csv_line(const std::vector<std::string>& cells);

}  // namespace warpstep::tools
