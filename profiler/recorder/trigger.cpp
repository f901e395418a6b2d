#include "profiler/recorder/trigger.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>
#include <utility>

#include "engine/core/error.h"
#include "engine/core/file.h"
#include "engine/core/json_text.h"
#include "engine/core/text.h"
#include "engine/core/thread.h"
#include "profiler/sources/sampler_proc.h"

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
  // After sudo the variable may still name the folder of the user who called sudo.
  if (user == ::geteuid() && runtime && path(runtime).is_absolute() &&
      ::stat(runtime, &status) == 0 && status.st_uid == user)
    folders.push_back(path(runtime) / "warpstep");
  const path usual = fmt::format("/run/user/{}/warpstep", user);
  if (std::find(folders.begin(), folders.end(), usual) == folders.end()) folders.push_back(usual);
  folders.emplace_back(fmt::format("/tmp/warpstep-{}", user));
  return folders;
}

path socket_path(const path& folder, pid_t job) {
  constexpr ino_t of_machine =
      0xEFFFFFFC;  // PROC_PID_INIT_INO: the namespace outside of all others
  struct stat space {};
  if (::stat("/proc/self/ns/pid", &space) != 0 || space.st_ino == of_machine)
    return folder / fmt::format("{}.sock", job);
  return folder / fmt::format("{}.{}.sock", job, space.st_ino);
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
  // Bound under a temporary name and renamed once it listens and is closed to others, so that a
  // refused connection always means a dead job.
  const path made = final_path.parent_path() / ("." + final_path.stem().string() + ".new");
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

std::optional<Peer> peer_of(const Descriptor& socket) {
  ucred peer{};
  socklen_t bytes = sizeof peer;
  if (::getsockopt(socket.number(), SOL_SOCKET, SO_PEERCRED, &peer, &bytes) != 0)
    return std::nullopt;
  return Peer{.user = peer.uid, .process = peer.pid};
}

Deadline deadline_in(std::chrono::milliseconds time) {
  return std::chrono::steady_clock::now() + time;
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

std::optional<std::string> receive_line(const Descriptor& socket, std::size_t max_bytes,
                                        Deadline deadline, int stop) {
  std::string line;
  std::array<char, 512> part{};
  while (wait_for(socket, POLLIN, deadline, stop)) {
    const ssize_t got = ::recv(socket.number(), part.data(), part.size(), 0);
    if (try_again(got)) continue;
    if (got <= 0) return std::nullopt;
    line.append(part.data(), static_cast<std::size_t>(got));
    const std::size_t end = line.find('\n');
    if (std::min(end, line.size()) > max_bytes) return std::nullopt;
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
    // Before looking at the deadline, which a busy machine may have let pass: it limits only
    // waiting.
    const ssize_t sent =
        ::send(socket.number(), rest.data(), rest.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && !try_again(sent)) return false;
    if (sent > 0) rest.erase(0, static_cast<std::size_t>(sent));
    if (rest.empty()) return true;
    if (!wait_for(socket, POLLOUT, deadline, stop)) return false;
  }
}

std::string one_clean_line(std::string text) {
  std::ranges::replace(text, '\n', ' ');
  return printable(text);
}

namespace {

constexpr std::chrono::seconds job_patience{1};     // of a job with a client
constexpr std::chrono::seconds client_patience{5};  // the job may serve several others first
constexpr std::size_t request_bytes = 4096;
constexpr std::size_t answer_bytes = 65536;
constexpr std::uint64_t max_steps = 1'000'000;
constexpr std::uint64_t max_last_ms = 3'600'000;

// The number that a job has for itself, of "PID.sock" or "PID.NAMESPACE.sock".
std::optional<pid_t> job_of(const path& file) {
  if (file.extension() != ".sock") return std::nullopt;
  const auto job = parse_number<pid_t>(file.stem().stem().native());
  return job && *job > 0 ? job : std::nullopt;
}

std::vector<path> sockets_in(const path& folder) {
  std::vector<path> sockets;
  std::error_code error;
  for (std::filesystem::directory_iterator at(folder, error), end; !error && at != end;
       at.increment(error))
    if (job_of(at->path())) sockets.push_back(at->path());
  return sockets;
}

enum class Found { listens, dead, unknown };
Found look_at(const path& socket) {
  int error = 0;
  if (connect_to(socket, &error) || error == EAGAIN) return Found::listens;  // or has a full queue
  return error == ECONNREFUSED ? Found::dead : Found::unknown;
}

// Removes sockets that killed jobs left. Tests the socket, not the process: process numbers are
// reused, and those of other containers are unknown here.
void remove_stale(const path& folder) {
  for (const path& socket : sockets_in(folder))
    if (look_at(socket) == Found::dead) ::unlink(socket.c_str());
}

// Throws UsageError and nlohmann::json's exceptions.
TriggerRequest parse_request(const std::string& line) {
  const nlohmann::json json = parse_json<nlohmann::json>(line, {});
  if (zero_byte(line) != std::string::npos || !json.is_object())
    fail<UsageError>("a request must be a JSON object");
  TriggerRequest request;
  for (const auto& [key, value] : json.items()) {
    if (key == "steps" && value.is_number_unsigned()) {
      request.steps = value.get<std::uint64_t>();
    } else if (key == "last_ms" && value.is_number_unsigned()) {
      request.last_ms = value.get<std::uint64_t>();
    } else if (key == "deep" && value.is_boolean()) {
      request.deep = value.get<bool>();
    } else {
      fail<UsageError>(
          "a request has \"steps\": N, \"deep\": true|false and \"last_ms\": N, not {}: {}", key,
          value.type_name());
    }
  }
  if (request.steps == 0 || request.steps > max_steps)
    fail<UsageError>("steps must be 1 to {}, not {}", max_steps, request.steps);
  if (request.last_ms > max_last_ms)
    fail<UsageError>("last_ms must be at most {}, not {}", max_last_ms, request.last_ms);
  return request;
}

std::string answer_to(const std::string& line, const TriggerListener::Accept& accept) noexcept try {
  try {
    const TriggerRequest request = parse_request(line);
    return one_clean_line(accept(request)).substr(0, answer_bytes);
  } catch (const std::exception& error) {
    return one_clean_line(fmt::format("not recorded: {}", error.what()));
  } catch (...) {
    return "not recorded: the job failed to answer";
  }
} catch (...) {
  return {};  // out of memory; the client gets an empty line
}

}  // namespace

struct TriggerListener::Parts {
  Accept accept;
  path at;
  Descriptor socket;
  Descriptor stop;
  std::thread thread;

  void serve(const Descriptor& client) const {
    const auto peer = peer_of(client);
    if (!peer || (peer->user != ::geteuid() && peer->user != 0)) return;
    const Deadline deadline = deadline_in(job_patience);
    const auto line = receive_line(client, request_bytes, deadline, stop.number());
    if (!line) return;
    send_line(client, answer_to(*line, accept), deadline_in(job_patience), stop.number());
  }

  void work() const noexcept {
    std::array<pollfd, 2> waited{pollfd{socket.number(), POLLIN, 0},
                                 pollfd{stop.number(), POLLIN, 0}};
    for (;;) {
      if (::poll(waited.data(), waited.size(), -1) < 0 && errno != EINTR) return;
      if (waited[1].revents != 0) return;
      const Descriptor client(
          ::accept4(socket.number(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (!client) {
        // Without a free descriptor the connection stays queued, and poll() would return
        // immediately.
        if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS)
          ::poll(&waited[1], 1, 100);
        continue;
      }
      try {
        serve(client);
      } catch (...) {  // no memory for a request: the client sees the connection end
      }
    }
  }
};

TriggerListener::TriggerListener(Accept accept) : parts_(std::make_unique<Parts>()) {
  parts_->accept = std::move(accept);
  parts_->stop = Descriptor(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  const auto without = [this](const std::string& reason) {
    if (!why_.empty()) why_ += "; ";
    why_ += reason;
  };
  for (const path& folder : socket_folders(::geteuid())) {
    if (const std::string problem = folder_problem(folder, true); !problem.empty()) {
      without(problem);
      continue;
    }
    remove_stale(folder);
    const path at = socket_path(folder, ::getpid());
    int error = EADDRINUSE;
    if (look_at(at) != Found::listens) parts_->socket = listen_at(at, &error);
    if (parts_->socket) {
      parts_->at = at;
      break;
    }
    without(fmt::format("{}: {}", at.string(), std::strerror(error)));
    if (error == EADDRINUSE) break;  // one per process
  }
  if (!parts_->socket || !parts_->stop) return;
  why_ = try_start_thread(parts_->thread, "trigger", [parts = parts_.get()] { parts->work(); });
  if (why_.empty()) return;
  ::unlink(parts_->at.c_str());
  parts_->socket = Descriptor();
}

TriggerListener::~TriggerListener() {
  if (!parts_->thread.joinable()) return;
  // First, so that no client finds a job that no longer answers.
  ::unlink(parts_->at.c_str());
  ::eventfd_write(parts_->stop.number(), 1);
  parts_->thread.join();
}

namespace {

// The folders of the job's user, if the calling user may connect: that user or root.
std::vector<path> folders_to_ask(uid_t user) {
  std::vector<path> folders;
  for (const path& folder : socket_folders(user))
    if (user != ::geteuid() || folder_problem(folder, false).empty()) folders.push_back(folder);
  return folders;
}

std::string jobs_text() {
  const std::vector<pid_t> jobs = listening_jobs();
  if (jobs.empty()) return "none of your running jobs can be profiled";
  return fmt::format("jobs that can be profiled: {}", fmt::join(jobs, ", "));
}

// The job's user. Throws UsageError if the calling user may not connect to it.
uid_t user_of(pid_t job) {
  const bool may_ask = job > 0 && ::kill(job, 0) == 0;
  if (!may_ask && (job <= 0 || errno != EPERM))
    fail<UsageError>("there is no process {}; {}", job, jobs_text());
  if (!may_ask) fail<UsageError>("process {} belongs to somebody else; {}", job, jobs_text());
  // Root may connect to any job.
  struct stat status {};
  const bool known = ::stat(fmt::format("/proc/{}", job).c_str(), &status) == 0;
  return ::geteuid() == 0 && known ? status.st_uid : ::geteuid();
}

// Waits while the job's queue is full. Not connected where nobody listens.
Descriptor connect_by(Deadline deadline, const path& at) {
  for (;;) {
    int error = 0;
    Descriptor socket = connect_to(at, &error);
    if (socket || error != EAGAIN) return socket;
    if (std::chrono::steady_clock::now() > deadline)
      fail<Error>("{}: too many clients are waiting for this job; try again", at.string());
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

// The job of this number here or, where none has it, the only one that has it in a container.
Descriptor find_job(uid_t user, pid_t job, Deadline deadline) {
  std::vector<Descriptor> inside;
  if (job <= 0) return Descriptor();
  for (const path& folder : folders_to_ask(user)) {
    if (Descriptor socket = connect_by(deadline, socket_path(folder, job)))
      if (const auto peer = peer_of(socket); peer && peer->process == job) return socket;
    for (const path& at : sockets_in(folder)) {
      int error = 0;
      Descriptor socket = connect_to(at, &error);
      const auto peer = socket ? peer_of(socket) : std::nullopt;
      if (peer && peer->process == job) return socket;
      if (peer && job_of(at) == job) inside.push_back(std::move(socket));
    }
  }
  return inside.size() == 1 ? std::move(inside.front()) : Descriptor();
}

}  // namespace

std::string trigger(pid_t job, const TriggerRequest& request) {
  if (request.steps == 0 || request.steps > max_steps)
    fail<UsageError>("--steps {}: must be 1 to {}", request.steps, max_steps);
  const Deadline deadline = deadline_in(client_patience);
  uid_t user = ::geteuid();
  Descriptor socket = find_job(user, job, deadline);
  if (!socket) {
    user = user_of(job);
    if (user != ::geteuid()) socket = find_job(user, job, deadline);
  }
  if (!socket) fail<UsageError>("process {} does not listen for requests; {}", job, jobs_text());
  const auto peer = peer_of(socket);
  if (!peer || (peer->user != user && peer->user != 0))
    fail<UsageError>("the socket of process {} belongs to somebody else; {}", job, jobs_text());
  nlohmann::json json{{"steps", request.steps}, {"deep", request.deep}};
  if (request.last_ms > 0) json = {{"last_ms", request.last_ms}};  // which older jobs refuse
  if (send_line(socket, printed(json), deadline))
    if (const auto answer = receive_line(socket, answer_bytes, deadline))
      return one_clean_line(*answer);
  fail<Error>("process {} did not answer within {} s: it has ended, or it is stopped", job,
              client_patience.count());
}

bool is_accepted(std::string_view answer) {
  return answer.starts_with("recording ") || answer.starts_with("kept ");
}

std::vector<pid_t> listening_jobs() {
  std::set<pid_t> jobs;
  for (const path& folder : folders_to_ask(::geteuid()))
    for (const path& at : sockets_in(folder)) {
      int error = 0;
      const Descriptor socket = connect_to(at, &error);
      const auto peer = socket ? peer_of(socket) : std::nullopt;
      if (peer && peer->process > 0) jobs.insert(peer->process);
      if (error == EAGAIN && at == socket_path(folder, *job_of(at))) jobs.insert(*job_of(at));
    }
  return {jobs.begin(), jobs.end()};
}

}  // namespace warpstep::profiler
