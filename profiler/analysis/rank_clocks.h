// One clock for the sessions of a job's processes: rank 0's.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "profiler/session/session.h"

namespace warpstep::profiler {

// From a session's clock to rank 0's: ns -> ns + offset_ns + drift * (ns - at_ns).
struct RankClockMap {
  std::int64_t offset_ns = 0;
  double drift = 0;         // ns a ns
  std::uint64_t at_ns = 0;  // of the session's clock
  // At most this far off, between the looks that it was made from; none: not known.
  std::optional<std::uint64_t> error_ns;
  std::string how;  // "12 looks at rank 0's clock", "the same machine's clock", "wall clocks"

  std::uint64_t operator()(std::uint64_t ns) const;
};

// From the clock of `session` to the one of rank 0's, `first`: they are the same on one machine.
// Else by the looks that it took at rank 0's clock (the line through the best of the first and of
// the second half of them), else by the wall clocks of both, which are as exact as NTP keeps them.
// Throws DataError when there are none.
RankClockMap clock_map(const Session& session, const Session& first);

// All of the session's times by rank 0's clock; its wall clock is rank 0's too.
void move_to_clock(Session& session, const RankClockMap& map, const Session& first);

}  // namespace warpstep::profiler
