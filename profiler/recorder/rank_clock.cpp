#include "profiler/recorder/rank_clock.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "engine/core/error.h"
#include "engine/core/thread.h"
#include "profiler/recorder/clock_server.h"
#include "profiler/recorder/tcp_socket.h"

namespace warpstep::profiler {
namespace {

using namespace std::chrono_literals;

constexpr int exchanges_a_look = 32;
constexpr auto between_tries = 1s;

Deadline within(std::chrono::milliseconds time) {
  return std::chrono::steady_clock::now() + time;
}

std::optional<std::uint64_t> parse_ns(const std::string& text) {
  std::uint64_t ns = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), ns);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return ns;
}

}  // namespace

RankAddress parse_rank(const std::string& text) {
  const std::size_t at = text.find('@'), colon = text.rfind(':');
  RankAddress address;
  const auto parse = [](std::string_view digits, auto most) -> std::optional<std::uint32_t> {
    std::uint32_t value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (error != std::errc() || end != digits.data() + digits.size() || value > most)
      return std::nullopt;
    return value;
  };
  const bool has_parts = at != text.npos && colon != text.npos && colon > at + 1;
  const auto rank =
      has_parts ? parse(std::string_view(text).substr(0, at), 1'000'000U) : std::nullopt;
  const auto port =
      has_parts ? parse(std::string_view(text).substr(colon + 1), 65535U) : std::nullopt;
  if (!rank || !port)
    fail<UsageError>(
        "--profile-rank {}: is written RANK@HOST:PORT, such as 1@node0:29555; rank 0 answers "
        "there, "
        "the others ask",
        text);
  address.rank = *rank;
  address.host = text.substr(at + 1, colon - at - 1);
  if (address.host.size() > 2 && address.host.front() == '[' && address.host.back() == ']')
    address.host = address.host.substr(1, address.host.size() - 2);
  address.port = std::to_string(*port);
  return address;
}

PeerClock shortest(std::span<const ClockExchange> exchanges) {
  const auto best = std::min_element(
      exchanges.begin(), exchanges.end(), [](const ClockExchange& a, const ClockExchange& b) {
        return a.answered_ns - a.asked_ns < b.answered_ns - b.asked_ns;
      });
  const std::uint64_t round_trip = best->answered_ns - best->asked_ns;
  return {.at_ns = best->asked_ns + round_trip / 2,
          .peer_ns = best->told_ns,
          .round_trip_ns = round_trip};
}

struct RankClock::Parts {
  explicit Parts(RankClockOptions with)
      : options(std::move(with)), stop(::eventfd(0, EFD_CLOEXEC)) {}

  RankClockOptions options;
  std::unique_ptr<ClockServer> server;  // of rank 0
  Descriptor stop;                      // readable at the end
  std::thread thread;                   // of the others
  std::atomic<bool> over{false};
  mutable std::mutex mutex;
  bool answered = false;
  std::vector<std::string> notes;

  std::string place() const { return options.address.host + ':' + options.address.port; }

  // Whether it was asking until now.
  bool end() {
    if (!thread.joinable()) return false;
    over = true;
    ::eventfd_write(stop.number(), 1);
    thread.join();
    return true;
  }

  // Waits; false at the end.
  bool pause(std::chrono::milliseconds time) {
    pollfd waited{stop.number(), POLLIN, 0};
    ::poll(&waited, 1, static_cast<int>(time.count()));
    return !over;
  }

  void ask_again_and_again() {
    while (!over) {
      const bool good = look(within(2s), stop.number());
      if (!pause(good ? options.period
                      : std::min<std::chrono::milliseconds>(options.period, between_tries)))
        return;
    }
  }

  bool look(Deadline deadline, int until) {
    std::string why;
    const Descriptor socket =
        connect_tcp(options.address.host, options.address.port, deadline, until, &why);
    if (!socket) return missed(why, until);
    std::vector<ClockExchange> exchanges;
    for (int i = 0; i < exchanges_a_look; ++i) {
      ClockExchange one{.asked_ns = options.clock()};
      if (!send_line(socket, clock_question, deadline, until)) break;
      const auto line = receive_line(socket, clock_line_bytes, deadline, until);
      one.answered_ns = options.clock();
      const auto told = line ? parse_ns(*line) : std::nullopt;
      if (!told) break;
      one.told_ns = *told;
      exchanges.push_back(one);
    }
    if (exchanges.empty())
      return missed("it does not tell its clock: no rank 0, or too many ask it at once", until);
    {
      const std::lock_guard lock(mutex);
      answered = true;
      notes.clear();
    }
    options.tell(shortest(exchanges));
    return true;
  }

  bool missed(const std::string& why, int until) {
    // A look that the end cut off says nothing of rank 0.
    if (until >= 0 && over) return false;
    const std::lock_guard lock(mutex);
    if (!answered)
      notes = {
          fmt::format("rank 0's clock was never told: {}: {}; is rank 0 there, with "
                      "--profile-rank 0@{}?",
                      place(), why, place())};
    return false;
  }
};

RankClock::RankClock(RankClockOptions options)
    : parts_(std::make_unique<Parts>(std::move(options))) {
  Parts& parts = *parts_;
  const RankAddress& address = parts.options.address;
  if (address.rank == 0) {
    parts.server = std::make_unique<ClockServer>(address.host, address.port, parts.options.clock);
    if (!parts.server->why().empty())
      parts.notes = {fmt::format("the ranks' clocks are not compared: nothing can listen at {}: {}",
                                 parts.place(), parts.server->why())};
  } else if (const std::string why = try_start_thread(parts.thread, "rank clock",
                                                      [&parts] { parts.ask_again_and_again(); });
             !why.empty()) {
    parts.notes = {"the ranks' clocks are not compared: " + why};
  }
}

RankClock::~RankClock() {
  parts_->end();
}

void RankClock::finish() {
  // Who was never there is not waited for.
  if (parts_->end() && notes().empty()) parts_->look(within(parts_->options.at_end), -1);
}

std::vector<std::string> RankClock::notes() const {
  const std::lock_guard lock(parts_->mutex);
  return parts_->notes;
}

std::uint16_t RankClock::port() const {
  return parts_->server ? parts_->server->port() : std::uint16_t{0};
}

}  // namespace warpstep::profiler
