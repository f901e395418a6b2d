#include "data/transforms/statistics.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>

#include "data/io/parallel.h"
#include "engine/core/cpus.h"
#include "engine/core/error.h"

namespace warpstep::data {
namespace {

struct Sums {
  Scratch scratch;
  std::vector<std::uint8_t> pixels;
  std::uint64_t samples = 0;
  std::uint64_t with_alpha = 0, with_orientation = 0;
  std::uint64_t count = 0;                 // of pixels
  std::array<std::uint64_t, 3> values{};   // 5,000 images of 16384^2 pixels stay below 2^49
  std::array<std::uint64_t, 3> squares{};  // and below 2^57
};

}  // namespace

Shape read_whole(const Dataset& dataset, std::uint64_t index, Scratch& scratch,
                 std::vector<std::uint8_t>& pixels) {
  const Sample sample = dataset.checked_fetch(index, scratch);
  const std::string name = dataset.name(index);
  const Shape shape = decoded_shape(sample, name);
  const std::int64_t channels = dataset.image_shape()[2];
  pixels.resize(static_cast<std::size_t>(shape[0] * shape[1] * channels));
  decode(sample, name, shape, {0, 0, shape[0], shape[1]}, channels, scratch, pixels);
  return {shape[0], shape[1], channels};
}

ChannelStatistics channel_statistics(const Dataset& dataset, const StatisticsOptions& options) {
  const std::uint64_t most = options.most;
  if (most < 1 || most > 100000) {
    fail<UsageError>("statistics of {} samples: must be from 1 to 100000", most);
  }
  int workers = options.workers;
  if (workers <= 0) workers = allowed_cores();
  check_image_shape(dataset.image_shape(), dataset.path());
  const auto channels = static_cast<std::size_t>(dataset.image_shape().back());
  const std::uint64_t samples = std::min(dataset.size(), most);
  std::vector<Sums> sums(static_cast<std::size_t>(workers));
  parallel_for(samples, workers, [&](int thread, std::uint64_t i) {
    Sums& sum = sums[static_cast<std::size_t>(thread)];
    try {
      const std::uint64_t index = i * dataset.size() / samples;
      if (options.any_size) {
        read_whole(dataset, index, sum.scratch, sum.pixels);
      } else {
        sum.pixels.resize(static_cast<std::size_t>(dataset.image_shape().count()));
        dataset.read(index, sum.scratch, sum.pixels);
      }
    } catch (const DataError&) {
      if (!options.forgiven) throw;
      return;
    }
    ++sum.samples;
    if (sum.scratch.has_alpha) ++sum.with_alpha;
    if (sum.scratch.orientation != 1) ++sum.with_orientation;
    sum.count += sum.pixels.size() / channels;
    for (std::size_t at = 0; at < sum.pixels.size(); at += channels) {
      for (std::size_t c = 0; c < channels; ++c) {
        const std::uint64_t value = sum.pixels[at + c];
        sum.values[c] += value;
        sum.squares[c] += value * value;
      }
    }
  });
  ChannelStatistics result;
  std::uint64_t pixels = 0;
  for (const Sums& sum : sums) {
    pixels += sum.count;
    result.samples += sum.samples;
    result.with_alpha += sum.with_alpha;
    result.with_orientation += sum.with_orientation;
  }
  if (result.samples == 0)
    fail<DataError>(
        "{}: none of {} samples can be decoded; `warpstep data verify` lists the reasons",
        dataset.path(), samples);
  const auto count = static_cast<double>(pixels);
  for (std::size_t c = 0; c < channels; ++c) {
    std::uint64_t values = 0;
    std::uint64_t squares = 0;
    for (const Sums& sum : sums) {
      values += sum.values[c];
      squares += sum.squares[c];
    }
    const double mean = static_cast<double>(values) / count;
    const double variance = static_cast<double>(squares) / count - mean * mean;
    result.mean.push_back(mean / 255);
    result.std.push_back(std::sqrt(std::max(0.0, variance)) / 255);
  }
  return result;
}

}  // namespace warpstep::data
