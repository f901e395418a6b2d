// TCP sockets that no peer can make wait.
#pragma once

#include <cstdint>
#include <string>

#include "profiler/recorder/trigger_socket.h"

namespace warpstep::profiler {

// Of the first of the host's addresses that can be had; none, and `why`, if it is none of them.
Descriptor connect_tcp(const std::string& host, const std::string& port, Deadline deadline,
                       int stop, std::string* why);
Descriptor listen_tcp(const std::string& host, const std::string& port, std::string* why);
Descriptor accept_tcp(const Descriptor& listener);

std::uint16_t port_of(const Descriptor& socket);  // its own

}  // namespace warpstep::profiler
