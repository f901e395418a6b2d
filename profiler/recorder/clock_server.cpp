#include "profiler/recorder/clock_server.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <optional>
#include <utility>

#include "engine/core/thread.h"
#include "profiler/recorder/tcp_socket.h"

namespace warpstep::profiler {
namespace {

// A connection that cannot be accepted stays in the queue, and poll() would return at once for
// ever.
constexpr std::chrono::milliseconds pause_without_descriptors{100};

std::size_t connections_at_most(std::size_t wanted) {
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) != 0) return wanted;
  return std::clamp<std::size_t>(files.rlim_cur / 8, 1, wanted);
}

int until(Deadline deadline) {
  const auto left =
      std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
  return static_cast<int>(std::max<std::int64_t>(left.count(), 0));
}

}  // namespace

ClockServer::ClockServer(const std::string& host, const std::string& port,
                         std::function<std::uint64_t()> clock, const AskerLimits& limits)
    : clock_(std::move(clock)),
      limits_{connections_at_most(limits.connections), limits.idle},
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
  std::optional<Deadline> rests;  // the listener, after it found no descriptor free
  for (;;) {
    drop_idle();
    if (rests && *rests <= std::chrono::steady_clock::now()) rests.reset();
    std::vector<pollfd> waited{{stop_.number(), POLLIN, 0},
                               {rests ? -1 : listener_.number(), POLLIN, 0}};
    std::optional<Deadline> next = rests;
    for (const Asker& asker : askers_) {
      waited.push_back({asker.socket.number(), POLLIN, 0});
      next = next ? std::min(*next, asker.until) : asker.until;
    }
    if (::poll(waited.data(), waited.size(), next ? until(*next) : -1) < 0) {
      if (errno == EINTR) continue;
      return;
    }
    if (waited[0].revents != 0) return;
    for (std::size_t i = waited.size(); i-- > 2;)
      if (waited[i].revents != 0 && !answer(askers_[i - 2]))
        askers_.erase(askers_.begin() + static_cast<std::ptrdiff_t>(i - 2));
    if (waited[1].revents != 0 && !accept())
      rests = std::chrono::steady_clock::now() + pause_without_descriptors;
  }
}

void ClockServer::drop_idle() {
  const Deadline now = std::chrono::steady_clock::now();
  std::erase_if(askers_, [now](const Asker& asker) { return asker.until <= now; });
}

// False when there is no descriptor or memory for the connection.
bool ClockServer::accept() {
  Descriptor socket = accept_tcp(listener_);
  if (!socket) return errno != EMFILE && errno != ENFILE && errno != ENOMEM && errno != ENOBUFS;
  // Full: who has been silent for longest goes, so that connections held open keep no rank out.
  if (askers_.size() >= limits_.connections)
    askers_.erase(
        std::min_element(askers_.begin(), askers_.end(),
                         [](const Asker& a, const Asker& b) { return a.until < b.until; }));
  askers_.push_back({std::move(socket), std::chrono::steady_clock::now() + limits_.idle, {}});
  return true;
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
  asker.until = std::chrono::steady_clock::now() + limits_.idle;
  const auto soon = std::chrono::steady_clock::now() + std::chrono::milliseconds(1);
  return send_line(asker.socket, std::to_string(clock_()), soon);
}

}  // namespace warpstep::profiler
