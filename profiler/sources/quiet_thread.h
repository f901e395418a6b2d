// Threads of the profiler beside those that train: no signal is handled in them.
#pragma once

#include <functional>
#include <string>
#include <thread>

namespace warpstep::profiler {

// Starts `work`, which must not throw, as `thread`. All signals are blocked in it, so that SIGINT
// and SIGTERM reach the program's own threads. False when the system gives no thread.
bool start_quiet_thread(std::thread& thread, const std::string& name, std::function<void()> work);

}  // namespace warpstep::profiler
