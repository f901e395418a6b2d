// MNIST's IDX files, gzipped or not.
#pragma once

#include <memory>
#include <string>

#include "data/dataset.h"

namespace warpstep::data {

bool has_idx_files(const std::string& folder, Split split);
// Memory is taken as the images come out of the file, whatever its header claims.
std::unique_ptr<Dataset> open_idx(const std::string& folder, Split split,
                                  const OpenOptions& options = {});

}  // namespace warpstep::data
