// Runners with checks that only tests need.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "engine/core/error.h"
#include "engine/run/runner.h"
#include "tests/tolerance.h"

namespace warpstep::testing_support {

// Like eager, but fills every buffer with NaN patterns after its last reader.
class PoisoningRunner final : public Runner {
 public:
  explicit PoisoningRunner(Program& program) : Runner(program) {}

  void run() override {
    for (std::size_t i = 0; i < program_.calls().size(); ++i) {
      program_.enqueue(i);
      program_.wait();
      program_.poison_dead_buffers(i);
    }
  }
};

// Runs `program` and `reference` (the same step of another backend, on the same inputs and
// parameters) in lockstep and compares every value that both compute. Throws NumericError naming
// the first call whose result differs by more than tolerance(). UsageError for two different steps.
class CheckRunner final : public Runner {
 public:
  CheckRunner(Program& program, Program& reference) : Runner(program), reference_(reference) {
    const std::vector<std::string> mine = computed(program), theirs = computed(reference);
    const auto [here, there] =
        std::mismatch(mine.begin(), mine.end(), theirs.begin(), theirs.end());
    if (here == mine.end() && there == theirs.end()) return;
    fail<UsageError>(
        "cannot compare two programs call by call that are different steps: call {} is {} on {} "
        "and {} on {}; compile both with the same options",
        here - mine.begin() + 1, here == mine.end() ? "missing" : *here, program.backend().name(),
        there == theirs.end() ? "missing" : *there, reference.backend().name());
  }

  void run() override {
    std::size_t theirs = 0;
    for (std::size_t ours = 0; ours < program_.calls().size(); ++ours) {
      const Node& mine = node(program_, ours);
      program_.enqueue(ours);
      if (is_move(mine.op)) continue;
      while (is_move(node(reference_, theirs).op)) reference_.enqueue(theirs++);
      reference_.enqueue(theirs);
      compare(mine, node(reference_, theirs), program_.calls()[ours]);
      ++theirs;
    }
  }

 private:
  static const Node& node(const Program& program, std::size_t call) {
    return program.graph().nodes[idx(program.calls()[call].node)];
  }

  // Calls that a backend inserted into the step.
  static bool is_move(const AnyOp& op) { return kind(op) == OpKind::move; }

  // The step's own calls: "conv1/conv".
  static std::vector<std::string> computed(const Program& program) {
    std::vector<std::string> calls;
    for (std::size_t call = 0; call < program.calls().size(); ++call)
      if (const Node& one = node(program, call); !is_move(one.op)) calls.push_back(one.title());
    return calls;
  }

  void compare(const Node& mine, const Node& theirs, const Call& call) {
    for (std::size_t i = 0; i < mine.out.size(); ++i) {
      const Value& value = program_.graph().value(mine.out[i]);
      if (!is_float(value.type.dtype) || !program_.address(mine.out[i])) continue;
      total_depth_ += call.cost.depth;
      const double difference =
          relative_difference(program_.read(mine.out[i]), reference_.read(theirs.out[i]));
      if (epsilon(value.type.dtype) > epsilon(coarsest_)) coarsest_ = value.type.dtype;
      const double limit = tolerance(coarsest_, total_depth_);
      if (!(difference <= limit))
        fail<NumericError>(
            "{} ({} of {}): {} differs from {} by {:.2e} of its size; at most {:.2e} is acceptable",
            call.title, call.kernel->implementation(), program_.backend().name(), value.name,
            reference_.backend().name(), difference, limit);
    }
  }

  Program& reference_;
  double total_depth_ = 0;  // of all calls so far
  DType coarsest_ = DType::f32;
};

inline std::unique_ptr<Runner> poisoning_runner(Program& program) {
  return std::make_unique<PoisoningRunner>(program);
}

inline std::unique_ptr<Runner> check_runner(Program& program, Program& reference) {
  return std::make_unique<CheckRunner>(program, reference);
}

}  // namespace warpstep::testing_support
