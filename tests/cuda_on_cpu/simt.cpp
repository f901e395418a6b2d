#include "tests/cuda_on_cpu/simt.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "tests/cuda_on_cpu/lane.h"

#if defined(SIMT_TSAN)
#include <sanitizer/tsan_interface.h>
extern "C" void __tsan_ignore_thread_begin();
extern "C" void __tsan_ignore_thread_end();
#endif

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

namespace warpstep::simt {
namespace {

[[noreturn]] void fail(const Lane& lane, const std::string& why) {
  const uint3 block = blockIdx;
  throw Error(lane.place() + ": " + lane.operation_name() + " by thread " +
              std::to_string(lane.rank) + " of block (" + std::to_string(block.x) + ", " +
              std::to_string(block.y) + ", " + std::to_string(block.z) + "): " + why);
}

std::uint64_t first_schedule() {
  const char* text = std::getenv("WARPSTEP_SIMT_SCHEDULE");
  return text == nullptr ? 0 : std::strtoull(text, nullptr, 10);
}

class Machine {
 public:
  void run(dim3 grid, dim3 block, std::size_t shared_bytes, const std::function<void()>& thread);
  void poison_also(std::byte* begin, std::byte* end) {
    const std::lock_guard lock(turn_);
    ++arrays_[{begin, end}];
  }
  void forget(std::byte* begin) {
    const std::lock_guard lock(turn_);
    const auto found = arrays_.lower_bound({begin, nullptr});
    if (found != arrays_.end() && --found->second == 0) arrays_.erase(found);
  }

  std::uint64_t seed = first_schedule();
  std::unique_ptr<std::byte[]> shared;
  Lane* running = nullptr;
  Lane& lane(unsigned rank) { return lanes_[rank]; }
  unsigned votes() const { return votes_; }
  const Gathered& published(unsigned rank) const { return published_[rank / warp_size]; }

 private:
  void run_block(std::size_t shared_bytes);
  void poison(std::size_t shared_bytes);
  void join();
  void advance(unsigned first, unsigned count);
  bool release_warp(unsigned first, unsigned count);
  bool complete(Lane& leader, unsigned first, unsigned count);
  void blame(const Lane& waiting, unsigned first, unsigned count) const;
  bool release_block();
  const std::vector<unsigned>& order(unsigned count, std::vector<unsigned>& permutation);

  std::mutex turn_;
  std::function<void()> body_;
  std::deque<Lane> lanes_;
  std::vector<Gathered> published_;          // operands of each warp that were handed out
  std::vector<std::deque<Lane>> abandoned_;  // suspended in a kernel that failed, never unwound
  unsigned live_ = 0;                        // lanes of the running kernel's blocks
  unsigned votes_ = 0;
  std::mt19937 random_;
  std::vector<unsigned> block_order_, warp_order_, lane_order_;
  std::map<std::pair<std::byte*, std::byte*>, int> arrays_;  // and how many sources name each
};

void Machine::run(dim3 grid, dim3 block, std::size_t shared_bytes,
                  const std::function<void()>& thread) {
  const std::lock_guard lock(turn_);
  if (check_shape(grid, block) != cudaSuccess)
    throw Error("no device takes a launch of this shape");
  const std::uint64_t blocks = std::uint64_t{grid.x} * grid.y * grid.z;
  if (blocks > 0xffffffffU) throw Error("more blocks than a CPU gets through");
  live_ = block.x * block.y * block.z;
  body_ = std::ref(thread);
  while (lanes_.size() < live_) lanes_.emplace_back(static_cast<unsigned>(lanes_.size()), body_);
  published_.resize((live_ + warp_size - 1) / warp_size);
  for (unsigned r = 0; r < live_; ++r)
    lanes_[r].index = {r % block.x, r / block.x % block.y, r / (block.x * block.y)};
  gridDim = grid;
  blockDim = block;
  random_.seed(static_cast<std::mt19937::result_type>(seed));
  for (const unsigned b : order(static_cast<unsigned>(blocks), block_order_)) {
    blockIdx = {b % grid.x, b / grid.x % grid.y, b / (grid.x * grid.y)};
    try {
      run_block(shared_bytes);
    } catch (...) {
      join();
      abandoned_.push_back(std::exchange(lanes_, {}));
      throw;
    }
  }
}

void Machine::poison(std::size_t shared_bytes) {
  shared.reset();
  if (shared_bytes > 0) {  // exact in size, so that AddressSanitizer guards its ends
    shared = std::make_unique_for_overwrite<std::byte[]>(shared_bytes);
    std::memset(shared.get(), 0xff, shared_bytes);
  }
#if defined(SIMT_TSAN)  // which need not see what is before all of the block's accesses
  __tsan_ignore_thread_begin();
#endif
  for (const auto& [range, count] : arrays_)
    std::memset(range.first, 0xff, static_cast<std::size_t>(range.second - range.first));
#if defined(SIMT_TSAN)
  __tsan_ignore_thread_end();
#endif
}

void Machine::run_block(std::size_t shared_bytes) {
  poison(shared_bytes);
#if defined(SIMT_TSAN)
  __tsan_release(this);
#endif
  for (unsigned r = 0; r < live_; ++r) {
    lanes_[r].state = Lane::State::ready;
    lanes_[r].has_awaited = false;
    if (auto& copies = lanes_[r].copies; copies.size() != 1 || !copies.front().empty())
      copies.assign(1, {});
    lanes_[r].acquire(this);
  }
  const unsigned warps = (live_ + warp_size - 1) / warp_size;
  do {
    for (const unsigned w : order(warps, warp_order_))
      advance(w * warp_size, std::min(warp_size, live_ - w * warp_size));
  } while (release_block());
  join();
}

// The work of the block's lanes happens before the host's next actions.
void Machine::join() {
  for (unsigned r = 0; r < live_; ++r) lanes_[r].release(this);
#if defined(SIMT_TSAN)
  __tsan_acquire(this);
#endif
}

// Runs one warp until each of its lanes waits at a block barrier or has ended.
void Machine::advance(unsigned first, unsigned count) {
  do {
    for (const unsigned l : order(count, lane_order_)) {
      running = &lanes_[first + l];
      if (running->state != Lane::State::ready) continue;
      threadIdx = running->index;
      running->resume();
    }
  } while (release_warp(first, count));
}

// No lane of the warp can run: completes each warp operation at which all its lanes have arrived.
// Results are handed out only now, so that no lane overwrites what another has yet to read.
bool Machine::release_warp(unsigned first, unsigned count) {
  bool released = false;
  Lane* stuck = nullptr;
  for (unsigned l = 0; l < count; ++l) {
    Lane& lane = lanes_[first + l];
    if (lane.state != Lane::State::at_warp) continue;
    if (complete(lane, first, count))
      released = true;
    else if (stuck == nullptr)
      stuck = &lane;
  }
  if (!released && stuck != nullptr) blame(*stuck, first, count);
  return released;
}

bool Machine::complete(Lane& leader, unsigned first, unsigned count) {
  std::array<Lane*, warp_size> members{};
  unsigned size = 0;
  for (unsigned m = 0; m < warp_size; ++m) {
    if ((leader.mask >> m & 1U) == 0) continue;
    if (m >= count || !lanes_[first + m].meets(leader)) return false;
    members[size++] = &lanes_[first + m];
  }
  const bool orders_memory = leader.operation == Operation::syncwarp;  // shuffles do not
  for (unsigned m = 0; m < size; ++m) {
    Lane& member = *members[m];
    published_[member.rank / warp_size][member.rank % warp_size] = member.brought;
    if (leader.operation == Operation::multiply_add) member.published = member.fragments;
    member.state = Lane::State::ready;
    if (orders_memory) member.release(&leader);
  }
  for (unsigned m = 0; m < size && orders_memory; ++m) members[m]->acquire(&leader);
  return true;
}

// Reports the lane of its mask for which `waiting` waits in vain.
void Machine::blame(const Lane& waiting, unsigned first, unsigned count) const {
  for (unsigned m = 0; m < warp_size; ++m) {
    if ((waiting.mask >> m & 1U) == 0) continue;
    const std::string who = "its mask names lane " + std::to_string(m) + ", which ";
    if (m >= count) fail(waiting, who + "the block does not have");
    const Lane& other = lanes_[first + m];
    if (!other.meets(waiting))
      fail(waiting, who + other.standing() + (other.beside(waiting) ? " with another mask" : ""));
  }
}

// No warp can run: opens the block barrier, or ends the block.
bool Machine::release_block() {
  const Lane& first = lanes_[0];
  const bool done = first.state == Lane::State::done;
  votes_ = 0;
  for (unsigned r = 0; r < live_; ++r) {
    const Lane& lane = lanes_[r];
    votes_ += static_cast<unsigned>(lane.brought);
    if (lane.state == first.state && (done || lane.beside(first))) continue;
    const Lane &waiting = done ? lane : first, &other = done ? first : lane;
    fail(waiting, "divergent: thread " + std::to_string(other.rank) + " " + other.standing());
  }
  if (done) return false;
  for (unsigned r = 0; r < live_; ++r) lanes_[r].release(this);
  for (unsigned r = 0; r < live_; ++r) {
    lanes_[r].acquire(this);
    lanes_[r].state = Lane::State::ready;
  }
  return true;
}

const std::vector<unsigned>& Machine::order(unsigned count, std::vector<unsigned>& permutation) {
  permutation.resize(count);
  std::iota(permutation.begin(), permutation.end(), 0U);
  if (seed != 0) std::shuffle(permutation.begin(), permutation.end(), random_);
  return permutation;
}

void land(const Lane::Copy& copy) {
  if (copy.from != nullptr)
    std::memcpy(copy.to, copy.from, copy.bytes);
  else
    std::memset(copy.to, 0, copy.bytes);
}

Machine& machine() {
  static Machine& instance = *new Machine;  // its fibers are never unwound
  return instance;
}

}  // namespace

void run(dim3 grid, dim3 block, std::size_t shared_bytes, const std::function<void()>& thread) {
  machine().run(grid, block, shared_bytes, thread);
}

void set_schedule(std::uint64_t seed) {
  machine().seed = seed;
}
std::uint64_t schedule() {
  return machine().seed;
}
std::byte* dynamic_shared() {
  return machine().shared.get();
}
void note_awaited() {
  machine().running->has_awaited = true;
}

bool has_awaited() {
  return machine().running->has_awaited;
}

void begin_copy(void* shared, const void* global, std::size_t bytes, bool zeros,
                std::source_location where) {
  if ((std::bit_cast<std::uintptr_t>(shared) | std::bit_cast<std::uintptr_t>(global)) % bytes != 0)
    fail_here(Operation::begin_copy, where,
              "is not at multiples of " + std::to_string(bytes) + " bytes");
  const Lane::Copy copy{shared, zeros ? nullptr : global, bytes};
  if (schedule() % 2 == 1)
    land(copy);
  else
    machine().running->copies.back().push_back(copy);
}

void end_group() {
  machine().running->copies.emplace_back();
}

void await_groups(std::size_t running) {
  auto& copies = machine().running->copies;
  for (; copies.size() > running + 1; copies.pop_front())
    for (const Lane::Copy& copy : copies.front()) land(copy);
}

unsigned lane() {
  return machine().running->rank % warp_size;
}

void fail_here(Operation operation, std::source_location where, const std::string& why) {
  Lane& self = *machine().running;
  self.operation = operation;
  self.where = where;
  fail(self, why);
}

unsigned block_barrier(Operation operation, bool predicate, std::source_location where) {
  Lane& self = *machine().running;
  self.brought = predicate ? 1 : 0;
  self.wait(Lane::State::at_block, ~0U, operation, where);
  return machine().votes();
}

const Gathered& gather(unsigned mask, std::uint64_t value, Operation operation,
                       std::source_location where) {
  Lane& self = *machine().running;
  const unsigned own = self.rank % warp_size;
  if ((mask >> own & 1U) == 0) fail_here(operation, where, "its mask leaves out the calling lane");
  self.brought = value;
  self.wait(Lane::State::at_warp, mask, operation, where);
  return machine().published(self.rank);
}

// Of mma.sync.m16n8k16: a lane holds two neighbours of k of rows g and g + 8 and of column g, where
// g is its number / 4, at k = 2 (its number % 4) and k + 8.
void multiply_fragments(float (&sums)[4], const Fragments& own, std::source_location where) {
  Lane& self = *machine().running;
  self.fragments = own;
  gather(0xffffffffU, 0, Operation::multiply_add, where);
  const unsigned in_warp = self.rank % warp_size, first = self.rank - in_warp;
  const auto row_of = [&](unsigned group, unsigned pair) -> const Fragments& {
    return machine().lane(first + 4 * group + pair).published;
  };
  for (unsigned half = 0; half < 2; ++half)
    for (unsigned pair = 0; pair < 4; ++pair) {
      const Fragments& a = row_of(in_warp / 4, pair);
      for (unsigned i = 0; i < 4; ++i) {
        const Fragments& b = row_of(2 * (in_warp % 4) + i % 2, pair);
        for (unsigned odd = 0; odd < 2; ++odd)
          sums[i] += a[4 * half + 2 * (i / 2) + odd] * b[8 + 2 * half + odd];
      }
    }
}

SharedArrays::SharedArrays(std::byte* begin, std::byte* end) : begin_(begin) {
  if (begin_ != nullptr) machine().poison_also(begin, end);
}
SharedArrays::~SharedArrays() {
  if (begin_ != nullptr) machine().forget(begin_);
}

}  // namespace warpstep::simt
