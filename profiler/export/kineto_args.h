// The arguments of events in a Kineto trace, as members of a JSON object without braces.
#pragma once

#include <cstdint>
#include <string>

#include "profiler/session/session.h"

namespace warpstep::profiler {

// "Input Dims" and "Input type" of the program's call, in PyTorch's words; empty without them.
std::string call_args(const Session& session, std::uint64_t call);
// Of a kernel, copy or memset; without the stream, which is the track.
std::string work_args(const Session& session, const Activity& activity, std::uint64_t correlation);
// "batch" and "sample" by a loader's ticket.
std::string ticket_args(const Session& session, std::uint64_t ticket);
// "cbid" of the runtime's functions that launch, "" of others.
std::string callback_args(const std::string& function);

}  // namespace warpstep::profiler
