#include "data/order.h"

#include <limits>
#include <numeric>
#include <utility>

#include "engine/core/error.h"
#include "engine/core/random.h"

namespace warpstep::data {

Permutation shuffled(std::uint64_t seed, std::uint64_t epoch, std::uint32_t samples) {
  Permutation order(samples);
  std::iota(order.begin(), order.end(), 0U);
  std::array<std::uint32_t, 4> words{};
  for (std::uint32_t drawn = 0; drawn + 1 < samples; ++drawn) {
    if (drawn % 4 == 0) {
      words = draw(seed, Purpose::order, static_cast<std::uint32_t>(epoch), drawn / 4);
    }
    const std::uint32_t last = samples - 1 - drawn;
    std::swap(order[last], order[below(words[drawn % 4], last + 1)]);
  }
  return order;
}

Order::Order(std::uint64_t seed, std::uint64_t samples, bool shuffle)
    : seed_(seed), samples_(static_cast<std::uint32_t>(samples)), shuffle_(shuffle) {
  if (samples > std::numeric_limits<std::uint32_t>::max()) {
    fail<UsageError>("{} samples are more than the 2^32 - 1 that can be shuffled", samples);
  }
}

std::shared_ptr<const Permutation> Order::epoch(std::uint64_t epoch) {
  if (!shuffle_) return nullptr;
  const std::lock_guard lock(mutex_);
  Entry& entry = cache_[epoch % 2];
  if (!entry.permutation || entry.epoch != epoch) {
    entry.permutation = std::make_shared<Permutation>(shuffled(seed_, epoch, samples_));
    entry.epoch = epoch;
  }
  return entry.permutation;
}

}  // namespace warpstep::data
