// Models that nobody designed, on a backend (tests/tested_backend.h): call by call against the
// reference, the same bits from run to run, with every dead buffer poisoned, and with
// recomputation.
#include <gtest/gtest.h>

#include "tests/random_models.h"
#include "tests/runners.h"
#include "tests/tested_backend.h"

namespace warpstep {
namespace {

using testing_support::all_numbers;
using testing_support::Cancelling;
using testing_support::random_step;
using testing_support::RandomModel;
using testing_support::tests_cuda;

class RandomModelOn : public testing::Test {
 protected:
  // Each seed in each precision. A model takes a second on the emulated device, some hundredths on
  // the CPU.
  template <class Test>
  void for_each_model(Test test) {
    std::vector<Precision> precisions = testing_support::tested_16_bits();
    precisions.push_back(Precision::fp32);
    for (const Precision precision : precisions)
      for (std::uint32_t seed = 0; seed < (tests_cuda() ? 6 : 60); ++seed) {
        SCOPED_TRACE(fmt::format("seed {}, {}", seed, name(precision)));
        StepOptions options;
        options.precision = precision;
        options.schedule.peak = 1e-4;
        options.optimizer.kind = seed % 2 == 0 ? Optimizer::Kind::sgd : Optimizer::Kind::adamw;
        options.update.accumulate = seed % 3 == 0 ? 2 : 1;
        test(RandomModel(seed, Cancelling::none).build(), options_for(*backend_, options));
      }
  }
  // With a loss scale with which no gradient of these models overflows.
  static Graph compiled(const Graph& graph, const StepOptions& options) {
    Graph step = compile_step(graph, options);
    for (Node& node : step.nodes)
      if (auto* clock = std::get_if<Clock>(&node.op)) clock->scaling.initial = 64;
    return step;
  }
  template <class MakeRunner>
  std::vector<float> after_steps(const Graph& step, MakeRunner make) const {
    const auto stepping = random_step(step, backend_);
    const auto runner = make(stepping->program);
    for (std::uint64_t i = 0; i < 3; ++i) {
      stepping->load(i, i == 2);
      runner->step();
      stepping->program.wait();
    }
    return all_numbers(*stepping);
  }

  // The CPU's or the emulated device's, which every build with these tests has.
  std::shared_ptr<Backend> backend_ = testing_support::open_tested_backend(
      testing_support::tested_backend(), {.deterministic = tests_cuda()});
};

TEST_F(RandomModelOn, AgreesWithTheReferenceCallByCall) {
  for_each_model([&](const Graph& graph, const StepOptions& options) {
    const Graph step = compiled(graph, options);
    const auto ours = random_step(step, backend_), theirs = random_step(step, open_backend("ref"));
    const auto check = testing_support::check_runner(ours->program, theirs->program);
    for (std::uint64_t i = 0; i < 2; ++i) {
      ours->load(i, i == 1);
      theirs->load(i, i == 1);
      EXPECT_NO_THROW(check->step()) << "step " << i;
    }
  });
}

TEST_F(RandomModelOn, GivesTheSameBitsInEveryWay) {
  const auto eager = [](Program& program) { return eager_runner(program); };
  for_each_model([&](const Graph& graph, const StepOptions& options) {
    const Graph step = compiled(graph, options);
    const std::vector<float> first = after_steps(step, eager);
    EXPECT_EQ(first, after_steps(step, testing_support::poisoning_runner));
    EXPECT_EQ(first, after_steps(step, graph_runner));
    // Rows of fusions that a backend computes may decline where a value is made again.
    StepOptions plain = options;
    plain.computes = {};
    StepOptions again = plain;
    again.recompute = testing_support::scopes_of(graph);
    EXPECT_EQ(after_steps(compiled(graph, plain), eager),
              after_steps(compiled(graph, again), testing_support::poisoning_runner));
  });
}

}  // namespace
}  // namespace warpstep
