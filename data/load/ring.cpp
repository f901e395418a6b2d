#include "data/load/ring.h"

#include "engine/core/clock.h"

namespace warpstep::data {

Ring::Ring(std::uint32_t slots, std::uint32_t claims) : claims_(claims), slots_(slots) {
  reset(0);
}

void Ring::reset(std::uint64_t first) {
  first_ = first;
  ticket_.store(0, std::memory_order_relaxed);
  released_.store(first, std::memory_order_relaxed);
  stop_.store(false, std::memory_order_relaxed);
  for (Slot& slot : slots_) {
    slot.left.store(claims_, std::memory_order_relaxed);
    slot.ready.store(0, std::memory_order_relaxed);
  }
}

std::optional<Ring::Claim> Ring::claim(std::uint32_t worker) {
  for (;;) {  // while parked, before taking a ticket: a ticket must be served
    const std::uint32_t news = news_.load(std::memory_order_acquire);
    if (stopping()) return std::nullopt;
    if (worker < active_.load(std::memory_order_relaxed)) break;
    news_.wait(news, std::memory_order_acquire);
  }
  // Relaxed: the ticket orders no memory; released_ hands over the slot (acquire in is_free).
  const std::uint64_t ticket = ticket_.fetch_add(1, std::memory_order_relaxed);
  Claim claim{first_ + ticket / claims_, static_cast<std::uint32_t>(ticket % claims_), 0};
  std::uint64_t slept_since = 0;
  for (;;) {
    // The order matters: news_ is read before the conditions are checked and written after they
    // change, so a change between check and sleep makes wait() return at once.
    const std::uint32_t news = news_.load(std::memory_order_acquire);
    if (stopping()) return std::nullopt;
    if (is_free(claim.batch)) break;
    if (slept_since == 0) slept_since = now_ns();
    news_.wait(news, std::memory_order_acquire);
  }
  if (slept_since != 0) claim.wait_ns = now_ns() - slept_since;
  return claim;
}

bool Ring::finish(const Claim& claim) {
  // Release: this worker's rows. Acquire: the last worker, who publishes, has seen all rows.
  return slots_[claim.batch % slots_.size()].left.fetch_sub(1, std::memory_order_acq_rel) == 1;
}

void Ring::publish(const Claim& claim) {
  Slot& slot = slots_[claim.batch % slots_.size()];
  // Release is not enough: notify() makes no system call when it sees no sleeper, and must not look
  // for one before a thread that is falling asleep can see this store.
  slot.ready.store(1, std::memory_order_seq_cst);
  slot.ready.notify_one();
}

void Ring::set_active(std::uint32_t count) {
  active_.store(count, std::memory_order_relaxed);
  news_.fetch_add(1, std::memory_order_seq_cst);  // as in publish()
  news_.notify_all();
}

std::uint32_t Ring::ready_count() const {
  std::uint32_t count = 0;
  for (const Slot& slot : slots_) count += slot.ready.load(std::memory_order_relaxed);
  return count;
}

bool Ring::ready(std::uint64_t batch) const {
  return slots_[batch % slots_.size()].ready.load(std::memory_order_acquire) == 1;
}

void Ring::wait(std::uint64_t batch) const {
  slots_[batch % slots_.size()].ready.wait(0, std::memory_order_acquire);
}

void Ring::release(std::uint64_t batch) {
  Slot& slot = slots_[batch % slots_.size()];
  slot.left.store(claims_, std::memory_order_relaxed);
  slot.ready.store(0, std::memory_order_relaxed);
  released_.store(batch + 1, std::memory_order_release);
  news_.fetch_add(1, std::memory_order_seq_cst);  // as in publish()
  news_.notify_all();
}

void Ring::stop() {
  stop_.store(true, std::memory_order_relaxed);
  news_.fetch_add(1, std::memory_order_seq_cst);  // as in publish()
  news_.notify_all();
}

bool Tuner::observe(const TunerSample& sample) {
  wait_ns_ += sample.wait_ns;
  step_ns_ += sample.step_ns;
  full_ += sample.full ? 1 : 0;
  if (++samples_ < period) return false;
  const bool hungry = wait_ns_ * 100 > step_ns_;
  const bool full = full_ * 10 > period * 9;
  samples_ = full_ = 0;
  wait_ns_ = step_ns_ = 0;
  hungry_periods_ = hungry ? hungry_periods_ + 1 : 0;
  full_periods_ = full && !hungry ? full_periods_ + 1 : 0;
  const int before = active_;
  ++since_park_;
  if (hungry_periods_ == 2) {
    hungry_periods_ = 0;
    if (active_ < most_) ++active_;
    if (since_park_ <= 4) least_ = active_;
  } else if (full_periods_ == 2) {
    full_periods_ = 0;
    if (active_ > least_) {
      --active_;
      since_park_ = 0;
    }
  }
  return active_ != before;
}

}  // namespace warpstep::data
