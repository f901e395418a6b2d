#include "tests/cuda_on_cpu/lane.h"

#include <array>
#include <boost/context/protected_fixedsize_stack.hpp>
#include <string_view>
#include <utility>

// This file and simt.cpp are compiled without -fsanitize; SIMT_ASAN or SIMT_TSAN names the
// sanitizer of the program. ThreadSanitizer would treat an instrumented scheduler as one more CUDA
// thread.
#if defined(SIMT_ASAN)
#include <sanitizer/common_interface_defs.h>
#elif defined(SIMT_TSAN)
#include <sanitizer/tsan_interface.h>
#endif

namespace warpstep::simt {
namespace {
constexpr std::size_t stack_bytes = std::size_t{256} << 10;  // reserved, not committed
}  // namespace

Lane::Lane(unsigned in_block, const std::function<void()>& body) : rank(in_block), body_(body) {
  boost::context::protected_fixedsize_stack allocator{stack_bytes};
  stack_ = allocator.allocate();
  // Stack tops a power of two apart would all map to one set of the cache.
  const std::size_t skipped = std::size_t{in_block % 64} * 128;
  const boost::context::preallocated usable{static_cast<std::byte*>(stack_.sp) - skipped,
                                            stack_bytes - skipped, stack_};
  self_ = boost::context::fiber{
      std::allocator_arg, usable, allocator,
      [this](boost::context::fiber&& caller) { return loop(std::move(caller)); }};
#if defined(SIMT_TSAN)
  tsan_self_ = __tsan_create_fiber(0);
#endif
}

void Lane::resume() {
#if defined(SIMT_ASAN)
  void* fake = nullptr;
  __sanitizer_start_switch_fiber(&fake, static_cast<std::byte*>(stack_.sp) - stack_.size,
                                 stack_.size);
#elif defined(SIMT_TSAN)
  tsan_caller_ = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(tsan_self_, __tsan_switch_to_fiber_no_sync);
#endif
  self_ = std::move(self_).resume();
#if defined(SIMT_ASAN)
  __sanitizer_finish_switch_fiber(fake, nullptr, nullptr);
#endif
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
}

void Lane::suspend() {
#if defined(SIMT_ASAN)
  void* fake = nullptr;
  __sanitizer_start_switch_fiber(&fake, caller_bottom_, caller_bytes_);
#elif defined(SIMT_TSAN)
  __tsan_switch_to_fiber(tsan_caller_, __tsan_switch_to_fiber_no_sync);
#endif
  caller_ = std::move(caller_).resume();
#if defined(SIMT_ASAN)
  __sanitizer_finish_switch_fiber(fake, &caller_bottom_, &caller_bytes_);
#endif
}

boost::context::fiber Lane::loop(boost::context::fiber&& caller) {
#if defined(SIMT_ASAN)
  __sanitizer_finish_switch_fiber(nullptr, &caller_bottom_, &caller_bytes_);
#endif
  caller_ = std::move(caller);
  for (;;) {
    try {
      body_();
    } catch (const boost::context::detail::forced_unwind&) {
      throw;
    } catch (...) {
      failure_ = std::current_exception();
    }
    state = State::done;
    suspend();
  }
}

void Lane::wait(State why, unsigned lanes, Operation what, std::source_location place) {
  state = why;
  mask = lanes;
  operation = what;
  where = place;
  suspend();
}

// The scheduler does this for each lane; a lane never does it for itself, as one that runs ahead
// would order accesses that nothing orders.
void Lane::release([[maybe_unused]] void* tag) {
#if defined(SIMT_TSAN)
  void* caller = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(tsan_self_, __tsan_switch_to_fiber_no_sync);
  __tsan_release(tag);
  __tsan_switch_to_fiber(caller, __tsan_switch_to_fiber_no_sync);
#endif
}

void Lane::acquire([[maybe_unused]] void* tag) {
#if defined(SIMT_TSAN)
  void* caller = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(tsan_self_, __tsan_switch_to_fiber_no_sync);
  __tsan_acquire(tag);
  __tsan_switch_to_fiber(caller, __tsan_switch_to_fiber_no_sync);
#endif
}

bool Lane::beside(const Lane& other) const {
  return operation == other.operation && where.line() == other.where.line() &&
         where.column() == other.where.column() &&
         (where.file_name() == other.where.file_name() ||  // most often
          std::string_view(where.file_name()) == other.where.file_name());
}

bool Lane::meets(const Lane& other) const {
  return state == State::at_warp && other.state == State::at_warp && mask == other.mask &&
         beside(other);
}

std::string Lane::place() const {
  return std::string(where.file_name()) + ":" + std::to_string(where.line());
}

std::string Lane::operation_name() const {
  constexpr std::array<const char*, 16> names{
      "nothing",          "__syncthreads",  "__syncthreads_count", "__syncthreads_and",
      "__syncthreads_or", "__syncwarp",     "__shfl_sync",         "__shfl_xor_sync",
      "__shfl_down_sync", "__shfl_up_sync", "__ballot_sync",       "__any_sync",
      "__all_sync",       "load_matrices",  "multiply_add",        "begin_copy"};
  return names[static_cast<std::size_t>(operation)];
}

std::string Lane::standing() const {
  return state == State::done ? "has ended" : "is at " + operation_name() + ", " + place();
}

}  // namespace warpstep::simt
