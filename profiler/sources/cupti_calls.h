// Which of a program's calls a thread enqueues now, as record::Span tells it.
#pragma once

#include <cstdint>

#include "profiler/sources/cupti_api.h"

namespace warpstep::profiler::calls {

// 1 + the call's index; 0: none.
std::uint64_t current() noexcept;

// From now on spans of Kind::call are followed; false: record has no room for another listener.
bool follow(const CuptiApi& api);  // which must stay until ignore()
void ignore();

// Whether CUPTI is told, by external correlation ids: in windows.
void tell_cupti(bool on);

}  // namespace warpstep::profiler::calls
