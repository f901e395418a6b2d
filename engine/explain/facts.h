// What the listings of a program, for people and for machines, are made of.
#pragma once

#include <array>
#include <string_view>
#include <vector>

#include "engine/run/program.h"

namespace warpstep::explained {

// What people call the parts of a step; backward is both data and weight gradients.
constexpr std::array<std::string_view, 4> parts{"forward", "loss", "backward", "update"};
std::string_view part(Phase phase);

struct Total {
  std::size_t calls = 0;
  double flops = 0, bytes = 0;
};
Total total(const Program& program, std::string_view part = {});  // of all calls without a name

double intensity(double flops, double bytes);  // FLOP a byte; 0 where nothing is moved

struct Elements {
  std::int64_t tensors = 0, count = 0;
};
Elements parameter_elements(const Graph& graph);

// The number that people know the call of a node by, counted from 1; a view goes by the call before
// it.
std::size_t call_number(const Program& program, int node);

// Bytes of the arena that are in use during each call.
std::vector<std::size_t> live_bytes(const Program& program);

// What lives outside the arena, in bytes of this backend.
struct Persistent {
  std::size_t parameters = 0, copies = 0, gradients = 0, moments = 0, inputs = 0, resident = 0;
  std::size_t bytes() const {
    return parameters + copies + gradients + moments + inputs + resident;
  }
};
Persistent persistent_bytes(const Program& program);

}  // namespace warpstep::explained
