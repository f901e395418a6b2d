// Folders train/ and test/ of PNG and JPEG files.
#pragma once

#include <memory>
#include <string>

#include "data/dataset.h"

namespace warpstep::data {

// False also for a folder of tar shards.
bool has_image_folder(const std::string& spec, Split split);

// spec/train or spec/test. Images of PNG files alone have the channels of the first one; where
// there are JPEG files all have 3. Which of the two a file is, is seen from its content.
std::unique_ptr<Dataset> open_image_folder(const std::string& spec, Split split);

}  // namespace warpstep::data
