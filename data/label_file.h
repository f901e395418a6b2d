// labels.pkl and labels.csv as rows of names and labels, before they are checked against files.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace warpstep::data {

struct LabelRow {
  bool is_number = false;  // the key was an int: 7 stands for 7.png or 7.jpg
  std::int64_t name = 0;   // that number, or the place of the file's name in `texts`
  std::int64_t label = 0;  // the class number, or the place of the class's name in `texts`
};

// Texts are kept once: labels by name are many rows and few names.
struct LabelRows {
  std::vector<std::string> texts;
  std::vector<LabelRow> rows;
  bool named = false;  // labels are names of classes

  std::string name(const LabelRow& row) const;  // a file's, or the decimal number of an int key
  const std::string& class_name(const LabelRow& row) const;
};

// Throw DataError naming `path` and the byte or line.
LabelRows read_label_pickle(std::span<const std::uint8_t> file, const std::string& path);
LabelRows read_label_csv(std::span<const std::uint8_t> file, const std::string& path);

}  // namespace warpstep::data
