// The class of every file in a folder of images: from labels.pkl, labels.csv or sub-folders.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/io/file.h"

namespace warpstep::data {

// The classes of a data set: defined by its training split, and binding for the test split.
struct Classes {
  std::vector<std::string> names;
  bool numbered = false;  // labels are integers below names.size()
};

struct LabelledFile {
  std::string name;  // relative to the split's folder: "7_frog.png" or "frog/7.png"
  std::uint64_t bytes = 0;
  std::int64_t modified_ns = 0;
  std::int32_t label = 0;
};

struct LabelledFolder {
  std::vector<LabelledFile> files;  // sorted by name
  Classes classes;
  std::vector<std::string> passed_over;  // relative to the split's folder
};

// What differs between the classes of a split and those of the training split, which are not the
// same: a clause for messages.
std::string other_classes(const std::vector<std::string>& classes,
                          const std::vector<std::string>& of_training);

// Reads labels.pkl or labels.csv of `folder`; without either, its sub-folders are the classes. If
// `known` is given, the classes must match it. What systems and people leave in folders is passed
// over: Thumbs.db, desktop.ini, __MACOSX/, README*, LICENSE*, *.txt and *.md. Throws DataError for
// an empty or missing folder, no labels or more than one kind of labels, a file without a label, a
// label without a file, a repeated name, a label that is negative or not one of the classes, and a
// file that is not .png, .jpg or .jpeg.
LabelledFolder read_labelled_folder(const std::string& folder, const std::optional<Classes>& known);

// Whether a folder itself has labels.pkl or labels.csv, or folders with images in them.
bool has_labelled_images(const std::string& folder);

// A row of labels.pkl or labels.csv, before it is matched with a file.
struct LabelRow {
  bool is_number = false;  // the key is an int: 7 means 7.png or 7.jpg
  std::int64_t name = 0;   // that number, or the index of the file's name in `texts`
  std::int64_t label = 0;  // the class number, or the index of the class's name in `texts`
};

// Each text is stored once: many rows share a few class names.
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
