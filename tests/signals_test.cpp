// Signals that arrive while a step computes: no handler runs on a thread that computes. The program
// under test is like one that embeds the engine without special care.
#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>

#include "engine/core/thread.h"
#include "engine/run/runner.h"
#include "tests/stepping.h"

namespace warpstep {
namespace {

using testing_support::model_step;
using testing_support::Stepping;

std::atomic<pid_t> sending_thread{0};
std::atomic<bool> in_a_step{false};
std::atomic<int> handled{0}, handled_in_a_step{0}, handled_in_a_worker{0};

void note(int) {
  const pid_t thread = ::gettid();
  ++handled;
  if (thread == ::getpid() && in_a_step) ++handled_in_a_step;  // the main thread steps
  if (thread != ::getpid() && thread != sending_thread) ++handled_in_a_worker;
}

// A step is running between the end of its first call and the end of its last one.
class Steps : public CallObserver {
 public:
  explicit Steps(const Program& program) : last_(&program.calls().back()) {}
  void on_call(const Call& call, std::int64_t, std::int64_t) override {
    in_a_step = &call != last_;
  }

 private:
  const Call* last_;
};

// Sends SIGUSR1 to the process and to each of its threads in turn, until it ends.
class Flood {
 public:
  Flood() : thread_([this] { send(); }) {
    while (sending_thread == 0) std::this_thread::yield();
  }
  ~Flood() {
    stop_ = true;
    thread_.join();
  }
  int sent() const { return sent_; }

 private:
  void send() {
    sending_thread = ::gettid();
    while (!stop_) {
      ::kill(::getpid(), SIGUSR1);
      for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
        const pid_t thread = std::stoi(task.path().filename().string());
        if (thread != sending_thread && ::tgkill(::getpid(), thread, SIGUSR1) == 0) ++sent_;
      }
    }
  }

  std::atomic<bool> stop_{false};
  std::atomic<int> sent_{0};
  std::thread thread_;
};

class Handler {
 public:
  Handler() {
    struct sigaction action {};
    action.sa_handler = note;
    action.sa_flags = SA_RESTART;
    ::sigaction(SIGUSR1, &action, &before_);
  }
  ~Handler() { ::sigaction(SIGUSR1, &before_, nullptr); }

 private:
  struct sigaction before_ {};
};

void train(std::string_view model, int steps) {
  Stepping step(model_step(model, 16, options_for(*open_backend("cpu"), {})),
                open_backend("cpu", {.threads = 2}));
  step.program.store().initialize(1);
  Steps steps_seen(step.program);
  const auto runner = eager_runner(step.program, &steps_seen);
  for (int i = 0; i < steps; ++i) {
    step.load(static_cast<std::uint64_t>(i));
    runner->step();
  }
}

TEST(Signals, RunNoHandlerOnAThreadThatComputes) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "ThreadSanitizer runs handlers later than they are due";
#endif
#pragma omp parallel num_threads(2)  // threads with open signals, as in an embedding program
  in_a_step = false;
  train("cifar10cnn", 1);  // blocks them in OpenMP's threads
  const Handler handler;
  handled = handled_in_a_step = handled_in_a_worker = 0;
  {
    const Flood flood;
    train("cifar10cnn", 12);
    EXPECT_GT(flood.sent(), 1000) << "too few for a result";
  }
  EXPECT_GT(handled, 100) << "too few for a result";
  EXPECT_EQ(handled_in_a_step, 0) << "in the thread that steps";
  EXPECT_EQ(handled_in_a_worker, 0) << "in a thread of OpenMP";
}

TEST(Signals, AreAsBeforeWhenAStepIsDone) {
  sigset_t before, after;
  pthread_sigmask(SIG_SETMASK, nullptr, &before);
  train("mlp", 1);
  pthread_sigmask(SIG_SETMASK, nullptr, &after);
  for (int signal = 1; signal < NSIG; ++signal)
    EXPECT_EQ(sigismember(&before, signal), sigismember(&after, signal)) << signal;
}

}  // namespace
}  // namespace warpstep
