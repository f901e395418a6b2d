// What the data options' texts mean.
#pragma once

#include <cstdint>
#include <string>

#include "data/load/batch_maker.h"

namespace warpstep::tools {

struct ShuffleChoice {
  data::Shuffle shuffle = data::Shuffle::full;
  std::uint64_t window = 8192;  // samples
  bool operator==(const ShuffleChoice&) const = default;
};

// All throw UsageError that says what there is.
ShuffleChoice parse_shuffle(const std::string& text);         // full, none, window, window:4096
data::DataErrors parse_data_errors(const std::string& text);  // fail, skip, mask
std::uint64_t parse_bytes(const std::string& text);           // none (0), 1000000, 512MiB, 2GiB

}  // namespace warpstep::tools
