// Starting threads, and which of them handle signals: only the thread of a SignalThread. A handler
// in a thread that computes would delay the step, on a stack that may be small.
#pragma once

#include <signal.h>

#include <atomic>
#include <functional>
#include <string>
#include <thread>

namespace warpstep {

// Starts `work`, which must not throw, in a thread that handles no asynchronous signal and runs on
// cpus_of_new_threads() (cpus.h). Profiles show it as `name`. Throws Error when the system
// cannot start a thread.
std::thread start_thread(const std::string& name, std::function<void()> work);

// The same for an optional thread: returns why `thread` was not started; empty on success.
std::string try_start_thread(std::thread& thread, const std::string& name,
                             std::function<void()> work);

// Signals from other processes, timers and the terminal. Without the faults of a thread's own
// instructions (SIGSEGV, SIGBUS, ...), which the handlers of mapped files and sanitizers need.
sigset_t asynchronous_signals();

// The calling thread handles no asynchronous signal while this object exists. Threads that it
// starts in that time inherit the mask permanently.
class SignalsBlocked {
 public:
  SignalsBlocked();
  ~SignalsBlocked();
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

// For a program's main(): blocks asynchronous signals in the calling thread, and so in all threads
// that it starts later, and runs one thread that handles them. Until stop_with(), SIGINT, SIGTERM,
// SIGHUP and SIGUSR1 end the program as by default; ignored ones stay ignored, as under nohup.
// Other signals run their handlers or default actions.
class SignalThread {
 public:
  SignalThread();  // throws Error when the system cannot start a thread
  ~SignalThread();
  SignalThread(const SignalThread&) = delete;
  SignalThread& operator=(const SignalThread&) = delete;

  // From now on the first of the four sets `stop`. A later SIGINT or SIGTERM ends the program, but
  // one within `same_request_ns` of the first is the same request: timeout(1) sends SIGTERM twice.
  // A later SIGHUP or SIGUSR1 does nothing: a closing terminal sends several.
  void stop_with(std::atomic<bool>& stop) { stop_ = &stop; }
  static constexpr std::uint64_t same_request_ns = 500'000'000;

 private:
  void run();

  SignalsBlocked blocked_;
  sigset_t awaited_;
  std::atomic<std::atomic<bool>*> stop_{nullptr};
  std::atomic<bool> ending_{false};
  std::thread thread_;
};

}  // namespace warpstep
