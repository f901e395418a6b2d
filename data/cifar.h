// The binary version of CIFAR-10.
#pragma once

#include <memory>
#include <string>

#include "data/dataset.h"

namespace warpstep::data {

bool has_cifar_files(const std::string& folder, Split split);
std::unique_ptr<Dataset> open_cifar(const std::string& folder, Split split);

}  // namespace warpstep::data
