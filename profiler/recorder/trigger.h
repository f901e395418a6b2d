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

// Listens on $XDG_RUNTIME_DIR (or /tmp)/warpstep-UID/PID.sock, mode 0600, in a thread that sleeps.
// A job that cannot listen goes on without: why() says so.
class TriggerListener {
 public:
  // Answers a request at once, with one line that is given back to the asker: what will be
  // recorded, or why not.
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
// belongs to somebody else; names the jobs that do.
std::string trigger(pid_t job, const TriggerRequest& request);
std::vector<pid_t> listening_jobs();

}  // namespace warpstep::profiler
