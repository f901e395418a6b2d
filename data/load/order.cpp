#include "data/load/order.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <numeric>
#include <span>
#include <utility>

#include "engine/core/error.h"
#include "engine/core/random.h"

namespace warpstep::data {
namespace {

constexpr std::uint64_t blocks_per_window = 32;
constexpr std::uint64_t key_space = std::uint64_t{1} << 40;  // above the draws of shuffled()
constexpr std::uint64_t first_place_index = key_space - 1;   // of the draw of EpochOrder::first_

// Fisher-Yates of all places, with draws from `first` on.
template <class Place>
void shuffle(std::span<Place> order, std::uint64_t seed, std::uint64_t epoch, std::uint64_t first) {
  std::iota(order.begin(), order.end(), Place{0});
  const auto places = static_cast<std::uint32_t>(order.size());
  std::array<std::uint32_t, 4> words{};
  for (std::uint32_t drawn = 0; drawn + 1 < places; ++drawn) {
    if (drawn % 4 == 0)
      words = draw(seed, Purpose::order, static_cast<std::uint32_t>(epoch), first + drawn / 4);
    const std::uint32_t last = places - 1 - drawn;
    std::swap(order[last], order[below(words[drawn % 4], last + 1)]);
  }
}

}  // namespace

Permutation shuffled(std::uint64_t seed, std::uint64_t epoch, std::uint32_t samples) {
  Permutation order(samples);
  shuffle(std::span(order), seed, epoch, 0);
  return order;
}

Feistel::Feistel(std::uint64_t count, std::uint64_t seed, std::uint64_t epoch, std::uint64_t stream)
    : count_(count),
      half_bits_(
          (static_cast<unsigned>(std::bit_width(std::max<std::uint64_t>(count, 2) - 1)) + 1) / 2) {
  if (count <= few_.size()) {
    shuffle(std::span(few_).first(count), seed, epoch, 2 * key_space + few_.size() / 4 * stream);
    return;
  }
  for (std::size_t i = 0; i < 2; ++i) {
    const auto words =
        draw(seed, Purpose::order, static_cast<std::uint32_t>(epoch), key_space + 2 * stream + i);
    std::copy(words.begin(), words.end(), keys_.begin() + static_cast<std::ptrdiff_t>(4 * i));
  }
}

std::uint64_t Feistel::at(std::uint64_t place) const {
  if (count_ <= few_.size()) return few_[place];
  const std::uint64_t half = (std::uint64_t{1} << half_bits_) - 1;
  do {
    std::uint64_t left = place >> half_bits_, right = place & half;
    for (std::size_t round = 0; round < 6; ++round) {
      // Two multiply-and-shift rounds mix all bits of a half with the key.
      std::uint64_t mixed = (right ^ keys_[round]) * 0x9E3779B97F4A7C15;
      mixed = (mixed ^ mixed >> 32) * 0xD6E8FEB86659FD93;
      left = std::exchange(right, left ^ (mixed >> 32 & half));
    }
    place = left << half_bits_ | right;
  } while (place >= count_);
  return place;
}

std::uint64_t EpochOrder::at(std::uint64_t place) const {
  if (permutation_) return (*permutation_)[place];
  if (options_.shuffle == Shuffle::none) return place;
  if (options_.shuffle == Shuffle::full) return whole_.at(place);
  place += first_;
  if (place >= options_.samples) place -= options_.samples;
  const std::uint64_t begin = place / options_.window * options_.window;
  const Feistel inside(std::min(options_.window, options_.samples - begin), options_.seed, epoch_,
                       1 + begin / options_.window);
  const std::uint64_t moved = begin + inside.at(place - begin);
  const std::uint64_t size = options_.window / blocks_per_window;
  const std::uint64_t block = moved / size;
  // The last block stays in place if it is shorter than the others.
  return block == options_.samples / size ? moved : whole_.at(block) * size + moved % size;
}

Order::Order(const OrderOptions& options) : options_(options) {
  if (options.samples > std::numeric_limits<std::uint32_t>::max()) {
    fail<UsageError>("{} samples: at most 2^32 - 1 can be shuffled", options.samples);
  }
  if (options.shuffle == Shuffle::window && options.window < blocks_per_window)
    fail<UsageError>("a shuffle window of {} samples: must be at least {}", options.window,
                     blocks_per_window);
}

EpochOrder Order::epoch(std::uint64_t epoch) {
  EpochOrder order;
  order.options_ = options_;
  order.epoch_ = epoch;
  if (options_.shuffle == Shuffle::window) {
    const std::uint64_t blocks = options_.samples / (options_.window / blocks_per_window);
    order.whole_ = Feistel(std::max<std::uint64_t>(blocks, 1), options_.seed, epoch, 0);
    const auto words =
        draw(options_.seed, Purpose::order, static_cast<std::uint32_t>(epoch), first_place_index);
    order.first_ = below(words[0], static_cast<std::uint32_t>(options_.samples));
  } else if (options_.shuffle == Shuffle::full && !keeps()) {
    order.whole_ = Feistel(options_.samples, options_.seed, epoch, 0);
  }
  if (!keeps()) return order;
  // Each parity has its own lock, so that threads that need the other epoch do not wait.
  const std::lock_guard making(making_[epoch % 2]);
  {
    const std::lock_guard lock(mutex_);
    const Entry& entry = cache_[epoch % 2];
    if (entry.permutation && entry.epoch == epoch) {
      order.permutation_ = entry.permutation;
      return order;
    }
  }
  order.permutation_ = std::make_shared<Permutation>(
      shuffled(options_.seed, epoch, static_cast<std::uint32_t>(options_.samples)));
  const std::lock_guard lock(mutex_);
  cache_[epoch % 2] = {epoch, order.permutation_};
  return order;
}

std::size_t Order::bytes() const {
  return keeps() ? cache_.size() * options_.samples * sizeof(std::uint32_t) : 0;
}

}  // namespace warpstep::data
