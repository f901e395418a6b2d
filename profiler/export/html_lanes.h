// What each thread, stream and queue did in a recorded step, for the page.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "profiler/analysis/loading.h"
#include "profiler/session/session.h"

namespace warpstep::profiler::html {

constexpr std::size_t bars_a_lane = 500;     // of one step; neighbours are merged to stay below
constexpr std::size_t bars_a_page = 60'000;  // about 1.2 MB: later steps have no lanes

struct LaneBar {
  std::uint64_t begin_ns = 0, end_ns = 0;  // from the step's begin
  std::uint32_t name = 0;                  // into Lanes::names
  std::uint32_t css = 0;                   // into Lanes::classes
  std::uint32_t row = 0;                   // nested ones are below
};

struct LaneStep {
  std::uint64_t step = 0, length_ns = 0;
  std::vector<std::vector<LaneBar>> bars;                      // by lane
  std::vector<std::pair<std::uint64_t, std::uint64_t>> queue;  // ns from the begin, batches ready
};

struct Lanes {
  std::vector<std::string> lanes;    // "main", "loader 0", "stream 7"
  std::vector<std::uint32_t> rows;   // of each lane, at least 1
  std::vector<std::string> names;    // of bars
  std::vector<std::string> classes;  // that colour them
  std::vector<std::string> kinds;    // what a class stands for, for the legend
  std::vector<LaneStep> steps;       // those of the windows, in order
  std::uint64_t most_ready = 0;      // batches
  std::size_t left_out = 0;          // steps beyond the cap
};
Lanes find_lanes(const Session& session, const LoaderView& loader);

Json to_json(const Lanes& lanes);  // times in units of 100 ns
// The chart of one of the steps; the script draws the others in its place.
std::string lanes_chart(const Lanes& lanes, std::size_t step);

}  // namespace warpstep::profiler::html
