// labels.pkl and labels.csv as rows of names and labels, before they are checked against files.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

namespace warpstep::data {

struct LabelRow {
  std::string name;                               // a file's, or the decimal number of an int key
  bool is_number = false;                         // the key was an int: 7 stands for 7.png or 7.jpg
  std::variant<std::int64_t, std::string> label;  // a number or a class name
};

// All labels of the result are of one kind. Throw DataError naming `path` and the byte or line.
std::vector<LabelRow> read_label_pickle(std::span<const std::uint8_t> file,
                                        const std::string& path);
std::vector<LabelRow> read_label_csv(std::span<const std::uint8_t> file, const std::string& path);

}  // namespace warpstep::data
