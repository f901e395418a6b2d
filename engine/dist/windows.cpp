#include "engine/dist/windows.h"

#include <atomic>

namespace warpstep {

// The number of the last exchange in which a rank has given, in a cache line of its own.
struct alignas(64) Windows::Given {
  std::atomic<std::uint64_t> number;
};

Windows::Windows(int size, int rank)
    : size_(size),
      rank_(rank),
      memory_(static_cast<std::size_t>(size) * (sizeof(Given) + 2 * bytes)) {}

Windows::Given& Windows::given(int rank) const {
  return reinterpret_cast<Given*>(memory_.data())[rank];
}

std::byte* Windows::side_of(int rank) const {
  const auto index = static_cast<std::size_t>(rank), size = static_cast<std::size_t>(size_);
  return memory_.data() + size * sizeof(Given) + (2 * index + number_ % 2) * bytes;
}

void Windows::give() const {
  given(rank_).number.store(number_, std::memory_order_release);
}

bool Windows::all_given() const {
  for (int rank = 0; rank < size_; ++rank)
    if (given(rank).number.load(std::memory_order_acquire) < number_) return false;
  return true;
}

std::vector<int> Windows::silent() const {
  std::vector<int> ranks;
  for (int rank = 0; rank < size_; ++rank)
    if (given(rank).number.load(std::memory_order_acquire) < number_) ranks.push_back(rank);
  return ranks;
}

}  // namespace warpstep
