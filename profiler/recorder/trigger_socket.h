// Sockets of jobs that can be asked: where they are, and lines over them that no peer can delay.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace warpstep::profiler {

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

}  // namespace warpstep::profiler
