#include "profiler/analysis/ranks.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numbers>
#include <span>

#include "engine/core/error.h"
#include "engine/core/text.h"
#include "profiler/analysis/compare_statistics.h"
#include "profiler/analysis/scope.h"
#include "profiler/analysis/tables.h"

namespace warpstep::profiler {
namespace {

constexpr std::uint64_t long_enough_for_drift_ns = 1'000'000'000;

std::int64_t offset(const PeerClock& look) {
  return static_cast<std::int64_t>(look.peer_ns - look.at_ns);
}

// Each with a shorter round trip than all before it, in this order: one that is both closer to the
// middle and longer makes no better line.
std::vector<PeerClock> falling(const std::vector<PeerClock>& looks) {
  std::vector<PeerClock> kept;
  for (const PeerClock& look : looks)
    if (kept.empty() || look.round_trip_ns < kept.back().round_trip_ns) kept.push_back(look);
  return kept;
}

// Of the line through both looks, each of which is off by at most half its round trip.
double error_at(std::uint64_t ns, const PeerClock& early, const PeerClock& late) {
  const auto at = [&](std::uint64_t to) {
    return static_cast<double>(static_cast<std::int64_t>(to - early.at_ns));
  };
  const double along = at(ns) / at(late.at_ns);
  return std::abs(1 - along) * static_cast<double>(early.round_trip_ns) / 2 +
         std::abs(along) * static_cast<double>(late.round_trip_ns) / 2;
}

// The line that is least far off at the worst of these times, the ends of the session.
RankClockMap from_looks(const std::vector<PeerClock>& looks, std::uint64_t begin_ns,
                        std::uint64_t end_ns) {
  const std::vector<PeerClock> early = falling(looks),
                               late = falling({looks.rbegin(), looks.rend()});
  RankClockMap map{.offset_ns = offset(early.back()),
                   .at_ns = early.back().at_ns,
                   .error_ns = early.back().round_trip_ns / 2,
                   .how = fmt::format("{} at rank 0's clock", counted(looks.size(), "look"))};
  double least = std::numeric_limits<double>::infinity();
  for (const PeerClock& a : early)
    for (const PeerClock& b : late) {
      if (b.at_ns < a.at_ns + long_enough_for_drift_ns) continue;
      const double error = std::max(error_at(begin_ns, a, b), error_at(end_ns, a, b));
      if (error >= least) continue;
      least = error;
      map.offset_ns = offset(a);
      map.at_ns = a.at_ns;
      map.drift =
          static_cast<double>(offset(b) - offset(a)) / static_cast<double>(b.at_ns - a.at_ns);
      map.error_ns = static_cast<std::uint64_t>(std::ceil(error));
    }
  return map;
}

std::string machine(const Session& session) {
  return fields::text(session.stamp, "boot");
}

}  // namespace

std::uint64_t RankClockMap::operator()(std::uint64_t ns) const {
  const double since =
      ns >= at_ns ? static_cast<double>(ns - at_ns) : -static_cast<double>(at_ns - ns);
  return ns + static_cast<std::uint64_t>(offset_ns + std::llround(drift * since));
}

RankClockMap clock_map(const Session& session, const Session& first) {
  if (&session == &first) return {.error_ns = 0, .how = "rank 0's own"};
  if (!machine(session).empty() && machine(session) == machine(first))
    return {.error_ns = 0, .how = "the same machine's clock"};
  if (const std::vector<PeerClock>& looks = session.peer_clocks; !looks.empty()) {
    const auto first_and_last = [&](std::uint64_t begin_ns, std::uint64_t end_ns) {
      return from_looks(looks, std::min(begin_ns, looks.front().at_ns),
                        std::max(end_ns, looks.back().at_ns));
    };
    return session.steps.empty()
               ? first_and_last(looks.front().at_ns, looks.back().at_ns)
               : first_and_last(session.steps.front().begin_ns, session.steps.back().end_ns);
  }
  if (session.clocks.empty() || first.clocks.empty())
    fail<DataError>(
        "a session has neither rank 0's clock nor the wall clock: record the ranks with "
        "--profile-rank RANK@HOST:PORT");
  const ClockReading &ours = session.clocks.front(), &theirs = first.clocks.front();
  const auto to_real = [](const ClockReading& r) {
    return static_cast<std::int64_t>(r.realtime_ns - r.monotonic_ns);
  };
  return {.offset_ns = to_real(ours) - to_real(theirs),
          .at_ns = ours.monotonic_ns,
          .how = "wall clocks, as exact as NTP keeps them"};
}

void move_to_clock(Session& session, const RankClockMap& map, const Session& first) {
  const auto move = [&map](auto&... times) { ((times = map(times)), ...); };
  // The parts of a step are a clock's differences: what drift adds to it, or takes, is in `other`,
  // or in its longest part.
  for (Step& step : session.steps) {
    const std::uint64_t before = step.end_ns - step.begin_ns;
    move(step.begin_ns, step.end_ns);
    const auto change = static_cast<std::int64_t>(step.end_ns - step.begin_ns - before);
    std::uint64_t* const parts[] = {&step.other_ns, &step.cpu_ns, &step.kernels_ns, &step.data_ns,
                                    &step.copies_ns};
    std::uint64_t* const longest =
        *std::max_element(std::begin(parts), std::end(parts),
                          [](const std::uint64_t* a, const std::uint64_t* b) { return *a < *b; });
    *longest += static_cast<std::uint64_t>(change);
  }
  for (Window& window : session.windows) move(window.begin_ns, window.end_ns);
  for (Span& span : session.spans) move(span.begin_ns, span.end_ns);
  for (Activity& activity : session.activities)
    if (activity.start_ns != 0 && activity.end_ns != 0) move(activity.start_ns, activity.end_ns);
  for (Sample& sample : session.samples) move(sample.at_ns);
  session.clocks = first.clocks;
}

std::string text_of(const SlowRank& slow) {
  return fmt::format(
      "slower than the median of the others in {} of {} steps, by {} of its {} (medians, "
      "communication left out), most of it {}",
      slow.above, slow.compared, shown(Cell(slow.excess_ns), Unit::ns),
      shown(Cell(slow.own_ns), Unit::ns), name(slow.part));
}

namespace {

// Less than this share of a step is no straggling, but noise.
constexpr double least_wait_share = 0.02;
// How often a rank that is like the others may be blamed, and how often any of such a job may be.
constexpr double most_chance = 0.005, most_chance_of_job = 0.05;

// The probability that a fair coin falls so in `count` of `all` throws or more.
double chance_of(std::size_t count, std::size_t all) {
  double sum = 0;
  for (std::size_t k = count; k <= all; ++k)
    sum += std::exp(std::lgamma(static_cast<double>(all) + 1) -
                    std::lgamma(static_cast<double>(k) + 1) -
                    std::lgamma(static_cast<double>(all - k) + 1) -
                    static_cast<double>(all) * std::numbers::ln2);
  return std::min(1.0, sum);
}

// A step as one rank had it.
struct Place {
  std::uint64_t end_ns = 0;  // of rank 0's clock
  std::uint64_t own_ns = 0;
  Parts parts{};
  bool from_spans = false;  // only these know their communication
};
using Places = std::map<std::uint64_t, Place>;  // by step

std::uint64_t part(const Parts& parts, Category category) {
  return parts[static_cast<std::size_t>(category)];
}

Places places(const Session& session, const RankClockMap& map) {
  Places of;
  for (const StepParts& step : break_down(session).steps)
    of[step.step] = {
        map(step.time.end_ns),
        step.time.end_ns - step.time.begin_ns - part(step.parts, Category::communication),
        step.parts, step.from_spans};
  return of;
}

std::vector<std::uint64_t> common_steps(std::span<const Places> ranks) {
  std::vector<std::uint64_t> steps, with_spans;
  for (const auto& [step, place] : ranks.front()) {
    if (!std::all_of(ranks.begin(), ranks.end(),
                     [step = step](const Places& of) { return of.contains(step); }))
      continue;
    steps.push_back(step);
    if (std::all_of(ranks.begin(), ranks.end(),
                    [step = step](const Places& of) { return of.at(step).from_spans; }))
      with_spans.push_back(step);
  }
  if (with_spans.size() > 2) steps = std::move(with_spans);
  if (steps.size() < 2)
    fail<DataError>("these sessions have {} in common: they are not of one job",
                    counted(steps.size(), "step"));
  steps.erase(steps.begin());  // which starts things up
  return steps;
}

// What a rank's step is more than the median of the others' same step.
template <class Of>
double excess(std::span<const Places> ranks, std::uint64_t step, std::size_t rank, Of of) {
  std::vector<double> others;
  for (std::size_t i = 0; i < ranks.size(); ++i)
    if (i != rank) others.push_back(static_cast<double>(of(ranks[i].at(step))));
  return static_cast<double>(of(ranks[rank].at(step))) - median(std::move(others));
}

double own_excess(std::span<const Places> ranks, std::uint64_t step, std::size_t rank) {
  return excess(ranks, step, rank, [](const Place& place) { return place.own_ns; });
}

// Of each part but communication, summed over steps.
std::array<double, categories> excess_by_part(std::span<const Places> ranks,
                                              std::span<const std::uint64_t> steps,
                                              std::size_t rank) {
  std::array<double, categories> sums{};
  for (std::size_t c = 0; c < categories; ++c)
    if (static_cast<Category>(c) != Category::communication)
      for (const std::uint64_t step : steps)
        sums[c] += excess(ranks, step, rank, [c](const Place& place) { return place.parts[c]; });
  return sums;
}

Straggle straggle(std::span<const Places> ranks, std::uint64_t step, std::size_t slowest) {
  const auto parts = excess_by_part(ranks, std::span(&step, 1), slowest);
  const auto most = std::max_element(parts.begin(), parts.end());
  return {.step = step,
          .rank = static_cast<std::uint32_t>(slowest),
          .own_ns = ranks[slowest].at(step).own_ns,
          .excess_ns = own_excess(ranks, step, slowest),
          .part = static_cast<Category>(most - parts.begin()),
          .part_excess_ns = *most};
}

std::optional<SlowRank> slow_rank(const RanksView& view, std::span<const Places> ranks,
                                  std::span<const std::uint64_t> steps) {
  const auto worst = std::max_element(
      view.ranks.begin(), view.ranks.end(),
      [](const RankRow& a, const RankRow& b) { return a.excess_ns < b.excess_ns; });
  const auto index = static_cast<std::size_t>(worst - view.ranks.begin());
  const auto above =
      static_cast<std::size_t>(std::count_if(steps.begin(), steps.end(), [&](std::uint64_t step) {
        return own_excess(ranks, step, index) > 0;
      }));
  // A rank that is like the others is above their median in half of the steps; the worst of many is
  // so more often.
  const double most = std::min(most_chance, most_chance_of_job / static_cast<double>(ranks.size()));
  const bool is_chance = chance_of(above, steps.size()) > most;
  if (is_chance || worst->excess_ns < least_wait_share * worst->own_ns) return std::nullopt;
  const auto parts = excess_by_part(ranks, steps, index);
  const auto longest = std::max_element(parts.begin(), parts.end()) - parts.begin();
  return SlowRank{.rank = worst->rank,
                  .host = worst->host,
                  .own_ns = worst->own_ns,
                  .excess_ns = worst->excess_ns,
                  .above = above,
                  .compared = steps.size(),
                  .part = static_cast<Category>(longest)};
}

std::string verdict(const RanksView& view, std::size_t steps) {
  if (!view.slow)
    return fmt::format(
        "No rank keeps the others waiting: over {} steps none is slower than the others by {:.0f} "
        "% of a step more often than by chance.",
        steps, 100 * least_wait_share);
  return fmt::format("Rank {} ({}) keeps the others waiting: it is {}.", view.slow->rank,
                     view.slow->host, text_of(*view.slow));
}

// Communication of a recorded step that kernels or copies hide.
double hidden_ns(const View& view) {
  if (view.recorded.size() == 0) return 0;
  const ByCategory all = by_category(view, {});
  const auto of = [&](Category category) {
    return merged(all[static_cast<std::size_t>(category)]);
  };
  std::vector<Interval> beside = of(Category::kernel);
  for (const Category category : {Category::copy, Category::memset})
    for (const Interval& one : of(category)) beside.push_back(one);
  const std::vector<Interval> within =
      intersection(view.recorded.times(), of(Category::communication));
  return static_cast<double>(total_ns(intersection(within, merged(std::move(beside))))) /
         static_cast<double>(view.recorded.size());
}

// Durations by step of what a session records of exchanges, by name.
using Exchanges = std::map<std::string, std::map<std::uint64_t, double>>;

Exchanges exchanges_of(const Session& session) {
  const View view(session);
  Exchanges found;
  const auto add = [&](const std::string& name, std::uint64_t begin_ns, std::uint64_t end_ns) {
    if (const int at = view.recorded.at(begin_ns); at >= 0)
      found[name][session.steps[view.recorded.step(static_cast<std::size_t>(at))].step] +=
          static_cast<double>(end_ns - begin_ns);
  };
  for (const Span& span : session.spans)
    if (const std::string& name = session.name(span.name); is_communication(name))
      if (session.computes_on_host()) add(name, span.begin_ns, span.end_ns);
  for (const Activity& activity : session.activities)
    if (activity.what == What::kernel && is_communication(session.name(activity.name)))
      add("NCCL", activity.start_ns, activity.end_ns);
  return found;
}

// Of a call, by the name of its spans.
struct Given {
  double bytes = 0;  // that a rank gives: a sum's cost is twice that
  double times = 1;  // that they are sent in a ring
};

Given given(const View& view, const std::string& name) {
  for (const ProgramCall& call : view.program)
    if (call.title == name || name.ends_with("/" + call.title)) {
      if (call.op != "all_reduce") return {call.bytes, 1};
      // Sums of which each rank gets its share are not sent a second time, to all.
      return {call.bytes / 2, call.attributes.ends_with("each its share") ? 1.0 : 2.0};
    }
  return {};
}

// The job's, of which some may not be compared.
std::size_t ranks_of_job(std::span<const Session> sessions) {
  const auto stamped = fields::whole(sessions.front().stamp, "ranks", 1);
  return std::max(sessions.size(), static_cast<std::size_t>(std::max<std::int64_t>(1, stamped)));
}

std::vector<ExchangeRow> exchange_rows(std::span<const Session> sessions) {
  std::vector<Exchanges> ranks;
  for (const Session& session : sessions) ranks.push_back(exchanges_of(session));
  const View first(sessions.front());
  const double n = static_cast<double>(ranks_of_job(sessions));
  std::vector<ExchangeRow> rows;
  for (const auto& [name, steps] : ranks.front()) {
    const auto [bytes, times] = given(first, name);
    ExchangeRow row{.name = name, .bytes = bytes};
    std::vector<double> shortest;
    double sum = 0;
    for (const auto& [step, ns] : steps) {
      double least = ns, all = 0;
      std::size_t count = 0;
      for (const Exchanges& rank : ranks)
        if (const auto of = rank.find(name); of != rank.end())
          if (const auto at = of->second.find(step); at != of->second.end()) {
            least = std::min(least, at->second);
            all += at->second;
            ++count;
          }
      if (count < ranks.size()) continue;
      shortest.push_back(least);
      sum += all / static_cast<double>(count);
    }
    if (shortest.empty()) continue;
    row.mean_ns = sum / static_cast<double>(shortest.size());
    row.transfer_ns = median(std::move(shortest));
    if (row.transfer_ns > 0)
      row.bytes_per_second = times * (n - 1) / n * row.bytes / (1e-9 * row.transfer_ns);
    rows.push_back(std::move(row));
  }
  return rows;
}

RankRow row(const Session& session, std::size_t index) {
  return {.rank = static_cast<std::uint32_t>(
              fields::whole(session.stamp, "rank", static_cast<std::int64_t>(index))),
          .host = fields::text(fields::child(session.stamp, "host"), "name", "host")};
}

}  // namespace

void sort_by_rank(std::vector<Session>& sessions) {
  if (sessions.size() < 2)
    fail<DataError>("ranks are compared with each other: give the runs of at least two");
  const auto rank = [](const Session& session) { return fields::whole(session.stamp, "rank", -1); };
  const auto known = std::count_if(sessions.begin(), sessions.end(),
                                   [&](const Session& session) { return rank(session) >= 0; });
  if (known == 0) return;
  if (static_cast<std::size_t>(known) != sessions.size())
    fail<DataError>(
        "{} of {} sessions record their rank, the others do not: record all with "
        "--profile-rank RANK@HOST:PORT",
        known, sessions.size());
  std::stable_sort(sessions.begin(), sessions.end(),
                   [&](const Session& a, const Session& b) { return rank(a) < rank(b); });
  for (std::size_t i = 1; i < sessions.size(); ++i)
    if (rank(sessions[i]) == rank(sessions[i - 1]))
      fail<DataError>("two of the sessions are rank {}'s: give each rank's run once",
                      rank(sessions[i]));
  // What the others know of each other's clocks is what each knows of rank 0's.
  if (rank(sessions.front()) != 0)
    fail<DataError>("rank 0's run is missing: the others' clocks are set by its own");
}

RanksView rank_view(std::span<const Session> sessions) {
  RanksView view;
  std::vector<Places> ranks;
  for (const Session& session : sessions) {
    view.ranks.push_back(row(session, ranks.size()));
    view.ranks.back().clock = clock_map(session, sessions.front());
    view.ranks.back().hidden_ns = hidden_ns(session);
    ranks.push_back(places(session, view.ranks.back().clock));
  }
  const std::vector<std::uint64_t> steps = common_steps(ranks);
  // Without spans a step of a job has its waits for the other ranks in its own time.
  const std::size_t of_job = ranks_of_job(sessions);
  const bool hides_waits = fields::whole(sessions.front().stamp, "ranks", 1) > 1 &&
                           std::ranges::any_of(steps, [&](std::uint64_t step) {
                             return std::ranges::any_of(
                                 ranks, [&](const Places& of) { return !of.at(step).from_spans; });
                           });
  std::vector<std::vector<double>> own(ranks.size()), more(ranks.size()), behind(ranks.size());
  for (const std::uint64_t step : steps) {
    std::uint64_t first_end = UINT64_MAX;
    std::size_t slowest = 0;
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      const Place& place = ranks[i].at(step);
      first_end = std::min(first_end, place.end_ns);
      if (place.own_ns > ranks[slowest].at(step).own_ns) slowest = i;
    }
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      const Place& place = ranks[i].at(step);
      own[i].push_back(static_cast<double>(place.own_ns));
      more[i].push_back(own_excess(ranks, step, i));
      behind[i].push_back(static_cast<double>(place.end_ns - first_end));
      for (std::size_t c = 0; c < categories; ++c) view.ranks[i].mean[c] += place.parts[c];
    }
    ++view.ranks[slowest].slowest;
    if (!hides_waits) view.straggles.push_back(straggle(ranks, step, slowest));
  }
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    view.ranks[i].own_ns = median(std::move(own[i]));
    view.ranks[i].excess_ns = median(std::move(more[i]));
    view.ranks[i].behind_ns = median(std::move(behind[i]));
    for (std::uint64_t& ns : view.ranks[i].mean) ns /= steps.size();
  }
  view.exchanges = exchange_rows(sessions);
  if (!hides_waits) view.slow = slow_rank(view, ranks, steps);
  view.verdict = verdict(view, steps.size());
  if (hides_waits) {
    const bool on_host = sessions.front().computes_on_host();
    view.verdict = fmt::format(
        "Who keeps the others waiting is not known: without {} a step's time contains its waits "
        "for "
        "other ranks; record the job with --profile {}.",
        on_host ? "spans" : "kernels", on_host ? "spans" : "deep");
  }
  if (of_job > sessions.size())
    view.verdict += fmt::format(" These are {} of {} ranks.", sessions.size(), of_job);
  for (Straggle& one : view.straggles) one.rank = view.ranks[one.rank].rank;
  return view;
}

Table ranks_table(const RanksView& view) {
  Table table{"ranks",
              "Ranks",
              "Over the steps that all ranks have, except the first; a step's time is without its "
              "communication, in which ranks wait for each other.",
              {{"rank", "rank"},
               {"host", "host"},
               {"slowest_steps", "slowest in", Unit::count},
               {"own_ns", "step", Unit::ns},
               {"excess_ns", "more than others", Unit::ns},
               {"behind_ns", "ends later by", Unit::ns}},
              {}};
  for (std::size_t c = 0; c < categories; ++c) {
    const std::string key(name(static_cast<Category>(c)));
    table.columns.push_back({key + "_ns", key, Unit::ns});
  }
  table.columns.push_back({"hidden_ns", "hidden comm.", Unit::ns});
  table.columns.push_back({"clock_offset_ns", "clock off by", Unit::ns});
  table.columns.push_back({"clock_error_ns", "within", Unit::ns});
  table.columns.push_back({"clock", "clock from"});
  for (const RankRow& rank : view.ranks) {
    std::vector<Cell> row{
        std::int64_t{rank.rank}, rank.host,     cell(std::uint64_t{rank.slowest}), rank.own_ns,
        rank.excess_ns,          rank.behind_ns};
    for (const std::uint64_t ns : rank.mean) row.emplace_back(static_cast<double>(ns));
    row.emplace_back(rank.hidden_ns);
    row.emplace_back(static_cast<double>(rank.clock.offset_ns));
    row.emplace_back();
    if (rank.clock.error_ns) row.back() = static_cast<double>(*rank.clock.error_ns);
    row.emplace_back(rank.clock.how);
    table.rows.push_back(std::move(row));
  }
  return table;
}

Table exchanges_table(const RanksView& view) {
  Table table{"exchanges",
              "Exchanges",
              "Of a step. The transfer is the shortest of all ranks in the same step: the last to "
              "arrive does not wait. The bandwidth is what a rank sends meanwhile in a ring.",
              {{"name", "call"},
               {"bytes", "of a rank", Unit::bytes},
               {"mean_ns", "with waits", Unit::ns},
               {"transfer_ns", "transfer", Unit::ns},
               {"bytes_per_second", "bandwidth", Unit::per_second_bytes}},
              {}};
  for (const ExchangeRow& row : view.exchanges) {
    table.rows.push_back({row.name, row.bytes, row.mean_ns, row.transfer_ns, row.bytes_per_second});
    if (row.bytes == 0) table.rows.back()[1] = table.rows.back()[4] = {};
  }
  return table;
}

Table straggles_table(const RanksView& view) {
  std::vector<Straggle> sorted = view.straggles;
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const Straggle& a, const Straggle& b) { return a.excess_ns > b.excess_ns; });
  Table table{"stragglers",
              "Stragglers",
              "Each step's slowest rank, what it took more than the median of the others, and the "
              "part of the step that is most of that.",
              {{"step", "step"},
               {"rank", "rank"},
               {"own_ns", "took", Unit::ns},
               {"excess_ns", "more than others", Unit::ns},
               {"part", "most of it"},
               {"part_excess_ns", "of which", Unit::ns}},
              {}};
  for (const Straggle& one : sorted)
    table.rows.push_back({cell(one.step), std::int64_t{one.rank}, cell(one.own_ns), one.excess_ns,
                          std::string(name(one.part)), one.part_excess_ns});
  return table;
}

}  // namespace warpstep::profiler
