// Profiling on demand: a running job listens on a socket for requests from other processes.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace warpstep::profiler {

// ---- Sockets: their places, and lines over them with deadlines, so that no peer can delay a job.

// A file descriptor, closed by the destructor.
class Descriptor {
 public:
  explicit Descriptor(int number = -1) : number_(number) {}
  ~Descriptor();
  Descriptor(Descriptor&& other) noexcept;
  Descriptor& operator=(Descriptor&& other) noexcept;

  int number() const { return number_; }
  explicit operator bool() const { return number_ >= 0; }

 private:
  int number_;
};

// Folders for the sockets of a user's jobs, the preferred one first:
// $XDG_RUNTIME_DIR/warpstep (for the calling user, who must own it), /run/user/UID/warpstep,
// /tmp/warpstep-UID.
std::vector<std::filesystem::path> socket_folders(uid_t user);
// PID.sock, in a PID namespace such as a container's PID.NAMESPACE.sock: /tmp may be shared by
// containers, of which each has a process 1.
std::filesystem::path socket_path(const std::filesystem::path& folder, pid_t job);

// Why this folder is not private to the calling user; empty: it is. With `make` a missing folder is
// created.
std::string folder_problem(const std::filesystem::path& folder, bool make);

// Connects without waiting. `error` becomes an errno: ENOENT and ECONNREFUSED mean that nobody
// listens, ENAMETOOLONG that the path is too long for a socket.
Descriptor connect_to(const std::filesystem::path& path, int* error);
// A socket at `path` that listens, with mode 0600, from the moment at which the path exists.
Descriptor listen_at(const std::filesystem::path& path, int* error);
// Who is at the other end; nothing if the kernel does not know.
struct Peer {
  uid_t user = 0;
  pid_t process = 0;  // as this process numbers it; 0: of a container that it does not see
};
std::optional<Peer> peer_of(const Descriptor& socket);

using Deadline = std::chrono::steady_clock::time_point;
Deadline deadline_in(std::chrono::milliseconds time);

// Waits for one of poll()'s `events`; false at the deadline, or when `stop` (a descriptor, or -1)
// is readable.
bool wait_for(const Descriptor& socket, short events, Deadline deadline, int stop);

// A line without its newline; nothing if it is not complete by the deadline or longer than
// `max_bytes`, if the peer disconnects, or if `stop` (a descriptor, or -1) becomes readable.
std::optional<std::string> receive_line(const Descriptor& socket, std::size_t max_bytes,
                                        Deadline deadline, int stop = -1);
// False if the line was not sent completely. The deadline applies only to waiting: bytes that the
// kernel accepts immediately are always sent. No SIGPIPE.
bool send_line(const Descriptor& socket, std::string_view line, Deadline deadline, int stop = -1);

// Replaces control characters by '?', newlines by a blank.
std::string one_clean_line(std::string text);

// ---- The job's side.

struct TriggerRequest {
  std::uint64_t steps = 8;
  bool deep = false;          // with device activities
  std::uint64_t last_ms = 0;  // not 0: instead of steps, what happened in this time
};

// Listens on socket_path(), mode 0600, in the first of socket_folders() that can be used and is
// private to the user. Removes sockets that killed jobs left there. Answers only the user and root;
// a client that is slow or sends anything but a request loses its connection after at most a
// second. A job that cannot listen continues without; why() gives the reason.
//
// A request is one line, {"steps": 8, "deep": false} or {"last_ms": 10000}, and so is the answer, a
// text.
class TriggerListener {
 public:
  // Returns the answer to a request immediately, one line for the client: what will be recorded, or
  // why not. Called in the listener's thread; exceptions become the answer.
  using Accept = std::function<std::string(const TriggerRequest&)>;
  explicit TriggerListener(Accept accept);
  ~TriggerListener();  // removes the socket
  TriggerListener(const TriggerListener&) = delete;
  TriggerListener& operator=(const TriggerListener&) = delete;

  const std::string& why() const { return why_; }  // empty: it listens

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
  std::string why_;
};

// ---- The client's side.

// Sends a request to a running job, by its number here or in its container, and returns its answer.
// UsageError if there is no such job, it does not listen, or it belongs to somebody else; the
// message lists the jobs that listen. Error without an answer within 5 s.
std::string trigger(pid_t job, const TriggerRequest& request);
// Whether a job's answer says that it records; else it says why not.
bool is_accepted(std::string_view answer);
std::vector<pid_t> listening_jobs();  // of the calling user, by their numbers here

}  // namespace warpstep::profiler
