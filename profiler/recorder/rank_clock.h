// The clocks of a job's processes: each asks rank 0's over TCP now and then, so that their sessions
// can be laid over each other afterwards. Nothing waits for it: no step for an answer, no rank for
// another one.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/core/clock.h"
#include "profiler/session/session.h"

namespace warpstep::profiler {

// Which process this is, and where rank 0 answers.
struct RankAddress {
  std::uint32_t rank = 0;
  std::string host;
  std::string port;
};
// "1@node0:29555", "0@[::]:29555". Throws UsageError that shows how it is written.
RankAddress parse_rank(const std::string& text);

// One question and its answer.
struct ClockExchange {
  std::uint64_t asked_ns = 0;     // here
  std::uint64_t told_ns = 0;      // rank 0's clock, read between the two
  std::uint64_t answered_ns = 0;  // here
};
// Of several, the one that was under way for the shortest time: it says most exactly what the other
// clock had. None must not be asked for.
PeerClock shortest(std::span<const ClockExchange> exchanges);

struct RankClockOptions {
  RankAddress address;
  std::function<void(const PeerClock&)> tell;  // each look at rank 0's clock; from another thread
  std::chrono::milliseconds period{10'000};    // between looks
  std::chrono::milliseconds at_end{500};       // what the last look may take
  std::function<std::uint64_t()> clock = now_ns;  // of a test: another one
};

// Rank 0 answers at its address, to anybody: its clock is no secret. The others look at it at once,
// every period, and at the end, each time with 32 exchanges; where nobody answers they try again
// each second.
class RankClock {
 public:
  explicit RankClock(RankClockOptions options);
  ~RankClock();
  RankClock(const RankClock&) = delete;
  RankClock& operator=(const RankClock&) = delete;

  // Looks a last time, for `at_end`, unless rank 0 was never there; and ends. Once;
  // the destructor only ends.
  void finish();
  // Why there are no answers: one sentence each; empty when all went well.
  std::vector<std::string> notes() const;
  std::uint16_t port() const;  // where rank 0 answers; 0 for others

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace warpstep::profiler
