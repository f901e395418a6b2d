// What was recorded without a window, as a flight recorder does: which steps have their details,
// at what cost, and which steps were slow.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "profiler/session/session.h"

namespace warpstep::profiler {

// Why a session cannot have `step` after `before`, if there was one; empty: it can. No reader takes
// a file whose steps overlap, or whose numbers do not rise.
std::string why_not_after(const std::optional<Step>& before, const Step& step);

// Spans of calls and samples cost some 50 ns each, so that in short steps they are recorded in
// bursts of 16 steps and left out of the steps between: by the entries that a burst made, at most
// 0.2 % of the time. Other spans (waits, steps, copies, evaluations), about five per step, and
// stages above 0.2 ms are always recorded.
class Flight {
 public:
  // `accumulate`: an update is made in the steps that are multiples of it.
  explicit Flight(double span_ns, std::uint64_t accumulate = 1)
      : span_ns_(span_ns), accumulate_(accumulate) {}

  // `step` is done; `recorded` entries so far by all threads, asked for at the ends of bursts.
  template <class Recorded>
  void on_step(const Step& step, Recorded recorded);

  bool wants_details() const { return position_ < burst; }  // in the next step
  std::uint64_t every() const { return every_; }            // bursts: 1 of these

  // The steps with details between two times as windows: runs of consecutive ones.
  std::vector<Window> windows(std::uint64_t from_ns, std::uint64_t to_ns) const;

  // A step that took 3 times the running median of its kind (with or without an update), once two
  // more have passed, with two before it. The slowest of steps that follow each other; at most 20
  // of a run, and after the first five only slower ones than the fifth slowest.
  std::optional<Kept> take_slow(bool at_end = false);

  static constexpr std::uint64_t burst = 16;

 private:
  struct Detailed {
    std::uint64_t step = 0, begin_ns = 0, end_ns = 0;
  };
  static constexpr std::size_t most_detailed = 4096, median_of = 65, most_kept = 20, slowest = 5;
  static constexpr std::uint64_t around = 2;  // steps before and after a slow one

  // Steps of one kind.
  struct Typical {
    std::array<std::uint64_t, median_of> lengths{};
    std::uint64_t count = 0, median_ns = 0;

    void add(std::uint64_t ns);
  };

  void end_burst(std::uint64_t recorded);
  void look_at(const Step& step);

  double span_ns_;
  std::uint64_t accumulate_;
  std::uint64_t position_ = 0;  // of the next step, of burst * every_
  std::uint64_t every_ = 1;
  std::uint64_t recorded_ = 0;  // when the burst began
  std::uint64_t burst_ns_ = 0;
  std::uint64_t last_end_ns_ = 0;
  bool is_interrupted_ = false;  // the burst, by an evaluation or a checkpoint
  std::deque<Detailed> detailed_;
  // Slow steps.
  Typical ends_update_, others_;
  std::uint64_t seen_ = 0;
  std::array<std::uint64_t, around + 1> begins_{};  // of the last steps, by number
  std::optional<Kept> slow_;
  std::uint64_t slow_ns_ = 0;
  std::vector<std::uint64_t> kept_ns_;  // lengths of kept ones, longest first
};

template <class Recorded>
void Flight::on_step(const Step& step, Recorded recorded) {
  look_at(step);
  if (wants_details()) {
    if (detailed_.size() == most_detailed) detailed_.pop_front();
    detailed_.push_back({step.step, step.begin_ns, step.end_ns});
    burst_ns_ += step.end_ns - step.begin_ns;
    if (position_ > 0 && step.begin_ns > last_end_ns_) is_interrupted_ = true;
    if (position_ + 1 == burst && !is_interrupted_) end_burst(recorded());
  }
  last_end_ns_ = step.end_ns;
  if (++position_ < burst * every_) return;
  position_ = 0;
  burst_ns_ = 0;
  is_interrupted_ = false;
  recorded_ = recorded();
}

}  // namespace warpstep::profiler
