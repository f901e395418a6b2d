// Which samples of a mapped set the system was asked to read ahead.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace warpstep::data {

// To ask costs 0.6 us a sample, more than to copy a small one: of a set that memory holds easily
// each sample is asked for once. Thread-safe.
class Asked {
 public:
  Asked() = default;  // asks always
  // For a set of `set_bytes`, of which a machine may spare `budget_bytes` for its page cache.
  Asked(std::uint64_t samples, std::uint64_t set_bytes, std::uint64_t budget_bytes)
      : before_(set_bytes <= budget_bytes ? static_cast<std::size_t>(samples) : 0) {}

  bool is_first(std::uint64_t index) const {
    if (before_.empty()) return true;
    std::atomic<std::uint8_t>& before = before_[static_cast<std::size_t>(index)];
    if (before.load(std::memory_order_relaxed) != 0) return false;
    before.store(1, std::memory_order_relaxed);
    return true;
  }

 private:
  mutable std::vector<std::atomic<std::uint8_t>> before_;
};

}  // namespace warpstep::data
