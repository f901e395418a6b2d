#include "profiler/recorder/trigger_socket.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "engine/core/file.h"

namespace warpstep::profiler {
namespace {

using std::filesystem::path;

std::optional<sockaddr_un> address_of(const path& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string& text = path.native();
  if (text.size() >= sizeof address.sun_path) return std::nullopt;
  std::copy(text.begin(), text.end(), address.sun_path);
  return address;
}

Descriptor new_socket() {
  return Descriptor(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

bool try_again(ssize_t result) {
  return result < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR);
}

}  // namespace

Descriptor::~Descriptor() {
  if (number_ >= 0) ::close(number_);
}
Descriptor::Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  std::swap(number_, other.number_);
  return *this;
}

std::vector<path> socket_folders(uid_t user) {
  std::vector<path> folders;
  const char* runtime = std::getenv("XDG_RUNTIME_DIR");
  struct stat status {};
  // After sudo the variable may still name the folder of who called it.
  if (user == ::geteuid() && runtime && path(runtime).is_absolute() &&
      ::stat(runtime, &status) == 0 && status.st_uid == user)
    folders.push_back(path(runtime) / "warpstep");
  const path usual = fmt::format("/run/user/{}/warpstep", user);
  if (std::find(folders.begin(), folders.end(), usual) == folders.end()) folders.push_back(usual);
  folders.emplace_back(fmt::format("/tmp/warpstep-{}", user));
  return folders;
}

path socket_path(const path& folder, pid_t job) {
  return folder / fmt::format("{}.sock", job);
}

std::string folder_problem(const path& folder, bool make) {
  if (make && ::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST)
    return fmt::format("{}: {}", folder.string(), std::strerror(errno));
  return warpstep::folder_problem(folder, 077);
}

Descriptor connect_to(const path& path, int* error) {
  *error = ENAMETOOLONG;
  const auto address = address_of(path);
  if (!address) return Descriptor();
  Descriptor socket = new_socket();
  if (!socket || ::connect(socket.number(), reinterpret_cast<const sockaddr*>(&*address),
                           sizeof *address) != 0) {
    *error = errno;
    return Descriptor();
  }
  *error = 0;
  return socket;
}

Descriptor listen_at(const path& final_path, int* error) {
  // Bound under another name first: at its own it is there when it listens and is closed to others,
  // so that a refused connection always means a dead job.
  const path made = final_path.parent_path() / fmt::format(".{}.new", ::getpid());
  *error = ENAMETOOLONG;
  const auto address = address_of(made);
  if (!address || !address_of(final_path)) return Descriptor();
  Descriptor socket = new_socket();
  ::unlink(made.c_str());
  if (socket &&
      ::bind(socket.number(), reinterpret_cast<const sockaddr*>(&*address), sizeof *address) == 0 &&
      ::chmod(made.c_str(), 0600) == 0 && ::listen(socket.number(), 8) == 0 &&
      ::rename(made.c_str(), final_path.c_str()) == 0) {
    *error = 0;
    return socket;
  }
  *error = errno;
  ::unlink(made.c_str());
  return Descriptor();
}

std::optional<uid_t> peer_of(const Descriptor& socket) {
  ucred peer{};
  socklen_t bytes = sizeof peer;
  if (::getsockopt(socket.number(), SOL_SOCKET, SO_PEERCRED, &peer, &bytes) != 0)
    return std::nullopt;
  return peer.uid;
}

bool wait_for(const Descriptor& socket, short events, Deadline deadline, int stop) {
  for (;;) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    if (left.count() <= 0) return false;
    std::array<pollfd, 2> waited{pollfd{socket.number(), events, 0}, pollfd{stop, POLLIN, 0}};
    const int ready = ::poll(waited.data(), waited.size(), static_cast<int>(left.count()));
    if (ready < 0 && errno != EINTR) return false;
    if (ready <= 0) continue;
    return waited[1].revents == 0;
  }
}

std::optional<std::string> receive_line(const Descriptor& socket, std::size_t most_bytes,
                                        Deadline deadline, int stop) {
  std::string line;
  std::array<char, 512> part{};
  while (wait_for(socket, POLLIN, deadline, stop)) {
    const ssize_t got = ::recv(socket.number(), part.data(), part.size(), 0);
    if (try_again(got)) continue;
    if (got <= 0) return std::nullopt;
    line.append(part.data(), static_cast<std::size_t>(got));
    const std::size_t end = line.find('\n');
    if (std::min(end, line.size()) > most_bytes) return std::nullopt;
    if (end == line.npos) continue;
    line.resize(end);
    return line;
  }
  return std::nullopt;
}

bool send_line(const Descriptor& socket, std::string_view line, Deadline deadline, int stop) {
  std::string rest(line);
  rest += '\n';
  for (;;) {
    // At once: a deadline that a busy machine has let pass is only for what must be waited for.
    const ssize_t sent =
        ::send(socket.number(), rest.data(), rest.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && !try_again(sent)) return false;
    if (sent > 0) rest.erase(0, static_cast<std::size_t>(sent));
    if (rest.empty()) return true;
    if (!wait_for(socket, POLLOUT, deadline, stop)) return false;
  }
}

std::string one_clean_line(std::string text) {
  for (char& c : text)
    if (static_cast<unsigned char>(c) < ' ' || c == '\x7f') c = c == '\n' ? ' ' : '?';
  return text;
}

}  // namespace warpstep::profiler
