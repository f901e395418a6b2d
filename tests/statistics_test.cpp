// Statistics of blocks, on each backend: sums against the numbers that the host reads before and
// after, and steps that measure change nothing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "engine/core/error.h"
#include "engine/passes/statistics.h"
#include "engine/run/runner.h"
#include "engine/run/trainer.h"
#include "tests/small_graphs.h"
#include "tests/stepping.h"
#include "tests/tested_backend.h"

namespace warpstep {
namespace {

using testing_support::language;
using testing_support::open_tested_backend;
using testing_support::residual;
using testing_support::Stepping;
using testing_support::tested_backend;

struct Setup {
  std::string_view name;
  Graph (*model)();
  StepOptions step = {};
};

Optimizer optimizer(Optimizer::Kind kind, double momentum = 0, double decay = 0) {
  Optimizer o;
  o.kind = kind;
  o.momentum = momentum;
  o.weight_decay = decay;
  return o;
}

Optimizer decoupled() {
  Optimizer o = optimizer(Optimizer::Kind::adamw, 0, 0.1);
  o.decays_vectors = false;
  return o;
}

Graph small_language() {
  return language();
}
Graph small_residual() {
  return residual({.batch = 2, .size = 16});
}

StepOptions options(const Optimizer& optimizer, const UpdateOptions& update = {}) {
  StepOptions step{.optimizer = optimizer, .update = update};
  step.schedule.peak = 0.01;
  return step;
}

std::vector<Setup> setups() {
  std::vector<Setup> all{
      {"adamw", small_language, options(decoupled())},
      {"clipped", small_language, options(decoupled(), {.clip_norm = 0.01})},
      {"momentum", small_residual, options(optimizer(Optimizer::Kind::sgd, 0.9, 0.1))},
      {"sgd", small_residual, options(optimizer(Optimizer::Kind::sgd))},
      {"rmsprop", small_residual, options(optimizer(Optimizer::Kind::rmsprop, 0.9))},
      {"lars", small_residual, options(optimizer(Optimizer::Kind::lars, 0.9, 0.1))}};
  for (const Precision precision : testing_support::tested_16_bits()) {
    all.push_back({name(precision), small_language, options(decoupled())});
    all.back().step.precision = precision;
  }
  return all;
}

// Of some values, in double.
struct Reading {
  double sum = 0, squares = 0, largest = 0, nonzero = 0;

  explicit Reading(const std::vector<float>& values) {
    for (const float value : values) {
      const auto x = static_cast<double>(value);
      sum += x;
      squares += x * x;
      largest = std::max(largest, std::abs(x));
      nonzero += x != 0 ? 1 : 0;
    }
  }
};

class Statistics : public testing::TestWithParam<Setup> {
 protected:
  void SetUp() override {
    try {
      // Two runs are compared bit for bit: only algorithms with a fixed order of additions.
      backend_ = open_tested_backend(tested_backend(), {.deterministic = true});
    } catch (const DeviceError& error) {
      if (tested_backend() != "cuda") throw;
      GTEST_SKIP() << error.what();
    }
    const std::string missing = testing_support::why_not(*backend_, GetParam().step.precision);
    if (!missing.empty()) GTEST_SKIP() << missing;
  }

  Graph step(bool statistics) const {
    StepOptions step = GetParam().step;
    step.statistics = statistics;
    return compile_step(GetParam().model(), options_for(*backend_, step));
  }

  std::shared_ptr<Backend> backend_;
};
INSTANTIATE_TEST_SUITE_P(Each, Statistics, testing::ValuesIn(setups()),
                         [](const auto& setup) { return std::string(setup.param.name); });

// Outputs right after the call that measures them, as their memory is used again; gradients right
// before the call that measures them.
TEST_P(Statistics, AreThoseOfTheNumbers) {
  Stepping stepping(step(true), backend_);
  Program& program = stepping.program;
  const Graph& graph = program.graph();
  program.store().initialize(3);
  program.measure(true);
  constexpr double unit = 1e-5;  // of sums of some thousand f32 numbers in any order
  for (const std::uint64_t at : {1, 2}) {
    stepping.load(at);
    const std::vector<std::vector<float>> before = stepping.parameters();
    std::map<std::string, Reading> outputs;
    std::map<std::string, double> gradients, parameters, updates;
    for (std::size_t call = 0; call < program.calls().size(); ++call) {
      const Node& node = graph.nodes[idx(program.calls()[call].node)];
      if (std::holds_alternative<UpdateStatistics>(node.op)) {
        const Reading gradient(program.read(node.in[3]));
        const double scale = static_cast<double>(program.store().step_state().loss_scale);
        gradients[graph.blocks[idx(std::get<UpdateStatistics>(node.op).block)].name] +=
            gradient.squares / scale / scale;
      }
      program.enqueue(call);
      if (std::holds_alternative<ActivationStatistics>(node.op))
        outputs.emplace(node.scope, program.read(node.in[2]));
    }
    const std::vector<std::vector<float>> after = stepping.parameters();
    for (std::size_t p = 0; p < after.size(); ++p) {
      const std::string block(block_name(graph.parameters[p].name));
      std::vector<float> change(after[p]);
      for (std::size_t i = 0; i < change.size(); ++i) change[i] -= before[p][i];
      parameters[block] += Reading(before[p]).squares;
      updates[block] += Reading(change).squares;
    }
    ASSERT_GE(graph.blocks.size(), 4U);
    for (const BlockStatistics& block :
         block_statistics(program, program.store().step_state().step)) {
      SCOPED_TRACE(block.name);
      if (const auto found = gradients.find(block.name); found != gradients.end()) {
        EXPECT_GT(block.update_norm, 0);
        EXPECT_NEAR(block.gradient_norm, std::sqrt(found->second), unit * block.gradient_norm);
        EXPECT_NEAR(block.parameter_norm, std::sqrt(parameters[block.name]),
                    unit * block.parameter_norm);
        EXPECT_NEAR(block.update_norm, std::sqrt(updates[block.name]), 1e-4 * block.update_norm);
      } else {
        EXPECT_TRUE(std::isnan(block.update_norm));
      }
      if (const auto found = outputs.find(block.name); found != outputs.end()) {
        const int id = std::ranges::find(graph.blocks, block.name, &Block::name)->output;
        const auto count = static_cast<double>(graph.value(id).type.shape.count());
        const Reading& output = found->second;
        EXPECT_GT(block.rms, 0);
        EXPECT_NEAR(block.rms, std::sqrt(output.squares / count), unit * block.rms);
        EXPECT_NEAR(block.mean, output.sum / count, unit * block.rms);
        EXPECT_NEAR(block.largest, output.largest, unit * block.largest);
        EXPECT_NEAR(block.zeros, 1 - output.nonzero / count, 1e-12);
      } else {
        EXPECT_TRUE(std::isnan(block.rms));
      }
    }
  }
}

// Neither the calls that measure nor their places in the memory plan change a bit, and a step that
// does not measure does not run them. Graphs are recorded with and without them.
TEST_P(Statistics, ChangeNothing) {
  std::vector<std::vector<float>> results;
  for (const bool statistics : {false, true}) {
    Stepping stepping(step(statistics), backend_);
    stepping.program.store().initialize(3);
    const auto runner = graph_runner(stepping.program);
    std::vector<double> seen;
    for (std::uint64_t at = 1; at <= 5; ++at) {
      stepping.load(at);
      stepping.program.measure(statistics && at % 2 == 0);
      runner->step();
      stepping.program.wait();
      if (statistics)
        seen.push_back(block_statistics(stepping.program, static_cast<std::int64_t>(at))[0].rms);
    }
    results.push_back(testing_support::all_numbers(stepping));
    if (!statistics) continue;
    EXPECT_THAT(seen, testing::ElementsAre(0, testing::Gt(0), 0, testing::Gt(0), 0));
  }
  EXPECT_EQ(results[0], results[1]);
}

}  // namespace
}  // namespace warpstep
