// Memory of batches that may outlive their loader: a Tensor keeps its block for as long as it
// lives, then the block goes back to the loader.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

#include "data/load/batch_maker.h"

namespace warpstep::python {

// Blocks of one size. The loader's slots are the first ones; more are allocated while a program
// keeps batches. Thread-safe.
class BlockPool final : public data::SlotMemory, public std::enable_shared_from_this<BlockPool> {
 public:
  static constexpr std::size_t most_free = 4;  // allocated blocks that are kept for later

  BlockPool() = default;
  ~BlockPool() override;
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;

  std::byte* allocate(std::size_t bytes) override;  // all slots of the loader; called once
  // The loader has ended. Its slots are freed with the pool, as batches may still be in use.
  void release(std::byte*, std::size_t) noexcept override;

  // A block for the loader. Throws std::bad_alloc.
  std::byte* take(std::size_t bytes);
  // A block that the loader gave away, owned: it comes back at the end and keeps the pool alive
  // until then.
  std::shared_ptr<std::byte> lend(std::byte* block);

 private:
  void give_back(std::byte* block) noexcept;
  bool is_slot(const std::byte* block) const {
    return block >= slots_ && block < slots_ + slots_bytes_;
  }

  std::mutex mutex_;  // of all members
  std::byte* slots_ = nullptr;
  std::size_t slots_bytes_ = 0;
  bool has_loader_ = false;
  std::vector<std::byte*> free_;       // nobody uses them
  std::vector<std::byte*> in_loader_;  // of take(), besides slots
};

}  // namespace warpstep::python
