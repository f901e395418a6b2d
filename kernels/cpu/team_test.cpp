// The threads of steps on the CPU backend: their number, where they run, and their floating-point
// mode: denormals are zero in all threads that compute, and the thread that steps has its own mode
// afterwards.
#include <gtest/gtest.h>
#include <omp.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cfenv>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <limits>
#include <numeric>
#include <thread>
#include <vector>

#include "engine/core/cpus.h"
#include "engine/core/error.h"
#include "engine/graph/layers.h"
#include "engine/run/runner.h"
#include "kernels/cpu/team.h"

namespace warpstep {
namespace {

constexpr std::int64_t elements = 1 << 20;  // enough for every thread of a team
constexpr float denormal = std::numeric_limits<float>::min() / 4;

bool flushes() {
  const volatile float tiny = denormal;
  return tiny * 2.0F == 0.0F;
}

// A step that adds a vector to itself, in every thread of the team.
class Doubling {
 public:
  explicit Doubling(const std::shared_ptr<Backend>& backend, float value = 1)
      : values_(idx(elements), value),
        sum_(add(x_, x_)),
        program_(graph_, backend),
        runner_(eager_runner(program_)) {
    const std::array<const void*, 1> slots{values_.data()};
    program_.set_inputs(slots);
  }

  // The sum of what the step computes.
  float step() {
    runner_->step();
    const std::vector<float> sums = program_.read(sum_.id);
    return std::accumulate(sums.begin(), sums.end(), 0.0F);
  }

 private:
  std::vector<float> values_;
  Graph graph_;
  Tensor x_ = graph_.input("x", {DType::f32, {elements}});
  Tensor sum_;
  Program program_;
  std::unique_ptr<Runner> runner_;
};

TEST(FloatingPointMode, OfAStepFlushesDenormalsAndEndsWithIt) {
  Doubling doubling(open_backend("cpu"), denormal);
  ASSERT_FALSE(flushes());
  EXPECT_EQ(doubling.step(), 0.0F);
  EXPECT_FALSE(flushes()) << "the step's mode is left behind";
}

float a_third() {
  const volatile float one = 1, three = 3;
  return one / three;
}

// A host program may round downwards, for intervals, or trap what is inexact.
TEST(FloatingPointMode, OfAStepDoesNotDependOnTheHostProgram) {
  const float nearest = a_third();
  const auto backend = open_backend("cpu");
  std::thread([&] {
    std::fesetround(FE_DOWNWARD);
    EXPECT_LT(a_third(), nearest);
    {
      const StepScope step(*backend);
      EXPECT_EQ(a_third(), nearest);
    }
    EXPECT_LT(a_third(), nearest) << "the host's mode is lost";
    std::fesetround(FE_TONEAREST);
    ::feenableexcept(FE_INEXACT);
    {
      const StepScope step(*backend);
      EXPECT_EQ(a_third(), nearest) << "without SIGFPE";
    }
    ::fedisableexcept(FE_ALL_EXCEPT);
  }).join();
}

TEST(Team, OfABackendHasTheThreadsThatItWasOpenedWith) {
  const int before = omp_get_max_threads();
  const auto all = open_backend("cpu"), one = open_backend("cpu", {.threads = 1}),
             three = open_backend("cpu", {.threads = 3}), again = open_backend("cpu");
  EXPECT_TRUE(one->describe().ends_with(", 1 thread")) << one->describe();
  EXPECT_EQ(all->describe(), again->describe());
  const int limit = omp_get_thread_limit();
  {
    const StepScope outer(*three);
    EXPECT_EQ(omp_get_max_threads(), std::min(3, limit));
    {
      const StepScope inner(*one);
      EXPECT_EQ(omp_get_max_threads(), 1);
    }
    EXPECT_EQ(omp_get_max_threads(), std::min(3, limit));
  }
  EXPECT_EQ(omp_get_max_threads(), before) << "a backend's number is left behind";
}

int threads_of_this_process() {
  const std::filesystem::directory_iterator tasks("/proc/self/task");
  return static_cast<int>(std::distance(begin(tasks), end(tasks)));
}

TEST(Team, OfAStepInAnotherThreadHasNoMoreThreads) {
  for (const int threads : {1, 3}) {
    Doubling doubling(open_backend("cpu", {.threads = threads}));
    const int before = threads_of_this_process();
    int during = 0;
    std::thread([&] {
      EXPECT_EQ(doubling.step(), 2.0F * elements);
      during = threads_of_this_process();
    }).join();
    EXPECT_LE(during, before + threads) << "the thread and its team of " << threads;
  }
}

TEST(Team, HasAllItsThreadsWhateverOmpDynamicSays) {
  const auto backend = open_backend("cpu", {.threads = 2});
  std::thread([&] {
    omp_set_dynamic(1);
    {
      const StepScope step(*backend);
      EXPECT_EQ(omp_get_dynamic(), 0);
    }
    EXPECT_EQ(omp_get_dynamic(), 1) << "as before the step";
  }).join();
}

TEST(Team, RunsWhereItIsPlaced) {
  const CpuSet all = allowed_cpus();
  ASSERT_FALSE(all.empty());
  const auto backend = open_backend("cpu");
  std::size_t threads = 0;
  {
    const StepScope step(*backend);
    threads = static_cast<std::size_t>(omp_get_max_threads());
  }
  std::vector<int> team;  // the last CPU first; more threads than CPUs share them
  for (std::size_t i = 0; i < threads; ++i) team.push_back(all[all.size() - 1 - i % all.size()]);
  place_threads({.team = team, .others = all});
  const auto stream = backend->make_stream(Precedence::first);
  std::vector<CpuSet> found(threads);
  const StepScope step(*backend);
#pragma omp parallel
  {
    found[static_cast<std::size_t>(omp_get_thread_num())] = allowed_cpus();
    run_on(all);
  }
  place_threads({});
  for (std::size_t i = 0; i < threads; ++i) EXPECT_EQ(found[i], CpuSet{team[i]}) << i;
}

// Also after steps with fewer threads, for which OpenMP ends the others.
TEST(Team, OfAStepInAnotherThreadRunsWhereItIsPlaced) {
  const CpuSet all = allowed_cpus();
  const auto two = open_backend("cpu", {.threads = 2}), three = open_backend("cpu", {.threads = 3});
  std::vector<int> placed{all.back(), all.front(), all.back()};
  place_threads({.team = placed, .others = all});
  std::thread([&] {
    for (const auto& backend : {two, three, two, three}) {
      std::vector<CpuSet> found(3);
      const StepScope step(*backend);
#pragma omp parallel
      found[static_cast<std::size_t>(omp_get_thread_num())] = allowed_cpus();
      for (std::size_t i = 0; i < 3 && !found[i].empty(); ++i)
        EXPECT_EQ(found[i], CpuSet{placed[i]}) << i;
    }
  }).join();
  place_threads({});
}

// Instead of the end of the program, with which OpenMP answers.
TEST(Team, OfAnotherThreadIsRefusedWithAnError) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers need much address space";
#endif
  const int many = 16;  // more than the C library keeps stacks of ended threads for
  if (omp_get_thread_limit() < many) GTEST_SKIP() << "OMP_THREAD_LIMIT";
  const auto backend = open_backend("cpu", {.threads = many});
  std::thread([&] {
    rlimit before{};
    ASSERT_EQ(::getrlimit(RLIMIT_AS, &before), 0);
    rlim_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    const rlimit little{pages * static_cast<rlim_t>(::sysconf(_SC_PAGESIZE)) + (4U << 20),
                        before.rlim_max};  // less than a thread's stack
    ASSERT_EQ(::setrlimit(RLIMIT_AS, &little), 0);
    EXPECT_THROW(backend->begin_step(), DeviceError);
    ASSERT_EQ(::setrlimit(RLIMIT_AS, &before), 0);
    EXPECT_FALSE(flushes());
    EXPECT_NE(omp_get_max_threads(), many);
  }).join();
}

// Whether a forked process ends `work` within some seconds and without an error.
template <class Work>
bool succeeds_in_a_fork(Work work) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(work() ? 0 : 1);
  for (int tenths = 0; tenths < 200; ++tenths) {
    int status = 0;
    if (::waitpid(child, &status, WNOHANG) == child)
      return WIFEXITED(status) && WEXITSTATUS(status) == 0;
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  return false;
}

TEST(Team, OfAForkedProcessIsItsOwn) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "ThreadSanitizer lets no forked process start threads";
#endif
  const auto steps = [](Doubling& doubling) { return doubling.step() == 2.0F * elements; };
  for (const int threads : {1, 2, 3}) {
    Doubling doubling(open_backend("cpu", {.threads = threads}));
    ASSERT_TRUE(steps(doubling));
    EXPECT_TRUE(succeeds_in_a_fork([&] { return steps(doubling); })) << threads;
    EXPECT_TRUE(succeeds_in_a_fork([&] {
      Doubling own(open_backend("cpu", {.threads = threads}));
      return steps(own) && steps(doubling) && succeeds_in_a_fork([&] { return steps(own); });
    })) << threads;
    std::thread([&] {
      ASSERT_TRUE(steps(doubling));
      EXPECT_TRUE(succeeds_in_a_fork([&] { return steps(doubling); })) << threads;
    }).join();
    EXPECT_TRUE(steps(doubling)) << "in the forking process";
  }
}

// As before the fork: flushing denormals, where it is placed.
TEST(Team, IsSettledAgainAfterAFork) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "ThreadSanitizer lets no forked process start threads";
#endif
  const CpuSet all = allowed_cpus();
  const auto backend = open_backend("cpu", {.threads = 2});
  const auto is_placed = [&] {
    std::array<CpuSet, 2> found;
    const StepScope step(*backend);
#pragma omp parallel
    if (flushes()) found[static_cast<std::size_t>(omp_get_thread_num())] = allowed_cpus();
    return found[0] == CpuSet{all.back()} &&
           (found[1] == CpuSet{all.front()} || omp_get_thread_limit() == 1);
  };
  place_threads({.team = {all.back(), all.front()}, .others = all});
  std::thread([&] {
    EXPECT_TRUE(is_placed());
    EXPECT_TRUE(succeeds_in_a_fork(is_placed));
    EXPECT_TRUE(is_placed()) << "in the forking process";
  }).join();
  place_threads({});
}

TEST(SharedTasks, AreDoneOnceByAnyNumberOfThreads) {
  for (const int threads : {1, 2, 3, 70})  // more than there are shares
    for (const std::int64_t count : {0, 1, 2, 5, 1000}) {
      std::vector<std::atomic<int>> done(idx(count));
      cpu::SharedTasks tasks(count, threads);
      std::thread([&] {      // whose team ends with it
        omp_set_dynamic(0);  // OMP_DYNAMIC: fewer while the machine is busy
#pragma omp parallel num_threads(threads)
        tasks.take([&](std::int64_t task) { ++done[idx(task)]; });
      })
          .join();
      for (const std::atomic<int>& times : done) ASSERT_EQ(times, 1) << threads << ", " << count;
    }
}

TEST(SharedTasks, AreDoneInOrderOrFromTheEndOfEachShare) {
  using Order = cpu::SharedTasks::Order;
  const auto order_of = [](int threads, Order order) {
    std::vector<std::int64_t> done;
    cpu::SharedTasks(7, threads, order).take([&](std::int64_t task) { done.push_back(task); });
    return done;
  };
  EXPECT_EQ(order_of(1, Order::backwards), (std::vector<std::int64_t>{6, 5, 4, 3, 2, 1, 0}));
  // This thread alone does its share and then the other's.
  EXPECT_EQ(order_of(2, Order::forwards), (std::vector<std::int64_t>{0, 1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(order_of(2, Order::backwards), (std::vector<std::int64_t>{2, 1, 0, 6, 5, 4, 3}));
}

// Of a core that other programs use, for example. Outside of a parallel region every thread begins
// with the first share.
TEST(SharedTasks, OfAThreadThatIsHeldUpAreDoneByTheOthers) {
  constexpr std::int64_t count = 100;
  std::atomic<std::int64_t> done = 0, before = 0;  // before: the held-up task is over
  cpu::SharedTasks tasks(count, 2);
  const auto take = [&] {
    tasks.take([&](std::int64_t task) {
      const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
      while (task == 0 && done < count - 1 && std::chrono::steady_clock::now() < end)
        std::this_thread::yield();
      if (task == 0) before = done.load();
      ++done;
    });
  };
  std::thread other(take);
  take();
  other.join();
  EXPECT_EQ(before, count - 1);
}

}  // namespace
}  // namespace warpstep
