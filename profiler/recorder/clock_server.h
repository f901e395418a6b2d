// Tells this process's clock to whoever asks, over TCP: a line "clock" is answered by a line with
// nanoseconds. Askers are strangers, as there is no authentication: they get few descriptors, and
// only for as long as they ask.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "profiler/recorder/trigger_socket.h"

namespace warpstep::profiler {

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

}  // namespace warpstep::profiler
