// One CUDA thread of the emulated grid: a fiber that runs a function repeatedly.
#pragma once

#include <boost/context/fiber.hpp>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <source_location>
#include <string>
#include <vector>

#include "tests/cuda_on_cpu/simt.h"

namespace warpstep::simt {

inline constexpr unsigned warp_size = 32;

class Lane {
 public:
  enum class State : std::uint8_t { ready, at_warp, at_block, done };

  Lane(unsigned in_block, const std::function<void()>& body);
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  // Runs `body` from its start or from the point where it waits, until it waits or ends; rethrows
  // its exceptions.
  void resume();
  // Called by the fiber itself.
  void wait(State why, unsigned lanes, Operation what, std::source_location place);
  // For ThreadSanitizer, while the fiber is suspended: everything it has done so far happens before
  // the next actions of those that acquire `tag` later.
  void release(void* tag);
  void acquire(void* tag);

  bool beside(const Lane& other) const;  // in the same call of the source
  bool meets(const Lane& other) const;   // both wait in the same warp operation
  std::string place() const;             // "FILE:LINE"
  std::string operation_name() const;
  std::string standing() const;  // "is at __syncwarp, FILE:LINE", "has ended"

  const unsigned rank;  // in the block
  uint3 index{};
  State state = State::done;
  bool has_awaited = false;  // the kernel before this one
  unsigned mask = 0;         // of the warp operation it waits in
  Operation operation = Operation::none;
  std::source_location where;
  std::uint64_t brought = 0;
  Fragments fragments{}, published{};  // brought, and handed out
  // Of 16 bytes to shared memory, in groups; the last group has not ended. From null: zeros.
  struct Copy {
    void* to;
    const void* from;  // null: zeros
    std::size_t bytes;
  };
  std::deque<std::vector<Copy>> copies{1};

 private:
  void suspend();
  boost::context::fiber loop(boost::context::fiber&& caller);

  const std::function<void()>& body_;
  boost::context::stack_context stack_;
  boost::context::fiber self_, caller_;
  std::exception_ptr failure_;
  // For the sanitizers, at each switch.
  [[maybe_unused]] void* tsan_self_ = nullptr;
  [[maybe_unused]] void* tsan_caller_ = nullptr;
  [[maybe_unused]] const void* caller_bottom_ = nullptr;
  [[maybe_unused]] std::size_t caller_bytes_ = 0;
};

}  // namespace warpstep::simt
