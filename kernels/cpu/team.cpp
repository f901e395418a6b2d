#include "kernels/cpu/team.h"

#include <omp.h>
#include <pthread.h>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include <atomic>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "engine/core/cpus.h"
#include "engine/core/error.h"
#include "engine/core/record.h"
#include "engine/core/thread.h"

namespace warpstep::cpu {
namespace {

// How a thread computes with floats: in a step rounding to nearest, without traps, with denormals
// read and written as zeros, whatever the host program has set.
#if defined(__x86_64__)
constexpr unsigned flush_to_zero = 0x8000, denormals_are_zero = 0x0040, no_traps = 0x1F80;
constexpr unsigned step_mode = flush_to_zero | denormals_are_zero | no_traps;
unsigned float_mode() {
  return _mm_getcsr();
}
void set_float_mode(unsigned mode) {
  _mm_setcsr(mode);
}
#else
constexpr unsigned step_mode = 1U << 24;  // FPCR.FZ
unsigned float_mode() {
  return __builtin_aarch64_get_fpcr();
}
void set_float_mode(unsigned mode) {
  __builtin_aarch64_set_fpcr(mode);
}
#endif

// What a thread had before a step of its own.
struct Before {
  unsigned mode;  // float_mode()
  int threads;    // of its parallel loops
  int is_dynamic;
};
thread_local std::vector<Before> steps;  // that the thread is in, from the outermost on
thread_local int settled = 0;            // threads of its team, itself included; 0: never settled

// A loop with fewer threads ends the team's others, and a later one with more starts new ones. One
// with a single thread leaves the team alone.
bool is_settled(int threads) {
  return threads > 1 ? settled == threads : settled > 0;
}

void set_step_mode() {
  set_float_mode(step_mode);
}

// A forked process has libgomp's record of the calling thread's team, but not its other threads:
// the first loop would wait for them for ever. So a team ends before a fork, and both processes
// start new ones. Those of other threads do not matter: the forked process lacks these threads,
// too.
void end_team() {
  if (omp_pause_resource_all(omp_pause_soft) == 0) settled = 0;  // fails inside of a loop
}

[[maybe_unused]] const int ends_before_forks = pthread_atfork(end_team, nullptr, nullptr);

void require_threads(int wanted) {
  std::atomic<bool> released{false};
  std::vector<std::thread> threads;
  std::string why;
  try {
    while (static_cast<int>(threads.size()) < wanted - 1)
      threads.emplace_back([&] { released.wait(false); });
  } catch (const std::exception& error) {
    why = error.what();
  }
  released = true;
  released.notify_all();
  for (std::thread& thread : threads) thread.join();
  if (why.empty()) return;
  fail<DeviceError>(
      "cpu: cannot start more than {} of {} compute threads: {}; use fewer --threads, or raise the "
      "limit of processes (ulimit -u), of memory (ulimit -v) or of the container (pids.max)",
      threads.size() + 1, wanted, why);
}

}  // namespace

TeamSize::TeamSize(int threads) : before_(omp_get_max_threads()), was_dynamic_(omp_get_dynamic()) {
  omp_set_num_threads(threads);
  omp_set_dynamic(0);  // OMP_DYNAMIC: fewer while the machine is busy
}

TeamSize::~TeamSize() {
  omp_set_num_threads(before_);
  omp_set_dynamic(was_dynamic_);
}

void begin_step(int threads) {
  if (!is_settled(threads)) settle_team(threads);
  steps.push_back({float_mode(), omp_get_max_threads(), omp_get_dynamic()});
  set_step_mode();
  omp_set_num_threads(threads);
  omp_set_dynamic(0);
}

void end_step() {
  set_float_mode(steps.back().mode);
  omp_set_num_threads(steps.back().threads);
  omp_set_dynamic(steps.back().is_dynamic);
  steps.pop_back();
}

void settle_team(int threads) {
  const TeamSize size(threads);
  const SignalsBlocked blocked;  // new threads inherit it; existing ones set it below
  if (settled < threads) require_threads(threads);
  if (!is_settled(threads)) settled = threads;
#pragma omp parallel num_threads(threads)
  {
    const sigset_t signals = asynchronous_signals();
    const std::vector<int>& cpus = thread_places().team;
    const auto thread = static_cast<std::size_t>(omp_get_thread_num());
    if (thread < cpus.size()) run_on({&cpus[thread], 1});
    if (omp_get_thread_num() > 0) {
      thread_local const bool named = [] {
        record::name_thread("kernels " + std::to_string(omp_get_thread_num()));
        return true;
      }();
      static_cast<void>(named);
      pthread_sigmask(SIG_BLOCK, &signals, nullptr);
      set_step_mode();
    }
  }
}

}  // namespace warpstep::cpu
