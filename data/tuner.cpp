#include "data/tuner.h"

namespace warpstep::data {

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
