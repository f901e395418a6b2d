// The order of samples: arithmetic in (seed, epoch, place), so that it needs no state.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace warpstep::data {

using Permutation = std::vector<std::uint32_t>;  // sample index by place in the epoch

// Fisher-Yates with draws (seed, Purpose::order, epoch, ...): 0.2 ms for 50,000 samples.
Permutation shuffled(std::uint64_t seed, std::uint64_t epoch, std::uint32_t samples);

// Permutations of epochs, made once by whoever needs one first and kept while workers may still
// be in them. Thread-safe.
class Order {
 public:
  // Throws UsageError above 2^32 - 1 samples.
  Order(std::uint64_t seed, std::uint64_t samples, bool shuffle);

  // Null for the identity.
  std::shared_ptr<const Permutation> epoch(std::uint64_t epoch);

 private:
  struct Entry {
    std::uint64_t epoch = 0;
    std::shared_ptr<const Permutation> permutation;
  };

  std::uint64_t seed_;
  std::uint32_t samples_;
  bool shuffle_;
  std::mutex mutex_;
  std::array<Entry, 2> cache_;  // by parity of the epoch: the running one and the next
};

}  // namespace warpstep::data
