#include "tests/largest_allocation.h"

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <utility>

namespace {
std::atomic<std::size_t> largest_bytes = 0;
constexpr std::size_t none_fails = SIZE_MAX;
thread_local std::size_t before_failure = none_fails;
}  // namespace

void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  if (before_failure != none_fails && before_failure-- == 0) return nullptr;
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

void fail_allocation(std::size_t after) {
  before_failure = after;
}

bool has_failed_allocation() {
  return std::exchange(before_failure, none_fails) == none_fails;
}

}  // namespace warpstep::testing_support
