// Folders train/ and test/ of PNG files.
#pragma once

#include <memory>
#include <string>

#include "data/dataset.h"

namespace warpstep::data {

bool has_png_folder(const std::string& spec, Split split);

// spec/train or spec/test. The first file decides the shape of all images.
std::unique_ptr<Dataset> open_png_folder(const std::string& spec, Split split);

}  // namespace warpstep::data
