#include "profiler/recorder/clock_server.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <utility>

#include "profiler/recorder/tcp_socket.h"
#include "profiler/sources/quiet_thread.h"

namespace warpstep::profiler {
namespace {

constexpr std::size_t most_askers = 1024;

}  // namespace

ClockServer::ClockServer(const std::string& host, const std::string& port,
                         std::function<std::uint64_t()> clock)
    : clock_(std::move(clock)),
      listener_(listen_tcp(host, port, &why_)),
      stop_(::eventfd(0, EFD_CLOEXEC)) {
  if (!listener_) return;
  why_.clear();
  port_ = port_of(listener_);
  if (!start_quiet_thread(thread_, "clock server", [this] { run(); }))
    why_ = "the system gives no thread for it";
}

ClockServer::~ClockServer() {
  ::eventfd_write(stop_.number(), 1);
  if (thread_.joinable()) thread_.join();
}

void ClockServer::run() {
  std::vector<Asker> askers;
  for (;;) {
    std::vector<pollfd> waited{{stop_.number(), POLLIN, 0}, {listener_.number(), POLLIN, 0}};
    for (const Asker& asker : askers) waited.push_back({asker.socket.number(), POLLIN, 0});
    if (::poll(waited.data(), waited.size(), -1) < 0) {
      if (errno == EINTR) continue;
      return;
    }
    if (waited[0].revents != 0) return;
    for (std::size_t i = waited.size(); i-- > 2;)
      if (waited[i].revents != 0 && !answer(askers[i - 2]))
        askers.erase(askers.begin() + static_cast<std::ptrdiff_t>(i - 2));
    if (waited[1].revents == 0) continue;
    if (Descriptor socket = accept_tcp(listener_); socket && askers.size() < most_askers)
      askers.push_back({std::move(socket), {}});
  }
}

// False when the asker went, or asks for something else.
bool ClockServer::answer(Asker& asker) const {
  std::array<char, clock_line_bytes> part{};
  const ssize_t got = ::recv(asker.socket.number(), part.data(), part.size(), 0);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return true;
  if (got <= 0) return false;
  asker.line.append(part.data(), static_cast<std::size_t>(got));
  if (asker.line.back() != '\n') return asker.line.size() < clock_line_bytes;
  asker.line.pop_back();
  if (std::exchange(asker.line, {}) != clock_question) return false;
  const auto soon = std::chrono::steady_clock::now() + std::chrono::milliseconds(1);
  return send_line(asker.socket, std::to_string(clock_()), soon);
}

}  // namespace warpstep::profiler
