// Profiling on demand: a running job listens on a socket of its own, another process asks it.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace warpstep::profiler {

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
