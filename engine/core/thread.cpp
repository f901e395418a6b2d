#include "engine/core/thread.h"

#include <pthread.h>
#include <unistd.h>

#include <system_error>
#include <utility>

#include "engine/core/clock.h"
#include "engine/core/cpus.h"
#include "engine/core/error.h"
#include "engine/core/record.h"

namespace warpstep {
namespace {

constexpr int wake_up = SIGURG;  // sent to the signal thread by this file only; ignored by default

bool is_ignored(int signal) {
  struct sigaction action {};
  return ::sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

// Like the default action, so that a shell sees which signal it was.
[[noreturn]] void end_by(int signal) {
  ::signal(signal, SIG_DFL);
  sigset_t one;
  sigemptyset(&one);
  sigaddset(&one, signal);
  pthread_sigmask(SIG_UNBLOCK, &one, nullptr);
  ::raise(signal);
  ::_exit(128 + signal);  // process 1 of a container survives default actions
}

}  // namespace

std::thread start_thread(const std::string& name, std::function<void()> work) {
  // A new thread inherits its creator's mask; setting its own would be too late.
  const SignalsBlocked blocked;
  try {
    // Not on its creator's CPU, which may be one of the team's. Read here: the places change while
    // the thread for signals runs, and in the thread that creates all others.
    return std::thread([name, others = cpus_of_new_threads(), work = std::move(work)] {
      record::name_thread(name);
      run_on(others);
      work();
    });
  } catch (const std::system_error& error) {
    fail<Error>(
        "cannot start the thread '{}': {}; check the limits on processes (ulimit -u), on memory "
        "(ulimit -v) and of the container (pids.max)",
        name, error.code().message());
  }
}

std::string try_start_thread(std::thread& thread, const std::string& name,
                             std::function<void()> work) {
  try {
    thread = start_thread(name, std::move(work));
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

sigset_t asynchronous_signals() {
  sigset_t signals;
  sigfillset(&signals);
  for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT})
    sigdelset(&signals, fault);
  return signals;
}

SignalsBlocked::SignalsBlocked() {
  static const sigset_t signals = asynchronous_signals();
  pthread_sigmask(SIG_BLOCK, &signals, &before_);
}

SignalsBlocked::~SignalsBlocked() {
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

SignalThread::SignalThread() {
  sigemptyset(&awaited_);
  sigaddset(&awaited_, wake_up);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1})
    if (!is_ignored(signal)) sigaddset(&awaited_, signal);
  thread_ = start_thread("signals", [this] { run(); });
}

SignalThread::~SignalThread() {
  ending_ = true;
  pthread_kill(thread_.native_handle(), wake_up);
  thread_.join();
}

void SignalThread::run() {
  pthread_sigmask(SIG_SETMASK, &awaited_, nullptr);  // all others are handled here
  for (std::uint64_t first_ns = 0;;) {
    int signal = 0;
    sigwait(&awaited_, &signal);
    if (ending_) return;
    if (signal == wake_up) continue;
    std::atomic<bool>* stop = stop_;
    if (!stop) end_by(signal);
    *stop = true;
    if (signal == SIGHUP || signal == SIGUSR1) continue;
    const std::uint64_t now = now_ns();
    if (first_ns == 0)
      first_ns = now;
    else if (now - first_ns > same_request_ns)
      end_by(signal);
  }
}

}  // namespace warpstep
