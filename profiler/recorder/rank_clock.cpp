#include "profiler/recorder/rank_clock.h"

#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "engine/core/error.h"
#include "engine/core/thread.h"
#include "profiler/sources/sampler_proc.h"

namespace warpstep::profiler {
namespace {

// Calls `use` with a socket for each of the address's entries until it succeeds.
template <class Use>
Descriptor first_socket(const std::string& host, const std::string& port, int flags,
                        std::string* why, Use use) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  if (const int status = ::getaddrinfo(host.c_str(), port.c_str(), &hints, &found); status != 0) {
    *why = ::gai_strerror(status);
    return Descriptor();
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> list(found, ::freeaddrinfo);
  for (const addrinfo* one = list.get(); one; one = one->ai_next) {
    Descriptor socket(
        ::socket(one->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, one->ai_protocol));
    if (socket && use(socket, *one)) return socket;
    *why = std::strerror(errno);
  }
  return Descriptor();
}

void disable_delay(const Descriptor& socket) {
  const int on = 1;
  ::setsockopt(socket.number(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

bool connects(const Descriptor& socket, const addrinfo& to, Deadline deadline, int stop) {
  if (::connect(socket.number(), to.ai_addr, to.ai_addrlen) == 0) return true;
  if (errno != EINPROGRESS) return false;
  errno = ETIMEDOUT;
  if (!wait_for(socket, POLLOUT, deadline, stop)) return false;
  int error = 0;
  socklen_t bytes = sizeof error;
  ::getsockopt(socket.number(), SOL_SOCKET, SO_ERROR, &error, &bytes);
  errno = error;
  return error == 0;
}

}  // namespace

Descriptor connect_tcp(const std::string& host, const std::string& port, Deadline deadline,
                       int stop, std::string* why) {
  Descriptor socket = first_socket(
      host, port, 0, why,
      [&](const Descriptor& s, const addrinfo& to) { return connects(s, to, deadline, stop); });
  if (socket) disable_delay(socket);
  return socket;
}

Descriptor listen_tcp(const std::string& host, const std::string& port, std::string* why) {
  return first_socket(host, port, AI_PASSIVE, why,
                      [](const Descriptor& s, const addrinfo& address) {
                        const int on = 1;
                        ::setsockopt(s.number(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
                        return ::bind(s.number(), address.ai_addr, address.ai_addrlen) == 0 &&
                               ::listen(s.number(), SOMAXCONN) == 0;
                      });
}

Descriptor accept_tcp(const Descriptor& listener) {
  Descriptor socket(::accept4(listener.number(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (socket) disable_delay(socket);
  return socket;
}

std::uint16_t port_of(const Descriptor& socket) {
  sockaddr_storage bound{};
  socklen_t bytes = sizeof bound;
  ::getsockname(socket.number(), reinterpret_cast<sockaddr*>(&bound), &bytes);
  return ntohs(bound.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(bound).sin6_port
                                           : reinterpret_cast<const sockaddr_in&>(bound).sin_port);
}

namespace {

// A connection that cannot be accepted stays in the queue, and poll() would return immediately.
constexpr std::chrono::milliseconds pause_without_descriptors{100};

std::size_t max_connections(std::size_t wanted) {
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) != 0) return wanted;
  return std::clamp<std::size_t>(files.rlim_cur / 8, 1, wanted);
}

int ms_until(Deadline deadline) {
  const auto left =
      std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
  return static_cast<int>(std::max<std::int64_t>(left.count(), 0));
}

}  // namespace

ClockServer::ClockServer(const std::string& host, const std::string& port,
                         std::function<std::uint64_t()> clock, const ClientLimits& limits)
    : clock_(std::move(clock)),
      limits_{max_connections(limits.connections), limits.idle},
      listener_(listen_tcp(host, port, &why_)),
      stop_(::eventfd(0, EFD_CLOEXEC)) {
  if (!listener_) return;
  port_ = port_of(listener_);
  why_ = try_start_thread(thread_, "clock server", [this] { run(); });
}

ClockServer::~ClockServer() {
  ::eventfd_write(stop_.number(), 1);
  if (thread_.joinable()) thread_.join();
}

void ClockServer::run() {
  std::optional<Deadline> rests;  // end of the listener's pause after it found no free descriptor
  for (;;) {
    drop_idle();
    if (rests && *rests <= std::chrono::steady_clock::now()) rests.reset();
    std::vector<pollfd> waited{{stop_.number(), POLLIN, 0},
                               {rests ? -1 : listener_.number(), POLLIN, 0}};
    std::optional<Deadline> next = rests;
    for (const Client& client : clients_) {
      waited.push_back({client.socket.number(), POLLIN, 0});
      next = next ? std::min(*next, client.until) : client.until;
    }
    if (::poll(waited.data(), waited.size(), next ? ms_until(*next) : -1) < 0) {
      if (errno == EINTR) continue;
      return;
    }
    if (waited[0].revents != 0) return;
    for (std::size_t i = waited.size(); i-- > 2;)
      if (waited[i].revents != 0 && !answer(clients_[i - 2]))
        clients_.erase(clients_.begin() + static_cast<std::ptrdiff_t>(i - 2));
    if (waited[1].revents != 0 && !accept())
      rests = std::chrono::steady_clock::now() + pause_without_descriptors;
  }
}

void ClockServer::drop_idle() {
  const Deadline now = std::chrono::steady_clock::now();
  std::erase_if(clients_, [now](const Client& client) { return client.until <= now; });
}

// False without a descriptor or memory for the connection.
bool ClockServer::accept() {
  Descriptor socket = accept_tcp(listener_);
  if (!socket) return errno != EMFILE && errno != ENFILE && errno != ENOMEM && errno != ENOBUFS;
  // Full: disconnects the client that was silent for longest, so that open connections keep no rank
  // out.
  if (clients_.size() >= limits_.connections)
    clients_.erase(
        std::min_element(clients_.begin(), clients_.end(),
                         [](const Client& a, const Client& b) { return a.until < b.until; }));
  clients_.push_back({std::move(socket), std::chrono::steady_clock::now() + limits_.idle, {}});
  return true;
}

// False when the client has disconnected or sent anything else.
bool ClockServer::answer(Client& client) const {
  std::array<char, clock_line_bytes> part{};
  const ssize_t got = ::recv(client.socket.number(), part.data(), part.size(), 0);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return true;
  if (got <= 0) return false;
  client.line.append(part.data(), static_cast<std::size_t>(got));
  if (client.line.back() != '\n') return client.line.size() < clock_line_bytes;
  client.line.pop_back();
  if (std::exchange(client.line, {}) != clock_request) return false;
  client.until = std::chrono::steady_clock::now() + limits_.idle;
  const auto soon = std::chrono::steady_clock::now() + std::chrono::milliseconds(1);
  return send_line(client.socket, std::to_string(clock_()), soon);
}

namespace {

using namespace std::chrono_literals;

constexpr int exchanges_per_reading = 32;
constexpr auto between_tries = 1s;

}  // namespace

RankAddress parse_rank(const std::string& text) {
  const std::size_t at = text.find('@'), colon = text.rfind(':');
  RankAddress address;
  const auto parse = [](std::string_view digits, std::uint32_t max) {
    const auto value = parse_number<std::uint32_t>(digits);
    return value && *value <= max ? value : std::nullopt;
  };
  const bool has_parts = at != text.npos && colon != text.npos && colon > at + 1;
  const auto rank =
      has_parts ? parse(std::string_view(text).substr(0, at), 1'000'000U) : std::nullopt;
  const auto port =
      has_parts ? parse(std::string_view(text).substr(colon + 1), 65535U) : std::nullopt;
  if (!rank || !port)
    fail<UsageError>("'{}' must be RANK@HOST:PORT with rank 0's address, such as 1@node0:29555",
                     text);
  address.rank = *rank;
  address.host = text.substr(at + 1, colon - at - 1);
  if (address.host.size() > 2 && address.host.front() == '[' && address.host.back() == ']')
    address.host = address.host.substr(1, address.host.size() - 2);
  address.port = std::to_string(*port);
  return address;
}

PeerClock shortest(std::span<const ClockExchange> exchanges) {
  const auto best = std::min_element(exchanges.begin(), exchanges.end(),
                                     [](const ClockExchange& a, const ClockExchange& b) {
                                       return a.received_ns - a.sent_ns < b.received_ns - b.sent_ns;
                                     });
  const std::uint64_t round_trip = best->received_ns - best->sent_ns;
  return {.at_ns = best->sent_ns + round_trip / 2,
          .peer_ns = best->peer_ns,
          .round_trip_ns = round_trip};
}

struct RankClock::Parts {
  explicit Parts(RankClockOptions with)
      : options(std::move(with)), stop(::eventfd(0, EFD_CLOEXEC)) {}

  RankClockOptions options;
  std::unique_ptr<ClockServer> server;  // of rank 0
  Descriptor stop;                      // readable at the end
  std::thread thread;                   // of the other ranks
  std::atomic<bool> over{false};
  mutable std::mutex mutex;
  bool answered = false;
  std::vector<std::string> notes;

  std::string place() const { return options.address.host + ':' + options.address.port; }

  // True if it was reading until now.
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

  void read_periodically() {
    while (!over) {
      const bool good = read(deadline_in(2s), stop.number());
      if (!pause(good ? options.period
                      : std::min<std::chrono::milliseconds>(options.period, between_tries)))
        return;
    }
  }

  bool read(Deadline deadline, int until) {
    std::string why;
    const Descriptor socket =
        connect_tcp(options.address.host, options.address.port, deadline, until, &why);
    if (!socket) return missed(why, until);
    std::vector<ClockExchange> exchanges;
    for (int i = 0; i < exchanges_per_reading; ++i) {
      ClockExchange one{.sent_ns = options.clock()};
      if (!send_line(socket, clock_request, deadline, until)) break;
      const auto line = receive_line(socket, clock_line_bytes, deadline, until);
      one.received_ns = options.clock();
      const auto peer_ns = line ? parse_number(*line) : std::nullopt;
      if (!peer_ns) break;
      one.peer_ns = *peer_ns;
      exchanges.push_back(one);
    }
    if (exchanges.empty())
      return missed("it does not send its clock: it is not rank 0, or has too many clients", until);
    {
      const std::lock_guard lock(mutex);
      answered = true;
      notes.clear();
    }
    options.report(shortest(exchanges));
    return true;
  }

  bool missed(const std::string& why, int until) {
    // A reading that the end interrupted says nothing about rank 0.
    if (until >= 0 && over) return false;
    const std::lock_guard lock(mutex);
    if (!answered)
      notes = {
          fmt::format("rank 0's clock was never read: {}: {}; is rank 0 running with "
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
      parts.notes = {fmt::format("the ranks' clocks are not compared: cannot listen at {}: {}",
                                 parts.place(), parts.server->why())};
  } else if (const std::string why = try_start_thread(parts.thread, "rank clock",
                                                      [&parts] { parts.read_periodically(); });
             !why.empty()) {
    parts.notes = {"the ranks' clocks are not compared: " + why};
  }
}

RankClock::~RankClock() {
  parts_->end();
}

void RankClock::finish() {
  // Does not wait for a rank 0 that never answered.
  if (parts_->end() && notes().empty()) parts_->read(deadline_in(parts_->options.at_end), -1);
}

std::vector<std::string> RankClock::notes() const {
  const std::lock_guard lock(parts_->mutex);
  return parts_->notes;
}

std::uint16_t RankClock::port() const {
  return parts_->server ? parts_->server->port() : std::uint16_t{0};
}

}  // namespace warpstep::profiler
