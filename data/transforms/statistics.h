// Mean and standard deviation of each channel of a data set, for normalisation.
#pragma once

#include <cstdint>
#include <vector>

#include "data/formats/dataset.h"

namespace warpstep::data {

struct ChannelStatistics {       // of values / 255
  std::vector<double> mean;      // [channels]
  std::vector<double> std;       // [channels], of the population; 0 for a constant channel
  std::uint64_t samples = 0;     // that were read
  std::uint64_t with_alpha = 0;  // of these: PNG files with an alpha channel or colour
  // Of these: JPEG files whose EXIF data say to turn or mirror the pixels, which is ignored.
  std::uint64_t with_orientation = 0;
};

// Decodes a whole image in its own size, with the channels of its set. Returns its shape. Throws
// DataError as Dataset::fetch does.
Shape read_whole(const Dataset& dataset, std::uint64_t index, Scratch& scratch,
                 std::vector<std::uint8_t>& pixels);

struct StatisticsOptions {
  std::uint64_t most = 5000;  // samples, evenly spaced
  int workers = 0;            // threads; 0: all cores
  bool any_size = true;       // images may differ in size; every pixel has the same weight
  bool forgiven = false;      // skip broken samples
};

// Sums integers, so the result is the same on every machine and for every number of threads. Throws
// DataError as read_whole() does; as Dataset::read() does without any_size; and, with forgiven,
// when every sample is broken.
ChannelStatistics channel_statistics(const Dataset& dataset, const StatisticsOptions& options = {});

}  // namespace warpstep::data
