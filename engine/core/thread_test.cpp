#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>

#include "engine/core/thread.h"

namespace warpstep {
namespace {

using std::chrono::milliseconds;

bool is_blocked(int signal) {
  sigset_t mask;
  pthread_sigmask(SIG_SETMASK, nullptr, &mask);
  return sigismember(&mask, signal) == 1;
}

// The status of a child that runs `body`: each test changes the whole process.
int status_of(void (*body)()) {
  const pid_t child = ::fork();
  if (child == 0) {
    for (const int signal : {SIGINT, SIGTERM, SIGHUP}) std::signal(signal, SIG_DFL);
    ::alarm(30);  // no test hangs
    body();
    ::_exit(0);
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return status;
}

void wait_for(const std::atomic<bool>& flag) {
  while (!flag) std::this_thread::sleep_for(milliseconds(1));
}

void exit_unless(bool expected) {
  if (!expected) ::_exit(1);
}

#define EXPECT_DONE(status) EXPECT_EQ(status, 0)
#define EXPECT_SIGNALLED(status, signal) \
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == (signal)) << (status)

TEST(SignalsBlocked, LeavesFaultsOpenAndEndsWithItsScope) {
  EXPECT_FALSE(is_blocked(SIGUSR1));
  {
    const SignalsBlocked blocked;
    for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGPROF, SIGALRM, SIGCHLD, SIGUSR1, SIGRTMIN})
      EXPECT_TRUE(is_blocked(signal)) << signal;
    for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT})
      EXPECT_FALSE(is_blocked(fault)) << fault;
  }
  EXPECT_FALSE(is_blocked(SIGUSR1));
}

TEST(StartThread, HandlesNoSignals) {
  bool user = false, fault = true;
  start_thread("a thread", [&] {
    user = is_blocked(SIGUSR1);
    fault = is_blocked(SIGBUS);
  }).join();
  EXPECT_TRUE(user);
  EXPECT_FALSE(fault);
  EXPECT_FALSE(is_blocked(SIGUSR1)) << "the creator's mask is unchanged";
}

TEST(SignalThread, TheFirstOfFourStops) {
  EXPECT_DONE(status_of([] {
    static std::atomic<bool> stop{false};
    SignalThread signals;
    exit_unless(is_blocked(SIGINT) && is_blocked(SIGPROF));
    signals.stop_with(stop);
    // mpirun passes SIGUSR1 on; a terminal that closes sends many SIGHUPs.
    for (const int signal : {SIGUSR1, SIGHUP, SIGINT}) {
      stop = false;
      ::kill(::getpid(), signal);
      wait_for(stop);
    }
  }));
}

TEST(SignalThread, TwoAtOnceAreOneRequest) {
  EXPECT_DONE(status_of([] {
    static std::atomic<bool> stop{false};
    SignalThread signals;
    signals.stop_with(stop);
    for (int i = 0; i < 2; ++i) {
      stop = false;
      ::kill(::getpid(), SIGTERM);
      wait_for(stop);
    }
  }));
}

TEST(SignalThread, ALaterOneEndsTheProcess) {
  EXPECT_SIGNALLED(
      status_of([] {
        static std::atomic<bool> stop{false};
        SignalThread signals;
        signals.stop_with(stop);
        ::kill(::getpid(), SIGTERM);
        wait_for(stop);
        std::this_thread::sleep_for(std::chrono::nanoseconds(SignalThread::same_request_ns) +
                                    milliseconds(50));
        ::kill(::getpid(), SIGINT);
        for (;;) ::pause();
      }),
      SIGINT);
}

TEST(SignalThread, ActsByDefaultUntilStopWith) {
  EXPECT_SIGNALLED(status_of([] {
                     SignalThread signals;
                     ::kill(::getpid(), SIGHUP);
                     for (;;) ::pause();
                   }),
                   SIGHUP);
  EXPECT_SIGNALLED(status_of([] {
                     SignalThread signals;
                     ::kill(::getpid(), SIGUSR2);  // without a handler
                     for (;;) ::pause();
                   }),
                   SIGUSR2);
}

TEST(SignalThread, LeavesIgnoredWhatWasIgnored) {
  EXPECT_DONE(status_of([] {
    std::signal(SIGHUP, SIG_IGN);  // nohup
    static std::atomic<bool> stop{false};
    SignalThread signals;
    signals.stop_with(stop);
    ::kill(::getpid(), SIGHUP);
    ::kill(::getpid(), SIGHUP);
    std::this_thread::sleep_for(milliseconds(20));
    exit_unless(!stop);
  }));
}

TEST(SignalThread, RunsTheHandlersOfOthers) {
  EXPECT_DONE(status_of([] {
    static std::atomic<pid_t> handler{0};
    std::signal(SIGPROF, [](int) { handler = ::gettid(); });
    SignalThread signals;
    ::kill(::getpid(), SIGPROF);
    while (handler == 0) std::this_thread::sleep_for(milliseconds(1));
    exit_unless(handler != ::gettid());
  }));
}

TEST(SignalThread, EndsAndGivesBackTheMask) {
  EXPECT_DONE(status_of([] {
    for (int i = 0; i < 20; ++i) {
      const SignalThread signals;
    }
    exit_unless(!is_blocked(SIGINT));
  }));
}

}  // namespace
}  // namespace warpstep
