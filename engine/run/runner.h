// Runners execute a program's step: as fast as possible, or with checks. All enqueue the same flat
// list of calls.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "engine/core/thread.h"
#include "engine/run/program.h"

namespace warpstep {

// Notified of each call while a step runs; the profiler implements it. Times are CLOCK_MONOTONIC.
class CallObserver {
 public:
  virtual ~CallObserver();
  virtual void on_call(const Call& call, std::int64_t begin_ns, std::int64_t end_ns) = 0;
};

// The state of a thread while it enqueues the calls of a step: signals are blocked until the step's
// end (core/thread.h), and the backend's floating-point mode is set.
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
  explicit Runner(Program& program) : program_(program) {}
  virtual ~Runner();
  // Enqueues the whole step on the program's inputs, in a StepScope. UsageError where an input was
  // never given, or the program has no arena.
  void step();
  // Enqueues one step after the other, in one StepScope. The program keeps the last variant.
  void steps(std::span<const StepVariant> variants);

 protected:
  Program& program_;

 private:
  virtual void run() = 0;
  virtual void run_all(std::span<const StepVariant> variants);
};

// Enqueues one call after the other, each with its own span for profilers; with an observer it
// waits for each call and times it.
std::unique_ptr<Runner> eager_runner(Program& program, CallObserver* observer = nullptr);

// Runs the whole step, or all of steps(), in one launch: captures it once for each set of input
// slots, or sequence of variants, and replays it. The first step runs eagerly, so that nothing is
// loaded or initialised inside a capture. Of a source that gives other addresses in every step only
// the first most_recordings are captured; what has no recording runs eagerly, on backends that
// cannot record every step.
constexpr std::size_t most_recordings = 256;
std::unique_ptr<Runner> graph_runner(Program& program);

// The kinds of numbers among a value's elements.
struct NumberKinds {
  std::int64_t count = 0, nan = 0, plus_infinity = 0, minus_infinity = 0;
  float largest = 0;  // magnitude of the finite ones

  bool finite() const { return nan + plus_infinity + minus_infinity == 0; }
};
NumberKinds number_kinds(std::span<const float> values);
// "3 NaN, 1 +inf and 0 -inf of 512 elements, the largest finite magnitude is 2.5e+38"
std::string text(const NumberKinds& kinds);

// Finds the first call whose result is not finite. Like eager, but waits for every call and reads
// back all floating-point numbers that it wrote, also in place (OpTraits::changes); parameters,
// their moments and averages, buffers and floating-point inputs are checked before the first call.
// Throws NumericError at the first number that is not finite. It names the step (or the batch of an
// evaluation), the call with its phase and model line, the value and its numbers, and whether the
// call's inputs were finite: whether the call produced the number or received it.
//
// With loss scaling (fp16), overflowing gradients are no error while the loss scale can still fall:
// the step skips its update. Values that do not depend on the loss scale are always checked.
std::unique_ptr<Runner> numerics_runner(Program& program);

}  // namespace warpstep
