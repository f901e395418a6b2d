// Ways to run a program's step. Each decorates the same flat list of calls.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "engine/core/thread.h"
#include "engine/run/program.h"

namespace warpstep {

// What a runner tells while a step runs; the profiler implements it. Times are CLOCK_MONOTONIC.
class CallObserver {
 public:
  virtual ~CallObserver();
  virtual void on_call(const Call& call, std::int64_t begin_ns, std::int64_t end_ns) = 0;
};

// What a thread holds while it enqueues the calls of a step: it handles no signal (core/signals.h),
// so that those that come wait for the step's end, and has the backend's floating-point mode.
class StepScope {
 public:
  explicit StepScope(const Backend& backend) : backend_(backend) { backend_.begin_step(); }
  ~StepScope() { backend_.end_step(); }
  StepScope(const StepScope&) = delete;
  StepScope& operator=(const StepScope&) = delete;

 private:
  SignalsBlocked blocked_;
  const Backend& backend_;
};

class Runner {
 public:
  explicit Runner(const Program& program) : backend_(program.backend()) {}
  virtual ~Runner();
  // Enqueues the whole step on the program's inputs, in a StepScope.
  void step();

 private:
  virtual void run() = 0;

  const Backend& backend_;
};

// Calls one after the other, each in a range of its own for profilers; with an observer each call
// is waited for and timed.
std::unique_ptr<Runner> eager_runner(Program& program, CallObserver* observer = nullptr);

// The whole step in one launch: captured once for each set of input slots, and replayed. The first
// step runs eagerly, so that nothing is loaded or initialised inside a capture. Backends that
// cannot record run every step eagerly.
std::unique_ptr<Runner> graph_runner(Program& program);

// Like eager, but fills every buffer with NaN patterns when its last reader is done.
std::unique_ptr<Runner> poisoning_runner(Program& program);

// Runs `program` and `reference` (the same step of another backend, on the same inputs and
// parameters) in lockstep and compares every value that both compute. Throws NumericError that
// names the first call whose result differs by more than c * eps * sqrt(depth), see tolerance().
std::unique_ptr<Runner> check_runner(Program& program, Program& reference);

// The largest sound difference of a result, relative to its root mean square: rounding errors of
// `depth` additions in `dtype` grow like sqrt(depth) eps; one constant for all ops.
double tolerance(DType dtype, double depth);

// Root mean square of a - b over the root mean square of b; 0 where both are zero, infinite where a
// is not finite.
double relative_difference(std::span<const float> a, std::span<const float> b);

// The first call of a step whose result is not finite, by name: for finding a fault.

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
