// The order of samples: arithmetic in (seed, epoch, place), so that it needs no state.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace warpstep::data {

enum class Shuffle : std::uint8_t {
  none,
  full,   // every order of an epoch is as likely as any other
  window  // blocks of neighbours are shuffled, then samples inside windows: for sets that are read
          // from a disk whose neighbours are cheap
};

using Permutation = std::vector<std::uint32_t>;  // sample index by place in the epoch

// Fisher-Yates with draws (seed, Purpose::order, epoch, ...): 0.2 ms for 50,000 samples.
Permutation shuffled(std::uint64_t seed, std::uint64_t epoch, std::uint32_t samples);

// A permutation of [0, count) without memory: six Feistel rounds over the next even power of two,
// repeated until the result is below count (Black and Rogaway, "Ciphers with arbitrary finite
// domains", CT-RSA 2002). Some 50 ns a place.
class Feistel {
 public:
  Feistel() = default;
  // Keys are draws (seed, Purpose::order, epoch, 2^40 + stream).
  Feistel(std::uint64_t count, std::uint64_t seed, std::uint64_t epoch, std::uint64_t stream);
  std::uint64_t at(std::uint64_t place) const;

 private:
  std::uint64_t count_ = 1;
  unsigned half_bits_ = 1;
  std::array<std::uint32_t, 8> keys_{};
};

struct OrderOptions {
  std::uint64_t seed = 0;
  std::uint64_t samples = 0;
  Shuffle shuffle = Shuffle::full;
  std::uint64_t window = 8192;  // samples, of Shuffle::window; a block has a 32nd of it
};

// One epoch's order; cheap to copy, safe to share.
class EpochOrder {
 public:
  std::uint64_t at(std::uint64_t place) const;

 private:
  friend class Order;
  OrderOptions options_;
  std::uint64_t epoch_ = 0;
  std::shared_ptr<const Permutation> permutation_;
  Feistel whole_;  // of all samples, or of the blocks
};

// Permutations of epochs, made once by whoever needs one first and kept while workers may still
// be in them. Thread-safe.
class Order {
 public:
  // Above this many samples a full shuffle takes Feistel's permutation: 256 MiB of indices.
  static constexpr std::uint64_t most_in_memory = std::uint64_t{1} << 26;

  // Throws UsageError above 2^32 - 1 samples and for a window below 32.
  explicit Order(const OrderOptions& options);

  EpochOrder epoch(std::uint64_t epoch);
  std::size_t bytes() const;  // of the permutations kept

 private:
  struct Entry {
    std::uint64_t epoch = 0;
    std::shared_ptr<const Permutation> permutation;
  };

  bool keeps() const {
    return options_.shuffle == Shuffle::full && options_.samples <= most_in_memory;
  }

  OrderOptions options_;
  std::mutex mutex_;                  // of cache_
  std::array<std::mutex, 2> making_;  // of the permutation of an even or odd epoch
  std::array<Entry, 2> cache_;        // by parity of the epoch: the running one and the next
};

}  // namespace warpstep::data
