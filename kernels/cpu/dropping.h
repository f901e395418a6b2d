// What dropout keeps and drops: an element's random word depends on its place in the logical shape
// and on first_draw() alone. Bound by the arithmetic of the draws; 32 at once fill vector
// registers.
#pragma once

#include <cstdint>

#include "engine/graph/step_state.h"

namespace warpstep::cpu {

class Dropping {
 public:
  // Of a tensor of `count` elements.
  Dropping(double rate, std::uint32_t layer, std::int64_t count);

  // y = what dropout makes of x, elements [begin, end); both point to element 0. T: float or Bf16,
  // as they are stored.
  template <class T>
  void apply(const StepState& state, const T* x, T* y, std::int64_t begin, std::int64_t end) const;
  // The factors of elements [first, first + count): 0 where dropped, else 1 / (1 - rate). They are
  // written to `to`, which has room for count + slack, and begin at the address returned.
  const float* factors(const StepState& state, std::int64_t first, std::int64_t count,
                       float* to) const;
  static constexpr std::int64_t slack = 144;

 private:
  std::uint32_t layer_;
  std::int64_t count_;
  std::uint32_t threshold_;  // words whose upper 24 bits are below it drop their element
  float scale_;
};

}  // namespace warpstep::cpu
