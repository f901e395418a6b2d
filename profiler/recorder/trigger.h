// Profiling on demand: a running job listens on a socket of its own, another process asks it.
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

// Sockets of jobs that can be asked: where they are, and lines over them that no peer can delay.

// A file descriptor, closed at the end.
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

// Folders where the jobs of a user may have their sockets, the preferred one first:
// $XDG_RUNTIME_DIR/warpstep (for the calling user, who must own it), /run/user/UID/warpstep,
// /tmp/warpstep-UID.
std::vector<std::filesystem::path> socket_folders(uid_t user);
std::filesystem::path socket_path(const std::filesystem::path& folder, pid_t job);

// Why nobody else could put something into this folder, or read it, is not sure; empty: it is the
// calling user's alone. With `make` it is made if missing.
std::string folder_problem(const std::filesystem::path& folder, bool make);

// Connects without waiting. What `error` says is an errno: ENOENT and ECONNREFUSED mean that nobody
// listens, ENAMETOOLONG that no socket can have such a path.
Descriptor connect_to(const std::filesystem::path& path, int* error);
// A socket that listens at `path` with mode 0600 from the moment on that the path is there.
Descriptor listen_at(const std::filesystem::path& path, int* error);
// The user at the other end; nothing when the kernel does not tell.
std::optional<uid_t> peer_of(const Descriptor& socket);

using Deadline = std::chrono::steady_clock::time_point;

// Waits until one of poll()'s `events` is there; false at the deadline, or when `stop` (a
// descriptor, or -1) is readable.
bool wait_for(const Descriptor& socket, short events, Deadline deadline, int stop);

// A line without its end, by the deadline; nothing when it is longer than `most_bytes`, when the
// peer goes away before its end, or when `stop` (a descriptor, or -1) becomes readable.
std::optional<std::string> receive_line(const Descriptor& socket, std::size_t most_bytes,
                                        Deadline deadline, int stop = -1);
// False when it could not be sent whole. What the kernel takes at once has no deadline. No SIGPIPE.
bool send_line(const Descriptor& socket, std::string_view line, Deadline deadline, int stop = -1);

// Bytes that a terminal would act on become '?'.
std::string one_clean_line(std::string text);

struct TriggerRequest {
  std::uint64_t steps = 8;
  bool deep = false;  // with device activities
};

// Listens on PID.sock, mode 0600, in $XDG_RUNTIME_DIR/warpstep or, where that cannot be, in
// /run/user/UID/warpstep or /tmp/warpstep-UID: a folder of the user's alone. Sockets that killed
// jobs left there are removed. Only the user and root are answered; whoever is slow, or sends
// anything but a request, loses the connection after a second at most. A job that cannot listen
// goes on without: why() says so.
//
// A request is one line, {"steps": 8, "deep": false}, and so is the answer, a text.
class TriggerListener {
 public:
  // Answers a request at once, with one line that is given back to the asker: what will be
  // recorded, or why not. Called in the listener's thread; what it throws becomes the answer.
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

// Asks a running job; its answer. UsageError when there is no such job, it does not listen, or it
// belongs to somebody else; names the jobs that do. Error when it gives no answer within 5 s.
std::string trigger(pid_t job, const TriggerRequest& request);
std::vector<pid_t> listening_jobs();  // of the calling user

}  // namespace warpstep::profiler
