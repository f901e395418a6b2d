#include "profiler/recorder/tcp_socket.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <memory>

namespace warpstep::profiler {
namespace {

// Calls `use` with sockets of the address's families, until one is of use.
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

void send_at_once(const Descriptor& socket) {
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
  if (socket) send_at_once(socket);
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
  if (socket) send_at_once(socket);
  return socket;
}

std::uint16_t port_of(const Descriptor& socket) {
  sockaddr_storage bound{};
  socklen_t bytes = sizeof bound;
  ::getsockname(socket.number(), reinterpret_cast<sockaddr*>(&bound), &bytes);
  return ntohs(bound.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(bound).sin6_port
                                           : reinterpret_cast<const sockaddr_in&>(bound).sin_port);
}

}  // namespace warpstep::profiler
