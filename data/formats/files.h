// Image files without labels, from anywhere: what a trained model is asked about.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "data/formats/dataset.h"

namespace warpstep::data {

struct FoundFiles {
  std::vector<std::string> images;       // folders' in the order of their names
  std::vector<std::string> passed_over;  // files in folders that are not .png, .jpg or .jpeg
  std::vector<std::string> unlisted;     // folders that cannot be listed, each with the reason
  std::vector<std::string> missing;      // given paths that do not exist
};

// The files in `paths` and below the folders in it. Files are not opened: one that cannot be read,
// such as a link to a file that was removed, is an image by its name. Throws DataError if
// there is no image.
FoundFiles find_images(const std::vector<std::string>& paths);

// The images of these files; each has label 0. `shape` [height, width, channels] and `classes` are
// those of the set that the model was trained on.
std::unique_ptr<Dataset> open_files(std::vector<std::string> files, const Shape& shape,
                                    std::vector<std::string> classes);

}  // namespace warpstep::data
