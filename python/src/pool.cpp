#include "python/src/pool.h"

#include <new>
#include <vector>

namespace warpstep::python {
namespace {

constexpr std::align_val_t cache_line{64};

std::byte* new_block(std::size_t bytes) {
  return static_cast<std::byte*>(::operator new(bytes, cache_line));
}

void delete_block(std::byte* block) {
  ::operator delete(block, cache_line);
}

}  // namespace

BlockPool::~BlockPool() {
  for (std::byte* block : free_)
    if (!is_slot(block)) delete_block(block);
  delete_block(slots_);
}

std::byte* BlockPool::allocate(std::size_t bytes) {
  slots_ = new_block(bytes);
  slots_bytes_ = bytes;
  has_loader_ = true;
  return slots_;
}

void BlockPool::release(std::byte*, std::size_t) noexcept {
  const std::lock_guard lock(mutex_);
  for (std::byte* block : in_loader_) delete_block(block);
  in_loader_.clear();
  has_loader_ = false;
}

// give_back() must not allocate: a loader has at most 64 slots.
std::byte* BlockPool::take(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  free_.reserve(most_free + 64);
  in_loader_.reserve(in_loader_.size() + 1);
  std::byte* block = nullptr;
  if (free_.empty()) {
    block = new_block(bytes);
  } else {
    block = free_.back();
    free_.pop_back();
  }
  if (!is_slot(block)) in_loader_.push_back(block);
  return block;
}

std::shared_ptr<std::byte> BlockPool::lend(std::byte* block) {
  {
    const std::lock_guard lock(mutex_);
    std::erase(in_loader_, block);
  }
  return {block, [pool = shared_from_this()](std::byte* memory) { pool->give_back(memory); }};
}

void BlockPool::give_back(std::byte* block) noexcept {
  {
    const std::lock_guard lock(mutex_);
    if (is_slot(block) || (has_loader_ && free_.size() < most_free)) {
      free_.push_back(block);
      return;
    }
  }
  delete_block(block);
}

}  // namespace warpstep::python
