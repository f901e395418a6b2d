#include "profiler/sources/quiet_thread.h"

#include <utility>

#include "engine/core/error.h"
#include "engine/core/thread.h"

namespace warpstep::profiler {

bool start_quiet_thread(std::thread& thread, const std::string& name, std::function<void()> work) {
  try {
    thread = start_thread(name, std::move(work));
    return true;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace warpstep::profiler
