// The first call of a step whose result is not finite, by name: for finding a fault.
#pragma once

#include "engine/runner.h"

namespace warpstep {

// What kinds of numbers there are among a value's elements.
struct NumberKinds {
  std::int64_t count = 0, nan = 0, plus_infinity = 0, minus_infinity = 0;
  float largest = 0;  // magnitude of those that are finite

  bool finite() const { return nan + plus_infinity + minus_infinity == 0; }
};
NumberKinds number_kinds(std::span<const float> values);
// "3 NaN, 1 +inf and 0 -inf of 512 elements, the largest finite magnitude is 2.5e+38"
std::string text(const NumberKinds& kinds);

// Like eager, but waits for every call and reads back all floating-point numbers that it wrote,
// those of a parameter that was updated too; parameters, moments and floating-point inputs are
// looked at before the first call. Throws NumericError at the first number that is not finite. It
// names the step (or the batch of an evaluation), the call with its phase and model line, the value
// and what is in it, and whether the call's inputs were finite, so that one knows whether the call
// made it or was given it.
//
// With loss scaling (fp16), gradients that overflow are not an error while the loss scale may still
// fall: the step makes no update. What does not depend on the loss scale is always checked.
std::unique_ptr<Runner> numerics_runner(Program& program);

}  // namespace warpstep
