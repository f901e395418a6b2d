// Mean and standard deviation of a data set's channels, for normalisation.
#pragma once

#include <cstdint>
#include <vector>

#include "data/dataset.h"

namespace warpstep::data {

struct ChannelStatistics {    // of values / 255
  std::vector<double> mean;   // [channels]
  std::vector<double> std;    // [channels], of the population; 0 for a constant channel
  std::uint64_t samples = 0;  // looked at
};

// Decodes a whole image in its own size, with the channels of its set, and gives its shape. Throws
// DataError as Dataset::fetch does.
Shape read_whole(const Dataset& dataset, std::uint64_t index, Scratch& scratch,
                 std::vector<std::uint8_t>& pixels);

// Images may differ in size: each pixel counts alike. Over min(size, most) evenly spaced samples.
// Sums are of integers, so the result is the same on every machine and for every number of threads
// (0: all cores). Throws DataError as read_whole() does, or, where broken samples are `forgiven`,
// only when there is no other.
ChannelStatistics channel_statistics(const Dataset& dataset, std::uint64_t most = 5000,
                                     int workers = 0, bool forgiven = false);

}  // namespace warpstep::data
