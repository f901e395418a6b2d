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
// parameters) in lockstep and compares every value that both compute, and those that updates
// change. What was compared is copied to the reference: each call is judged by what it makes of
// operands that both have. Throws NumericError naming the first call whose result differs by more
// than tolerance(). UsageError for two different steps.
class CheckRunner : public Runner {
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
      if (program_.runs(ours)) {
        after(ours);
        compare(program_.calls()[ours], mine, node(reference_, theirs));
      }
      ++theirs;
    }
  }

 protected:
  // A call is done and was not yet compared; for tests of the comparison.
  virtual void after(std::size_t /*call*/) {}

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

  void compare(const Call& call, const Node& mine, const Node& theirs) {
    const Graph& graph = program_.graph();
    for (std::size_t i = 0; i < mine.out.size(); ++i) {
      const Value& value = graph.value(mine.out[i]);
      if (!program_.address(mine.out[i])) continue;
      if (is_float(value.type.dtype)) {
        compare_floats(call, mine, mine.out[i], theirs.out[i]);
      } else if (value.role == Role::index) {
        compare_indices(call, mine.out[i], theirs.out[i]);
      } else {
        continue;
      }
      copy(mine.out[i], theirs.out[i]);
    }
    for (std::size_t i = 0; i < mine.in.size(); ++i) {
      const Value& value = graph.value(mine.in[i]);
      if (!is_float(value.type.dtype) || !changes(mine.op, value.role)) continue;
      compare_floats(call, mine, mine.in[i], theirs.in[i]);
      copy(mine.in[i], theirs.in[i]);
    }
  }

  void compare_floats(const Call& call, const Node& node, int mine, int theirs) {
    const Value& value = program_.graph().value(mine);
    const double difference = relative_difference(program_.read(mine), reference_.read(theirs));
    const double limit =
        tolerance(value.type.dtype, call.cost.depth, rounded_between(program_.graph(), node)) +
        library_error;
    if (difference <= limit) return;
    fail<NumericError>(
        "{} ({} of {}): {} differs from {} by {:.2e} of its size; at most {:.2e} is acceptable",
        call.title, call.kernel->implementation(), program_.backend().name(), value.name,
        reference_.backend().name(), difference, limit);
  }

  // Of a pool: the place of a maximum is another where two sums nearly tie, in a few of 1,000
  // windows.
  void compare_indices(const Call& call, int mine, int theirs) {
    const std::vector<std::byte> a = plain(program_, mine), b = plain(reference_, theirs);
    std::size_t other = 0;
    for (std::size_t i = 0; i < a.size(); ++i) other += a[i] != b[i];
    if (other > a.size() / 100)
      fail<NumericError>("{} ({} of {}): {} of {} bytes of {} differ", call.title,
                         call.kernel->implementation(), program_.backend().name(), other, a.size(),
                         program_.graph().value(mine).name);
  }

  void copy(int mine, int theirs) {
    const std::vector<std::byte> values = plain(program_, mine);
    reference_.backend().write(reference_.graph().value(theirs), reference_.address(theirs),
                               values);
  }

  static std::vector<std::byte> plain(const Program& program, int id) {
    program.wait();
    const Value& value = program.graph().value(id);
    const std::size_t element =
        is_float(value.type.dtype) ? sizeof(float) : size_bytes(value.type.dtype);
    std::vector<std::byte> values(idx(value.type.shape.count()) * element);
    program.backend().read(value, program.address(id), values);
    return values;
  }

  Program& reference_;
};

inline std::unique_ptr<Runner> poisoning_runner(Program& program) {
  return std::make_unique<PoisoningRunner>(program);
}

inline std::unique_ptr<Runner> check_runner(Program& program, Program& reference) {
  return std::make_unique<CheckRunner>(program, reference);
}

}  // namespace warpstep::testing_support
