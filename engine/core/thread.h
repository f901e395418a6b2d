// Threads beside the one that trains.
#pragma once

#include <functional>
#include <string>
#include <thread>

namespace warpstep {

// Starts `work`, which must not throw, in a thread that handles no asynchronous signal (signals.h).
// `name` is what a profile calls it. Throws Error when the system gives no thread.
std::thread start_thread(const std::string& name, std::function<void()> work);

// The same for a thread that its owner can do without: empty, or why `thread` was not started.
std::string try_start_thread(std::thread& thread, const std::string& name,
                             std::function<void()> work);

}  // namespace warpstep
