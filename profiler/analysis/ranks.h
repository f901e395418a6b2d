// Compares the processes of one job: which of them the others wait for, and why.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "profiler/analysis/breakdown.h"
#include "profiler/analysis/table.h"
#include "profiler/session/session.h"

namespace warpstep::profiler {

// From a session's clock to rank 0's: ns -> ns + offset_ns + drift * (ns - at_ns).
struct RankClockMap {
  std::int64_t offset_ns = 0;
  double drift = 0;         // ns per ns
  std::uint64_t at_ns = 0;  // of the session's clock
  // At most this far off, in all of the session where clocks drift evenly; none: not known.
  std::optional<std::uint64_t> error_ns;
  std::string how;  // "12 looks at rank 0's clock", "the same machine's clock", "wall clocks"

  std::uint64_t operator()(std::uint64_t ns) const;
};

// From the clock of `session` to the one of rank 0's, `first`: they are the same on one machine.
// Else by the looks that it took at rank 0's clock (the line through those two that leave the least
// error at the session's ends), else by the wall clocks of both, which are as exact as NTP keeps
// them. Throws DataError when there are none.
RankClockMap clock_map(const Session& session, const Session& first);

// All of the session's times by rank 0's clock; its wall clock is rank 0's too.
void move_to_clock(Session& session, const RankClockMap& map, const Session& first);

struct RankRow {
  std::uint32_t rank = 0;
  std::string host;
  RankClockMap clock;
  // Over the steps that all ranks have, but the first, and only those with spans where some have:
  double own_ns = 0;        // median of a step without its communication, in which ranks wait
  double excess_ns = 0;     // median of what that is more than the median of the others' same step
  double behind_ns = 0;     // median of the time after the first rank's end of the same step
  Parts mean{};             // ns of a step by Category; `communication` is what nothing hides
  double hidden_ns = 0;     // of a step: communication beside kernels and copies
  std::size_t slowest = 0;  // steps in which it took the longest
};

// What the ranks exchange in a step by one call, as the spans of all have it; on a GPU all of
// NCCL's kernels together.
struct ExchangeRow {
  std::string name;    // "bucket0/all_reduce"
  double bytes = 0;    // of a rank; 0: not known
  double mean_ns = 0;  // of a rank's step, with the wait for the slowest
  double transfer_ns =
      0;  // median over steps of the shortest of all ranks: the last waits for none
  // What a rank sends meanwhile, in a ring: 2 (n - 1) / n of a sum's bytes, half of that of others.
  double bytes_per_second = 0;
};

// A step of the rank that took the longest in it.
struct Straggle {
  std::uint64_t step = 0;
  std::uint32_t rank = 0;
  std::uint64_t own_ns = 0;  // without communication
  double excess_ns = 0;      // more than the median of the other ranks
  Category part{};           // that is most of it
  double part_excess_ns = 0;
};

// The one that the others wait for.
struct SlowRank {
  std::uint32_t rank = 0;
  std::string host;
  double own_ns = 0, excess_ns = 0;     // as its row has them
  std::size_t above = 0, compared = 0;  // slower than the others' median in so many of so many
  Category part{};                      // that is most of the excess
};

struct RanksView {
  std::vector<RankRow> ranks;       // by rank
  std::vector<Straggle> straggles;  // one per step, in order
  std::vector<ExchangeRow> exchanges;
  std::optional<SlowRank> slow;  // none where the differences are small, or may be chance
  std::string verdict;           // a sentence or two
};

// Sessions by rank as the stamp records ("rank", of train --profile-rank), or in the order given
// where none does. Throws DataError for fewer than two sessions, for duplicate ranks, where only
// some record theirs, or rank 0's is missing.
void sort_by_rank(std::vector<Session>& sessions);
// Of sorted sessions, each by its own clock. Throws DataError where they have no two steps in
// common.
RanksView rank_view(std::span<const Session> sessions);

// "slower than the median of the others in 40 of 48 steps, by 1.2 ms of its 3.4 ms (medians,
// communication left out), most of it kernel".
std::string text_of(const SlowRank& slow);

Table ranks_table(const RanksView& view);
Table exchanges_table(const RanksView& view);
Table straggles_table(const RanksView& view);  // the largest excess first

}  // namespace warpstep::profiler
