#include "kernels/cpu/team.h"

#include <omp.h>
#include <pthread.h>
#include <xmmintrin.h>

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

constexpr unsigned flush_to_zero = 0x8000, denormals_are_zero = 0x0040;  // of MXCSR

// Per thread: the mode before the outermost of its steps, and how many steps it is in.
thread_local unsigned mode_before = 0;
thread_local int steps = 0;

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

void flush_denormals() {
  if (steps++ > 0) return;
  mode_before = _mm_getcsr();
  _mm_setcsr(mode_before | flush_to_zero | denormals_are_zero);
}

void restore_denormals() {
  if (--steps == 0) _mm_setcsr(mode_before);
}

void settle_team() {
  const SignalsBlocked blocked;  // new threads inherit it; existing ones set it below
  thread_local int settled = 0;
  const int wanted = omp_get_max_threads();
  if (settled < wanted) require_threads(wanted);
  settled = wanted;
#pragma omp parallel
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
      flush_denormals();
    }
  }
}

}  // namespace warpstep::cpu
