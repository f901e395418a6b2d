// Which class every file of a folder of images belongs to.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/io/file.h"

namespace warpstep::data {

// The classes of a data set, found in its training split and then binding for the other.
struct Classes {
  std::vector<std::string> names;
  bool numbered = false;  // labels are integers below names.size()
};

struct LabelledFile {
  std::string name;  // below the split's folder: "7_frog.png" or "frog/7.png"
  std::uint64_t bytes = 0;
  std::int64_t modified_ns = 0;
  std::int32_t label = 0;
};

struct LabelledFolder {
  std::vector<LabelledFile> files;  // sorted by name
  Classes classes;
};

// Reads labels.pkl or labels.csv of `folder`, or takes its sub-folders as classes. With `known`,
// the classes must be those. Throws DataError for: an empty or missing folder, no labels or more
// than one kind of them, a file without a label, a label without a file, a name twice, a label that
// is negative or not one of the classes, a
// file that is no .png, .jpg or .jpeg.
LabelledFolder read_labelled_folder(const std::string& folder, const std::optional<Classes>& known);

// labels.pkl and labels.csv as rows of names and labels, before they are checked against files.

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
