#include "data/formats/content.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "engine/core/error.h"

namespace warpstep::data {
namespace {

constexpr std::uint64_t most_samples = 256;
constexpr std::uint64_t small_bytes = std::uint64_t{256} << 20;

// Four independent lanes of 8-byte words, so that memory bandwidth is the limit.
std::uint64_t hash_of(std::span<const std::uint8_t> bytes) {
  constexpr std::uint64_t factor = 0x9e3779b97f4a7c15;
  std::array<std::uint64_t, 4> lanes{1, 2, 3, bytes.size()};
  const auto mix = [](std::uint64_t lane, std::uint64_t word) {
    lane = (lane ^ word) * factor;
    return lane ^ lane >> 29;
  };
  for (; bytes.size() >= sizeof lanes; bytes = bytes.subspan(sizeof lanes)) {
    std::array<std::uint64_t, 4> words{};
    std::memcpy(words.data(), bytes.data(), sizeof words);
    for (std::size_t i = 0; i < lanes.size(); ++i) lanes[i] = mix(lanes[i], words[i]);
  }
  for (const std::uint8_t byte : bytes) lanes[0] = mix(lanes[0], byte);
  return mix(mix(mix(lanes[0], lanes[1]), lanes[2]), lanes[3]);
}

struct SampleHash {
  std::uint64_t hash = 0;
  bool covers_all = false;
};

// Whether every sample is hashed: stored as pixels, and few enough to be read in tenths of a
// second. Must not depend on how the set was opened (mapped or not).
bool is_small(const Dataset& set, Scratch& scratch) try {
  return set.checked_fetch(0, scratch).encoding == Encoding::pixels &&
         set.size() * idx(set.image_shape().count()) <= small_bytes;
} catch (const DataError&) {
  return false;
}

SampleHash hash_samples(const Dataset& set) {
  Scratch scratch;
  Hash hash;
  if (set.size() == 0) return {hash.value(), true};
  const std::uint64_t count =
      is_small(set, scratch) ? set.size() : std::min(set.size(), most_samples);
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::uint64_t index = i * set.size() / count;
    try {
      hash.add(hash_of(set.checked_fetch(index, scratch).bytes));
    } catch (const DataError&) {
      hash.add(index);
    }
  }
  return {hash.value(), count == set.size()};
}

}  // namespace

Content content_of(const Dataset& set) {
  const SampleHash samples = hash_samples(set);
  Content content{samples.hash, 0, 0};
  if (samples.covers_all) return content;
  Hash times;
  set.each_file([&](const std::string& path, std::int64_t modified_ns) {
    times.add(std::string_view(path).substr(path.rfind('/') + 1));
    times.add(static_cast<std::uint64_t>(modified_ns));
    content.newest_ns = std::max(content.newest_ns, modified_ns);
  });
  content.times = times.value();
  return content;
}

std::vector<std::string> written_after(const Dataset& set, std::int64_t ns) {
  std::vector<std::string> paths;
  set.each_file([&](const std::string& path, std::int64_t modified_ns) {
    if (modified_ns > ns) paths.push_back(path);
  });
  return paths;
}

}  // namespace warpstep::data
