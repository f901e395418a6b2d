#include "engine/dist/tcp.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <thread>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "engine/core/checksum.h"

namespace warpstep {
namespace {

using Time = std::chrono::steady_clock;

class Socket {
 public:
  Socket() = default;
  explicit Socket(int file) : file_(file) {}
  Socket(Socket&& other) noexcept : file_(std::exchange(other.file_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(file_, other.file_);
    return *this;
  }
  ~Socket() {
    if (file_ >= 0) ::close(file_);
  }
  int file() const { return file_; }
  explicit operator bool() const { return file_ >= 0; }

 private:
  int file_ = -1;
};

// The first thing that a rank says on a connection. Fixed size, in the byte order of the machine,
// which all ranks share.
struct Greeting {
  std::array<char, 8> magic{'w', 'a', 'r', 'p', 's', 't', 'e', '2'};
  std::int32_t rank = 0, size = 0;
  std::uint32_t job = 0;   // a checksum of its name
  std::uint16_t port = 0;  // on which it listens for ranks above it
  std::array<char, 2> unused{};
};
// Where a rank listens, as rank 0 sees it: an IPv4 or IPv6 address.
struct Place {
  sockaddr_storage address{};
  socklen_t length = 0;
};
// What rank 0 answers to a rank of another job instead of the first place.
constexpr socklen_t other_job = 0xFFFFFFFF;

std::string reason() {
  return std::strerror(errno);
}

std::chrono::milliseconds left(Time::time_point until) {
  return std::max(std::chrono::milliseconds(0),
                  std::chrono::ceil<std::chrono::milliseconds>(until - Time::now()));
}

constexpr char left_text[] = "rank {} left the job";

// `first`: the connection to rank 0, or null. It ends where rank 0 sees that any other rank has
// left; this one may wait for just that rank.
bool ready(const Socket& socket, short events, Time::time_point until,
           const Socket* first = nullptr) {
  std::array<pollfd, 2> both{
      {{socket.file(), events, 0}, {first ? first->file() : -1, POLLRDHUP, 0}}};
  int count = -1;
  do count = ::poll(both.data(), both.size(), static_cast<int>(left(until).count()));
  while (count < 0 && errno == EINTR);
  if (count > 0 && both[1].revents != 0) fail<PeerError>(left_text, 0);
  return count > 0;
}

// While ranks connect, a message is small and each side waits for it. False when the other side
// leaves or is too slow.
template <class T>
bool receive(const Socket& socket, T& value, Time::time_point until) {
  auto* bytes = reinterpret_cast<std::byte*>(&value);
  for (std::size_t at = 0; at < sizeof value;) {
    if (!ready(socket, POLLIN, until)) return false;
    const ssize_t got = ::recv(socket.file(), bytes + at, sizeof value - at, 0);
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) return false;
    if (got > 0) at += static_cast<std::size_t>(got);
  }
  return true;
}
template <class T>
bool send(const Socket& socket, const T& value, Time::time_point until) {
  const auto* bytes = reinterpret_cast<const std::byte*>(&value);
  for (std::size_t at = 0; at < sizeof value;) {
    if (!ready(socket, POLLOUT, until)) return false;
    const ssize_t sent = ::send(socket.file(), bytes + at, sizeof value - at, MSG_NOSIGNAL);
    if (sent < 0 && errno != EAGAIN && errno != EINTR) return false;
    if (sent > 0) at += static_cast<std::size_t>(sent);
  }
  return true;
}

void set_up(const Socket& socket) {
  const int yes = 1;
  ::setsockopt(socket.file(), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
  ::fcntl(socket.file(), F_SETFL, ::fcntl(socket.file(), F_GETFL) | O_NONBLOCK);
}

// On all addresses of this machine; port 0 is any.
Socket listen_on(std::uint16_t port) {
  for (const int family : {AF_INET6, AF_INET}) {
    Socket socket(::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (!socket) continue;
    const int yes = 1, no = 0;
    ::setsockopt(socket.file(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    sockaddr_in6 six{};
    six.sin6_family = AF_INET6;
    six.sin6_port = htons(port);
    sockaddr_in four{};
    four.sin_family = AF_INET;
    four.sin_port = htons(port);
    if (family == AF_INET6) ::setsockopt(socket.file(), IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no);
    const auto* address = family == AF_INET6 ? reinterpret_cast<const sockaddr*>(&six)
                                             : reinterpret_cast<const sockaddr*>(&four);
    if (::bind(socket.file(), address, family == AF_INET6 ? sizeof six : sizeof four) == 0 &&
        ::listen(socket.file(), 128) == 0) {
      set_up(socket);
      return socket;
    }
    if (family == AF_INET || errno == EADDRINUSE || errno == EACCES) break;
  }
  fail<RankError>("cannot listen on TCP port {}: {}; choose another with WARPSTEP_PORT", port,
                  reason());
}

std::uint16_t port_of(const sockaddr_storage& address) {
  return ntohs(address.ss_family == AF_INET6
                   ? reinterpret_cast<const sockaddr_in6&>(address).sin6_port
                   : reinterpret_cast<const sockaddr_in&>(address).sin_port);
}
void set_port(sockaddr_storage& address, std::uint16_t port) {
  if (address.ss_family == AF_INET6)
    reinterpret_cast<sockaddr_in6&>(address).sin6_port = htons(port);
  else
    reinterpret_cast<sockaddr_in&>(address).sin_port = htons(port);
}

// A socket of both families has IPv4 addresses in the form of IPv6, in which a machine without IPv6
// cannot connect to them.
Place unmapped(const Place& place) {
  const auto& six = reinterpret_cast<const sockaddr_in6&>(place.address);
  if (six.sin6_family != AF_INET6 || !IN6_IS_ADDR_V4MAPPED(&six.sin6_addr)) return place;
  Place plain{.length = sizeof(sockaddr_in)};
  auto& four = reinterpret_cast<sockaddr_in&>(plain.address);
  four.sin_family = AF_INET;
  four.sin_port = six.sin6_port;
  std::memcpy(&four.sin_addr, &six.sin6_addr.s6_addr[12], sizeof four.sin_addr);
  return plain;
}

Place local_place(const Socket& socket) {
  Place place{.length = sizeof(sockaddr_storage)};
  ::getsockname(socket.file(), reinterpret_cast<sockaddr*>(&place.address), &place.length);
  return unmapped(place);
}

bool is_loopback(const Place& place) {
  if (place.address.ss_family == AF_INET)
    return ntohl(reinterpret_cast<const sockaddr_in&>(place.address).sin_addr.s_addr) >> 24 == 127;
  return IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6&>(place.address).sin6_addr);
}

// The place of a rank as the one behind `socket`, on which rank 0 talks to it, can reach it. A rank
// of rank 0's machine may be seen at a loopback address, which means another machine elsewhere:
// there it is where rank 0 is.
Place as_seen_by(const Socket& socket, const Place& place) {
  if (!is_loopback(place)) return place;
  Place seen = local_place(socket);
  set_port(seen.address, port_of(place.address));
  return seen;
}

// Tries until it works: the other rank may not listen yet. `first` as for ready().
Socket connect_to(const Place& place, Time::time_point until, std::string* why,
                  const Socket* first = nullptr) {
  do {
    Socket socket(::socket(place.address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (!socket) *why = reason();
    if (socket) {
      set_up(socket);
      const int code =
          ::connect(socket.file(), reinterpret_cast<const sockaddr*>(&place.address), place.length);
      int error = code == 0 ? 0 : errno;
      if (error == EINPROGRESS) {
        error = ETIMEDOUT;
        socklen_t size = sizeof error;
        if (ready(socket, POLLOUT, std::min(until, Time::now() + std::chrono::seconds(5)), first))
          ::getsockopt(socket.file(), SOL_SOCKET, SO_ERROR, &error, &size);
      }
      if (error == 0) return socket;
      *why = std::strerror(error);
    }
    ready({}, 0, Time::now() + std::chrono::milliseconds(50), first);
  } while (Time::now() < until);
  return {};
}

Socket connect_to_first(const TcpOptions& options, Time::time_point until) {
  std::string why = "no address";
  do {  // names of a cluster's pods may appear late
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* found = nullptr;
    const int code = ::getaddrinfo(options.host.c_str(), nullptr, &hints, &found);
    if (code != 0) why = ::gai_strerror(code);
    for (const addrinfo* one = found; one; one = one->ai_next) {
      Place place{.length = one->ai_addrlen};
      std::memcpy(&place.address, one->ai_addr, one->ai_addrlen);
      set_port(place.address, options.port);
      Socket socket =
          connect_to(place, std::min(until, Time::now() + std::chrono::seconds(2)), &why);
      if (!socket) continue;
      ::freeaddrinfo(found);
      return socket;
    }
    if (found) ::freeaddrinfo(found);
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  } while (Time::now() < until);
  fail<RankError>(
      "rank 0 cannot be reached at {} port {}: {}; MASTER_ADDR must be its address, and "
      "the port (the one after MASTER_PORT, or WARPSTEP_PORT) open between the machines",
      options.host, options.port, why);
}

// Whether the other side has closed, and sent nothing that is still to be received. While ranks are
// awaited none sends more than its greeting.
bool has_left(const Socket& socket) {
  char byte = 0;
  const ssize_t got = ::recv(socket.file(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return got == 0 || (got < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
}

// Accepts the ranks [first, size) of the job and calls arrived(rank, place). A connection that does
// not begin with a greeting is closed, and one of a rank of another job.
template <class Arrived>
void accept_ranks(const Socket& listener, const World& world, std::uint32_t job, int first,
                  Time::time_point until, std::vector<Socket>& sockets, Arrived arrived) {
  int missing = world.size - first;
  const auto forget_who_left = [&] {  // such a rank may start again, until all have met at rank 0
    if (world.rank > 0) return;
    for (int rank = first; rank < world.size; ++rank)
      if (Socket& socket = sockets[static_cast<std::size_t>(rank)]; socket && has_left(socket)) {
        socket = Socket();
        ++missing;
      }
  };
  const Socket* const rank_0 = world.rank > 0 ? sockets.data() : nullptr;
  while (missing > 0) {
    if (!ready(listener, POLLIN, until, rank_0)) {
      std::vector<int> absent;
      for (int rank = first; rank < world.size; ++rank)
        if (!sockets[static_cast<std::size_t>(rank)]) absent.push_back(rank);
      const std::size_t shown = std::min<std::size_t>(absent.size(), 8);
      fail<RankError>(
          "rank{} {}{} of {} did not connect in time; start {} ranks with the same "
          "MASTER_ADDR and MASTER_PORT",
          absent.size() == 1 ? "" : "s", fmt::join(std::span(absent).first(shown), ", "),
          shown < absent.size() ? fmt::format(" and {} more", absent.size() - shown) : "",
          world.size, world.size);
    }
    Place place{.length = sizeof(sockaddr_storage)};
    Socket socket(::accept4(listener.file(), reinterpret_cast<sockaddr*>(&place.address),
                            &place.length, SOCK_CLOEXEC));
    if (!socket) {  // most often the other has left
      if (errno == EMFILE)
        fail<RankError>("cannot accept the connections of ranks: {}; raise `ulimit -n` above {}",
                        reason(), world.size + 64);
      if (errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
        fail<RankError>("cannot accept the connections of ranks: {}", reason());
      continue;
    }
    set_up(socket);
    Greeting greeting;
    const Greeting expected;
    const auto soon = std::min(until, Time::now() + std::chrono::seconds(2));
    if (!receive(socket, greeting, soon) || greeting.magic != expected.magic) continue;
    if (greeting.job != job) {
      send(socket, Place{.length = other_job}, soon);
      continue;
    }
    if (greeting.size != world.size)
      fail<RankError>("a rank of a job of {} processes connected, and this job has {}",
                      greeting.size, world.size);
    forget_who_left();
    if (greeting.rank < first || greeting.rank >= world.size ||
        sockets[static_cast<std::size_t>(greeting.rank)])
      fail<RankError>(
          "two processes are rank {0}, or {0} is not below the {1} ranks; RANK must differ",
          greeting.rank, world.size);
    place = unmapped(place);
    set_port(place.address, greeting.port);
    arrived(greeting.rank, place);
    sockets[static_cast<std::size_t>(greeting.rank)] = std::move(socket);
    --missing;
    if (missing == 0) forget_who_left();
  }
}

class TcpTransport final : public Transport {
 public:
  explicit TcpTransport(const TcpOptions& options) : world_(options.world) {
    const auto size = static_cast<std::size_t>(world_.size);
    std::vector<Socket> sockets(size);
    connect(options, sockets);
    for (Socket& socket : sockets) links_.push_back({std::move(socket), {}, {}});
  }

  World world() const override { return world_; }
  std::string describe() const override { return "TCP"; }

  void start(std::span<const Message> sends, std::span<const Message> receives) override {
    for (const Message& message : sends)
      if (!message.bytes.empty()) link(message.peer).to_send.push_back(message.bytes);
    for (const Message& message : receives)
      if (!message.bytes.empty()) link(message.peer).to_receive.push_back(message.bytes);
  }

  bool done() override {
    bool all = true;
    for (std::size_t rank = 0; rank < links_.size(); ++rank) {
      Link& one = links_[rank];
      move(one.to_send, rank, [&](std::span<std::byte> bytes) {
        return ::send(one.socket.file(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      });
      move(one.to_receive, rank, [&](std::span<std::byte> bytes) {
        const ssize_t got = ::recv(one.socket.file(), bytes.data(), bytes.size(), 0);
        if (got == 0) fail<PeerError>(left_text, rank);
        return got;
      });
      all = all && one.to_send.empty() && one.to_receive.empty();
    }
    return all;
  }

  std::vector<int> silent_peers() const override {
    std::vector<int> peers;
    for (std::size_t rank = 0; rank < links_.size(); ++rank)
      if (!links_[rank].to_receive.empty() || !links_[rank].to_send.empty())
        peers.push_back(static_cast<int>(rank));
    return peers;
  }

  std::vector<int> left_peers() const override {
    std::vector<int> peers;
    for (std::size_t rank = 0; rank < links_.size(); ++rank)
      if (links_[rank].socket && has_left(links_[rank].socket))
        peers.push_back(static_cast<int>(rank));
    return peers;
  }

  // The others see that the connections close.
  [[noreturn]] void abort(int code) override { std::_Exit(code); }

 private:
  struct Link {
    Socket socket;
    std::deque<std::span<std::byte>> to_send, to_receive;  // what is left of each message
  };

  Link& link(int rank) { return links_[static_cast<std::size_t>(rank)]; }

  template <class Call>
  static void move(std::deque<std::span<std::byte>>& messages, std::size_t rank, Call call) {
    while (!messages.empty()) {
      const ssize_t count = call(messages.front());
      if (count < 0 && errno == EINTR) continue;
      if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
      if (count < 0 && (errno == ECONNRESET || errno == EPIPE)) fail<PeerError>(left_text, rank);
      if (count < 0) fail<PeerError>("the connection to rank {} broke: {}", rank, reason());
      messages.front() = messages.front().subspan(static_cast<std::size_t>(count));
      if (messages.front().empty()) messages.pop_front();
    }
  }

  // All connect to rank 0, which tells them where the others listen; each then connects to the
  // ranks between.
  void connect(const TcpOptions& options, std::vector<Socket>& sockets) const {
    const auto until = Time::now() + options.timeout;
    const std::uint32_t job =
        crc32c({reinterpret_cast<const std::uint8_t*>(options.job.data()), options.job.size()});
    std::vector<Place> places(sockets.size());
    if (world_.rank == 0) {
      accept_ranks(
          listen_on(options.port), world_, job, 1, until, sockets,
          [&](int rank, const Place& place) { places[static_cast<std::size_t>(rank)] = place; });
      for (std::size_t rank = 1; rank < sockets.size(); ++rank)
        for (const Place& place : places)
          if (!send(sockets[rank], as_seen_by(sockets[rank], place), until))
            fail<RankError>("rank {} left the job", rank);
      return;
    }
    const Socket listener = listen_on(0);
    const Greeting greeting{.rank = world_.rank,
                            .size = world_.size,
                            .job = job,
                            .port = port_of(local_place(listener).address)};
    sockets[0] = greet_first(options, greeting, until, places[0]);
    for (std::size_t rank = 1; rank < places.size(); ++rank)
      if (!receive(sockets[0], places[rank], until)) not_started();
    for (int rank = 1; rank < world_.rank; ++rank) {
      const auto at = static_cast<std::size_t>(rank);
      std::string why;
      sockets[at] = connect_to(places[at], until, &why, sockets.data());
      if (!sockets[at])
        fail<RankError>("rank {} cannot be reached: {}; ranks use any free TCP port between them",
                        rank, why);
      if (!send(sockets[at], greeting, until)) fail<PeerError>(left_text, rank);
    }
    accept_ranks(listener, world_, job, world_.rank + 1, until, sockets, [](int, const Place&) {});
  }

  // The connection to this job's rank 0, which has answered with the first place.
  Socket greet_first(const TcpOptions& options, const Greeting& greeting, Time::time_point until,
                     Place& place) const {
    for (;;) {
      Socket first = connect_to_first(options, until);
      if (!send(first, greeting, until)) fail<RankError>("rank 0 left the job");
      if (!receive(first, place, until)) not_started();
      if (place.length != other_job) return first;
      const auto pause = std::chrono::milliseconds(200);
      if (Time::now() + pause > until)
        fail<RankError>("another job listens at {} port {}; give each job a MASTER_PORT of its own",
                        options.host, options.port);
      std::this_thread::sleep_for(pause);  // until it has started and this one's rank 0 listens
    }
  }

  [[noreturn]] void not_started() const {
    fail<RankError>("rank 0 did not start the job: not all of {} ranks connected", world_.size);
  }

  World world_;
  std::vector<Link> links_;
};

int number_of(const char* name, int otherwise) {
  const char* text = std::getenv(name);
  if (!text) return otherwise;
  int value = 0;
  const char* const end = text + std::strlen(text);
  if (const auto [at, error] = std::from_chars(text, end, value);
      error != std::errc{} || at != end || value < 0)
    fail<UsageError>("{}={}: is not a whole number of at least 0", name, text);
  return value;
}

}  // namespace

std::optional<TcpOptions> tcp_options_of_environment() {
  const char* const host = std::getenv("MASTER_ADDR");
  if (!host || !std::getenv("RANK") || !std::getenv("WORLD_SIZE")) return std::nullopt;
  TcpOptions options{.host = host};
  options.world = {.size = number_of("WORLD_SIZE", 1),
                   .rank = number_of("RANK", 0),
                   .local_size = number_of("LOCAL_WORLD_SIZE", 0),
                   .local_rank = number_of("LOCAL_RANK", -1)};
  constexpr int most_ranks = 65536;
  if (options.world.size > most_ranks)
    fail<UsageError>("WORLD_SIZE={}: a job has at most {} ranks", options.world.size, most_ranks);
  const int port = number_of("WARPSTEP_PORT", number_of("MASTER_PORT", 29500) + 1);
  if (options.world.size < 1 || options.world.rank >= options.world.size)
    fail<UsageError>("RANK={} is not below WORLD_SIZE={}", options.world.rank, options.world.size);
  if (port < 1 || port > 65535)
    fail<UsageError>(
        "the port after MASTER_PORT, {}, is not a TCP port; set MASTER_PORT to 1 to 65534, or "
        "WARPSTEP_PORT",
        port);
  options.port = static_cast<std::uint16_t>(port);
  for (const char* name : {"SLURM_JOB_ID", "TORCHELASTIC_RUN_ID"})
    if (const char* text = std::getenv(name)) options.job += fmt::format("{}={} ", name, text);
  return options;
}

std::unique_ptr<Transport> open_tcp(const TcpOptions& options) {
  return std::make_unique<TcpTransport>(options);
}

}  // namespace warpstep
