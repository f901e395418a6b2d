#include "engine/core/thread.h"

#include <system_error>
#include <utility>

#include "engine/core/error.h"
#include "engine/core/record.h"
#include "engine/core/signals.h"

namespace warpstep {

std::thread start_thread(const std::string& name, std::function<void()> work) {
  // A new thread has its maker's mask: one that it set itself would come too late.
  const SignalsBlocked blocked;
  try {
    return std::thread([name, work = std::move(work)] {
      record::name_thread(name);
      work();
    });
  } catch (const std::system_error& error) {
    fail<Error>(
        "the thread '{}' cannot be started: {}; the limits are those of processes (ulimit -u), of "
        "memory (ulimit -v) and of the container (pids.max)",
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

}  // namespace warpstep
