// Which class every file of a folder of images belongs to.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "data/file.h"

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

}  // namespace warpstep::data
