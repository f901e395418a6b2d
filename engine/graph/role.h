// The roles of values.
#pragma once

#include <cstdint>

namespace warpstep {

// What a value is for; decides where it lives.
enum class Role : std::uint8_t {
  input,     // a slot of the loader: images, labels
  resident,  // likewise, but in the device's memory already: a data set that was uploaded once, or
             // a buffer that another thread fills
  activation,  // made and used inside a step, planned into the arena
  statistic,   // likewise, always f32 or i32: losses, counts
  index,       // likewise, integers: pooling positions
  mask,        // likewise, bits that only the backend that wrote them can read
  parameter,   // these persist from step to step, see engine/run/store.h
  buffer,      // f32 that steps may change but no gradient does: running statistics, class weights
  gradient,
  moment,
  copy,         // of a parameter, in the dtype that the step computes in; made by the optimiser
  accumulator,  // a gradient's sum over steps, f32
  average,      // of a parameter over the run, f32
  state,        // StepState
  report,       // the ring of StepReports, in the host's memory
  sums,         // the ring of BlockSums, likewise
};

struct RoleSet {
  std::uint32_t bits;
  constexpr bool contains(Role role) const { return ((bits >> static_cast<int>(role)) & 1) != 0; }
};
template <class... Roles>
consteval RoleSet roles(Roles... role) {
  return {(0U | ... | (1U << static_cast<int>(role)))};
}

}  // namespace warpstep
