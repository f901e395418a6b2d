// Threads beside the one that trains.
#pragma once

#include <functional>
#include <string>
#include <thread>

namespace warpstep {

// Starts `work`, which must not throw, in a thread that handles no asynchronous signal (signals.h).
// `name` is what a profile calls it. Throws Error when the system gives no thread.
std::thread start_thread(const std::string& name, std::function<void()> work);

}  // namespace warpstep
