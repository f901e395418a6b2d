// Mean and standard deviation of a data set's channels, for normalisation.
#pragma once

#include <cstdint>
#include <vector>

#include "data/formats/dataset.h"

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

struct StatisticsOptions {
  std::uint64_t most = 5000;  // samples, evenly spaced
  int workers = 0;            // threads; 0: all cores
  bool any_size = true;       // images may differ in size: each pixel counts alike
  bool forgiven = false;      // broken samples are passed over
};

// Sums are of integers, so the result is the same on every machine and for every number of threads.
// Throws DataError as read_whole() does, for a size that it may not have as Dataset::read() does,
// and, where broken samples are forgiven, when there is no other.
ChannelStatistics channel_statistics(const Dataset& dataset, const StatisticsOptions& options = {});

}  // namespace warpstep::data
