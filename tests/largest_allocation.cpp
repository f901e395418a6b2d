#include "tests/largest_allocation.h"

#include <atomic>
#include <cstdlib>
#include <new>

namespace {
std::atomic<std::size_t> largest_bytes = 0;
}

void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  std::size_t before = largest_bytes.load(std::memory_order_relaxed);
  while (before < bytes && !largest_bytes.compare_exchange_weak(before, bytes)) {
  }
  return std::malloc(bytes > 0 ? bytes : 1);
}
void* operator new(std::size_t bytes) {
  if (void* memory = operator new(bytes, std::nothrow)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}

namespace warpstep::testing_support {

void forget_allocations() {
  largest_bytes = 0;
}

std::size_t largest_allocation_bytes() {
  return largest_bytes;
}

}  // namespace warpstep::testing_support
