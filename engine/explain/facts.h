// The numbers in the listings of a program; explain.cpp prints them, explain_json.cpp exports them.
#pragma once

#include <array>
#include <string_view>
#include <vector>

#include "engine/passes/compile.h"
#include "engine/run/program.h"

namespace warpstep {

// The parts of a step in its listings; backward is both data and weight gradients.
constexpr std::array<std::string_view, 4> step_parts{"forward", "loss", "backward", "update"};
std::string_view step_part(Phase phase);

struct CallTotals {
  std::size_t calls = 0;
  double flops = 0, bytes = 0;
};
// Of the calls in one part of the step, or of all calls.
CallTotals call_totals(const Program& program, std::string_view part = {});

double arithmetic_intensity(double flops, double bytes);  // FLOP per byte; 0 if nothing is moved

struct ParameterElements {
  std::int64_t tensors = 0, count = 0;
};
ParameterElements parameter_elements(const Graph& graph);

// The number of a node's call in the listing, from 1; a view has the number of the call before it.
std::size_t call_number(const Program& program, int node);

// Bytes of the arena that are in use during each call.
std::vector<std::size_t> live_bytes(const Program& program);

// Memory outside the arena, in bytes of this backend.
struct PersistentBytes {
  std::size_t parameters = 0, copies = 0, gradients = 0, sums = 0, moments = 0, averages = 0,
              inputs = 0, resident = 0;  // sums: of gradients, where several steps make an update
  std::size_t bytes() const {
    return parameters + copies + gradients + sums + moments + averages + inputs + resident;
  }
};
PersistentBytes persistent_bytes(const Program& program);

// Calls of a step and the bytes they move, without reorders, which backends add.
struct StepCost {
  std::ptrdiff_t calls = 0;
  double bytes = 0;
};
struct FusionGain {
  std::string_view row;  // of fusion_table()
  StepCost without;      // the step without this row only
};
struct FusionGains {
  StepCost unfused, fused;
  std::vector<FusionGain> rows;  // those that change something
};
FusionGains fusion_gains(const Graph& model, StepOptions options);

}  // namespace warpstep
