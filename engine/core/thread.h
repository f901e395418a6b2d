// Threads beside the one that trains.
#pragma once

#include <signal.h>

#include <atomic>
#include <functional>
#include <string>
#include <thread>

namespace warpstep {

// Starts `work`, which must not throw, in a thread that handles no asynchronous signal (signals.h).
// `name` is what a profile calls it. Throws Error when the system gives no thread.
std::thread start_thread(const std::string& name, std::function<void()> work);

// The same for a thread that its owner can do without: empty, or why `thread` was not started.
std::string try_start_thread(std::thread& thread, const std::string& name,
                             std::function<void()> work);

// Which threads handle signals. One that computes must handle none: while oneDNN multiplies
// matrices, the stack pointer may stand inside a heap buffer, and the frame of a handler would
// overwrite what lies below.

// What other processes, timers and the terminal send. Not among them are the faults of the thread's
// own instructions (SIGSEGV, SIGBUS, ...), which the handlers of mapped files and sanitizers need.
sigset_t asynchronous_signals();

// The calling thread handles no asynchronous signal while this lives. Threads that it starts
// meanwhile inherit that for good.
class SignalsBlocked {
 public:
  SignalsBlocked();
  ~SignalsBlocked();
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

// For a program's main(): blocks asynchronous signals in the calling thread, and so in all that it
// starts from now on, and has one thread that handles them. SIGINT, SIGTERM and SIGHUP end the
// program as by default until stop_with(); those that were ignored stay ignored, as under nohup.
// Other signals run the handlers or the default actions that they have.
class SignalThread {
 public:
  SignalThread();  // throws Error when the system gives no thread
  ~SignalThread();
  SignalThread(const SignalThread&) = delete;
  SignalThread& operator=(const SignalThread&) = delete;

  // From now on the first of the three sets `stop`. A later SIGINT or SIGTERM ends the program, but
  // one within `same_request_ns` of the first is the same request: timeout(1) sends SIGTERM twice.
  // A later SIGHUP does nothing: a closing terminal sends several.
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
