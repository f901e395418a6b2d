// The order of samples in an epoch: a pure function of (seed, epoch, place).
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace warpstep::data {

enum class Shuffle : std::uint8_t {
  none,
  full,   // all orders of an epoch are equally likely, up to Order::most_in_memory samples
  window  // shuffles blocks of neighbours, then samples within windows: for sets on disks where
          // reading neighbours is cheap
};

using Permutation = std::vector<std::uint32_t>;  // sample index by place in the epoch

// Fisher-Yates with draws (seed, Purpose::order, epoch, ...): 0.2 ms for 50,000 samples.
Permutation shuffled(std::uint64_t seed, std::uint64_t epoch, std::uint32_t samples);

// A permutation of [0, count) in constant memory: six Feistel rounds over the next even power of
// two, repeated until the result is below count (Black and Rogaway, "Ciphers with arbitrary finite
// domains", CT-RSA 2002). About 50 ns per place. Up to 64 places, of whose orders six rounds
// prefer some, it is a Fisher-Yates shuffle.
class Feistel {
 public:
  Feistel() = default;
  // Keys are draws (seed, Purpose::order, epoch, 2^40 + 2 stream + 0 and 1), or of few places
  // 2^41 + 16 stream + 0 to 15.
  Feistel(std::uint64_t count, std::uint64_t seed, std::uint64_t epoch, std::uint64_t stream);
  std::uint64_t at(std::uint64_t place) const;

 private:
  std::uint64_t count_ = 1;
  unsigned half_bits_ = 1;
  std::array<std::uint32_t, 8> keys_{};
  std::array<std::uint8_t, 64> few_{};  // the permutation of so few places
};

struct OrderOptions {
  std::uint64_t seed = 0;
  std::uint64_t samples = 0;
  Shuffle shuffle = Shuffle::full;
  std::uint64_t window = 8192;  // samples; for Shuffle::window, whose blocks are 1/32 of it
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
  Feistel whole_;  // permutes all samples, or the blocks
  // Where in the windows the epoch begins; it ends before that. From a fixed place, an epoch that
  // is cut off before its end would always lack samples of the last block.
  std::uint64_t first_ = 0;
};

// Permutations of epochs: the first thread that needs one makes it; kept while workers may still
// use it. Thread-safe.
class Order {
 public:
  // Above this many samples (256 MiB of indices) a full shuffle uses Feistel's permutation.
  static constexpr std::uint64_t most_in_memory = std::uint64_t{1} << 26;

  // Throws UsageError above 2^32 - 1 samples and for a window below 32.
  explicit Order(const OrderOptions& options);

  EpochOrder epoch(std::uint64_t epoch);
  std::size_t bytes() const;  // most memory of the permutations

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
  std::array<Entry, 2> cache_;        // by parity of the epoch: the current and the next one
};

}  // namespace warpstep::data
