// Tells this process's clock to whoever asks, over TCP: a line "clock" is answered by a line with
// nanoseconds.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "profiler/recorder/trigger_socket.h"

namespace warpstep::profiler {

inline constexpr std::string_view clock_question = "clock";
inline constexpr std::size_t clock_line_bytes = 32;  // at most, of question and answer

class ClockServer {
 public:
  ClockServer(const std::string& host, const std::string& port,
              std::function<std::uint64_t()> clock);
  ~ClockServer();
  ClockServer(const ClockServer&) = delete;
  ClockServer& operator=(const ClockServer&) = delete;

  const std::string& why() const { return why_; }  // empty: it answers
  std::uint16_t port() const { return port_; }

 private:
  struct Asker {
    Descriptor socket;
    std::string line;  // that has come so far
  };
  void run();
  bool answer(Asker& asker) const;

  std::function<std::uint64_t()> clock_;
  std::string why_;
  Descriptor listener_;
  Descriptor stop_;  // readable at the end
  std::uint16_t port_ = 0;
  std::thread thread_;
};

}  // namespace warpstep::profiler
