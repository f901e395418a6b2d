#include "profiler/sources/quiet_thread.h"

#include <pthread.h>
#include <signal.h>

#include <system_error>
#include <utility>

#include "engine/core/record.h"

namespace warpstep::profiler {

bool start_quiet_thread(std::thread& thread, const std::string& name, std::function<void()> work) {
  sigset_t all, before;
  sigfillset(&all);
  // A new thread has its maker's mask: a mask set by the thread itself would come too late.
  pthread_sigmask(SIG_SETMASK, &all, &before);
  bool started = true;
  try {
    thread = std::thread([name, work = std::move(work)] {
      record::name_thread(name);
      work();
    });
  } catch (const std::system_error&) {
    started = false;
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return started;
}

}  // namespace warpstep::profiler
