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
#include <thread>
#include <vector>

#include "engine/core/clock.h"
#include "profiler/recorder/trigger.h"
#include "profiler/session/session.h"

namespace warpstep::profiler {

// TCP sockets that no peer can make wait.

// Of the first of the host's addresses that can be had; none, and `why`, if it is none of them.
Descriptor connect_tcp(const std::string& host, const std::string& port, Deadline deadline,
                       int stop, std::string* why);
Descriptor listen_tcp(const std::string& host, const std::string& port, std::string* why);
Descriptor accept_tcp(const Descriptor& listener);

std::uint16_t port_of(const Descriptor& socket);  // its own

// Tells this process's clock to whoever asks, over TCP: a line "clock" is answered by a line with
// nanoseconds. Askers are strangers, as there is no authentication: they get few descriptors, and
// only for as long as they ask.

inline constexpr std::string_view clock_question = "clock";
inline constexpr std::size_t clock_line_bytes = 32;  // at most, of question and answer

// How much askers may take. A rank asks its questions one after the other and goes.
struct AskerLimits {
  std::size_t connections = 64;  // and at most an eighth of the process's descriptors
  std::chrono::milliseconds idle{2000};
};

class ClockServer {
 public:
  ClockServer(const std::string& host, const std::string& port,
              std::function<std::uint64_t()> clock, const AskerLimits& limits = {});
  ~ClockServer();
  ClockServer(const ClockServer&) = delete;
  ClockServer& operator=(const ClockServer&) = delete;

  const std::string& why() const { return why_; }  // empty: it answers
  std::uint16_t port() const { return port_; }

 private:
  struct Asker {
    Descriptor socket;
    Deadline until;    // it has asked by then, or goes
    std::string line;  // that has come so far
  };
  void run();
  void drop_idle();
  bool accept();
  bool answer(Asker& asker) const;

  std::function<std::uint64_t()> clock_;
  AskerLimits limits_;
  std::vector<Asker> askers_;
  std::string why_;
  Descriptor listener_;
  Descriptor stop_;  // readable at the end
  std::uint16_t port_ = 0;
  std::thread thread_;
};

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
