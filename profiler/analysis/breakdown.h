// Where each step's time went. The parts of a step always add up to it.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "profiler/session/session.h"

namespace warpstep::profiler {

// In order of priority: a moment that belongs to several belongs to the first.
enum class Category : std::uint8_t {
  kernel,
  copy,  // between host and device
  memset,
  communication,
  runtime,  // a host thread in the driver or runtime
  data,     // the trainer waits for the loader
  sync,     // it waits for the device
  cpu,      // it computes: layers' host code, observers
  other,    // none of these: idle, launch gaps
};
inline constexpr std::size_t categories = 9;
std::string_view name(Category category);   // "kernel", "copy", ..., as CSV has it
std::string_view title(Category category);  // "Kernel", "Memcpy", ..., as people read it

using Parts = std::array<std::uint64_t, categories>;  // ns by Category

struct Interval {
  std::uint64_t begin_ns = 0, end_ns = 0;
};

// Of intervals that may overlap in any way: sorted, merged, disjoint; empty ones left out.
std::vector<Interval> merged(std::vector<Interval> intervals);
std::uint64_t total_ns(std::span<const Interval> disjoint);
std::vector<Interval> intersection(std::span<const Interval> a, std::span<const Interval> b);
std::vector<Interval> difference(std::span<const Interval> a, std::span<const Interval> b);

// The parts of each step, which are disjoint intervals in order: sum(parts) == end - begin,
// exactly.
std::vector<Parts> sweep(std::span<const Interval> steps,
                         const std::array<std::vector<Interval>, categories>& by_category);

struct StepParts {
  std::uint64_t step = 0;
  Interval time;
  Parts parts{};
  bool from_spans = false;  // else from what every step tells: kernel, copy, data, cpu, other
};

struct BreakdownOptions {
  // The categories and rules of torch_tb_profiler, so that its figures can be compared: no sync
  // category, all threads count as CPU, device work after the step's end belongs to the step. Its
  // double counting is not repeated.
  bool tb_compatible = false;
};

struct Breakdown {
  std::vector<StepParts> steps;           // all of the session's, in order
  std::array<double, categories> mean{};  // ns a step, over `counted` steps
  double step_ns = 0;                     // mean; the sum of `mean`
  // Steps that the means are over: those of complete windows, and of these the ones told from spans
  // and activities if there are any; without windows all but the first.
  std::size_t counted = 0;
  bool from_spans = false;     // whether these had spans; on a device, activities
  bool tb_compatible = false;  // by the rules of torch_tb_profiler
};
Breakdown break_down(const Session& session, const BreakdownOptions& options = {});

}  // namespace warpstep::profiler

namespace warpstep::profiler::analysis {

// Which category every span and activity of a session belongs to.

using ByCategory = std::array<std::vector<Interval>, categories>;

ByCategory by_category(const Session& session, const BreakdownOptions& options);

// Whether a kernel moves data between devices: NCCL's are all called so.
bool is_communication(std::string_view kernel);

// The steps as torch_tb_profiler bounds them (event_parser.py): a step lasts until the work that it
// launched is done, and the next one begins then.
struct TbSteps {
  std::vector<Interval> times;  // of `steps`
  std::vector<bool> is_kept;    // false: a step at the end that is cut off, by its device work
};
TbSteps tb_steps(const Session& session, const std::vector<std::size_t>& steps);

// What a thread was doing at each moment: the innermost of its nested spans.

struct Slice {
  std::uint64_t begin_ns = 0, end_ns = 0;
  std::size_t item = 0;  // the innermost one
};

struct Nesting {
  std::vector<Slice> slices;         // disjoint, in order; together the union of the items
  std::vector<std::int64_t> parent;  // of each item; -1: none
};

// Items by begin, of equal begins the longer one first. Items that overlap without nesting, which
// one thread's do not, take from each other what the later one covers.
Nesting nest(const std::vector<Interval>& items);

}  // namespace warpstep::profiler::analysis
