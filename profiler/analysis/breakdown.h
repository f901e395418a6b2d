// Where each step's time went. The parts of a step always add up to it.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "profiler/analysis/intervals.h"
#include "profiler/analysis/scope.h"
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
  // It was ready to run and had no core. No span shows when: the kernel counts it per step. It is
  // taken out of what the thread did awake, in proportion, then out of its waits.
  core_wait,
  other,  // none of these: idle, launch gaps
};
inline constexpr std::size_t categories = 10;
std::string_view name(Category category);   // "kernel", "copy", ..., as CSV has it
std::string_view title(Category category);  // "Kernel", "Memcpy", ...: torch_tb_profiler's

using Parts = std::array<std::uint64_t, categories>;  // ns by Category

// The parts of each step, which are disjoint intervals in order: sum(parts) == end - begin,
// exactly.
std::vector<Parts> sweep(std::span<const Interval> steps,
                         const std::array<std::vector<Interval>, categories>& by_category);

// Moves `ns` of what the trainer's thread did into core_wait; the sum stays. Kernels are its work
// where the host computes; there exchanges between ranks keep their share of the waits.
void take_core_wait(Parts& parts, std::uint64_t ns, bool computes_on_host);

struct StepParts {
  std::uint64_t step = 0;
  Interval time;
  Parts parts{};
  bool from_spans =
      false;  // else from the totals that every step records: kernel, copy, data, cpu, other
};

struct Breakdown {
  std::vector<StepParts> steps;           // all of the session's, in order
  std::array<double, categories> mean{};  // ns per step, over `counted` steps
  double step_ns = 0;                     // mean; the sum of `mean`
  // Steps that the means are over: View::counted.
  std::size_t counted = 0;
  bool from_spans = false;     // whether these had spans; on a device, activities
  bool tb_compatible = false;  // by the rules of torch_tb_profiler
};
Breakdown break_down(const View& view, const ReportRules& options = {});

// Which category every span and activity of a session belongs to.

using ByCategory = std::array<std::vector<Interval>, categories>;

ByCategory by_category(const View& view, const ReportRules& options);

// Whether a kernel or a call moves data between ranks: the names of NCCL's, and of the calls of a
// step that exchange.
bool is_communication(std::string_view kernel);
// Where the host computes: what calls wait for other ranks inside, which is no time of their own.
IntervalSet exchanges_in_calls(const View& view);

// The steps with the bounds of torch_tb_profiler (event_parser.py): a step lasts until the work
// that it launched is done, and the next one begins then.
struct TbSteps {
  std::vector<Interval> times;  // of the recorded steps
  std::vector<bool> is_kept;    // false: a step at the end that is cut off, by its device work
};
TbSteps tb_steps(const View& view);

}  // namespace warpstep::profiler
