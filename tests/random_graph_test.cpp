// What the passes make of models that nobody designed, on the reference, in double: the gradients
// of the loss as finite differences have them, with and without fusions, and with recomputation.
#include <gtest/gtest.h>

#include <cmath>

#include "engine/run/runner.h"
#include "tests/random_models.h"

namespace warpstep {
namespace {

using testing_support::Cancelling;
using testing_support::random_step;
using testing_support::RandomModel;
using testing_support::Stepping;

class RandomGraph : public testing::Test {
 protected:
  using Numbers = std::vector<std::vector<double>>;

  static constexpr std::uint32_t models = 220;

  // Every row of the table, or none; the update leaves the parameters alone.
  static StepOptions options(bool fused) {
    StepOptions options;
    options.optimizer.kind = Optimizer::Kind::sgd;
    options.schedule.peak = 0;
    options.computes = [](const AnyOp&, const Types&) { return true; };
    for (const FusionRow& row : fusion_table())
      if (!fused) options.no_fuse.emplace(row.name);
    return options;
  }

  static std::span<double> numbers_of(const Program& program, int value) {
    return {static_cast<double*>(program.address(value)),
            idx(program.graph().value(value).type.shape.count())};
  }

  // The loss; with masks and dropouts as in the first step.
  static double loss_of(Stepping& step) {
    step.program.store().set_step_state({.seed = 1});
    eager_runner(step.program)->step();
    return numbers_of(step.program, step.program.graph().loss)[0];
  }

  static Numbers gradients_of(Stepping& step) {
    const Graph& graph = step.program.graph();
    step.load(1, graph.value(graph.logits).type.shape[0] > 1);  // one row of padding
    loss_of(step);
    Numbers all;
    for (const Parameter& parameter : graph.parameters) {
      const std::span<double> numbers = numbers_of(step.program, parameter.gradient);
      all.emplace_back(numbers.begin(), numbers.end());
    }
    return all;
  }

  // Of two results of the same sums in another order, relative to the largest number.
  static double distance(const Numbers& a, const Numbers& b) {
    double most = 0, largest = 0;
    for (std::size_t p = 0; p < a.size(); ++p)
      for (std::size_t i = 0; i < a[p].size(); ++i) {
        most = std::max(most, std::abs(a[p][i] - b[p][i]));
        largest = std::max(largest, std::abs(b[p][i]));
      }
    return most / largest;
  }

  const std::shared_ptr<Backend> ref_ = open_backend("ref");
};

TEST_F(RandomGraph, HasTheSameGradientsWithAndWithoutFusions) {
  for (std::uint32_t seed = 0; seed < models; ++seed) {
    const Graph graph = RandomModel(seed, Cancelling::any).build();
    const auto fused = random_step(compile_step(graph, options(true)), ref_),
               apart = random_step(compile_step(graph, options(false)), ref_);
    EXPECT_LT(distance(gradients_of(*fused), gradients_of(*apart)), 1e-10) << "seed " << seed;
    StepOptions again = options(true);
    again.recompute = testing_support::scopes_of(graph);
    const auto recomputed = random_step(compile_step(graph, again), ref_);
    EXPECT_LT(distance(gradients_of(*recomputed), gradients_of(*apart)), 1e-10) << "seed " << seed;
  }
}

// Without the rows that decline where a value is made again, recomputation changes no bit.
TEST_F(RandomGraph, HasTheSameBitsWithRecomputation) {
  for (std::uint32_t seed = 0; seed < models; ++seed) {
    const Graph graph = RandomModel(seed, Cancelling::any).build();
    StepOptions plain = options(true);
    plain.computes = {};
    StepOptions again = plain;
    again.recompute = testing_support::scopes_of(graph);
    const auto first = random_step(compile_step(graph, plain), ref_),
               second = random_step(compile_step(graph, again), ref_);
    EXPECT_EQ(gradients_of(*second), gradients_of(*first)) << "seed " << seed;
    EXPECT_EQ(all_numbers(*second), all_numbers(*first)) << "seed " << seed;
  }
}

// The slope along one direction of all parameters. Of a smaller step a kink of a relu or a pool is
// less likely to be inside.
TEST_F(RandomGraph, HasTheGradientOfItsLoss) {
  for (std::uint32_t seed = 0; seed < models / 2; ++seed) {
    const auto step = random_step(
        compile_step(RandomModel(seed, Cancelling::any).build(), options(seed % 2 == 0)), ref_);
    const Numbers gradients = gradients_of(*step);
    const std::vector<Parameter>& parameters = step->program.graph().parameters;
    Numbers values, direction(gradients.size());
    double expected = 0, terms = 0;
    for (std::size_t p = 0; p < gradients.size(); ++p) {
      const std::span<double> at = numbers_of(step->program, parameters[p].value);
      values.emplace_back(at.begin(), at.end());
      for (std::size_t i = 0; i < at.size(); ++i) {
        const auto stream = static_cast<std::uint32_t>(p);
        direction[p].push_back(2.0 * uniform(draw(3, Purpose::synthetic, stream, i)[0]) - 1);
        expected += direction[p][i] * gradients[p][i];
        terms += std::abs(direction[p][i] * gradients[p][i]);
      }
    }
    const auto loss_at = [&](double h) {
      for (std::size_t p = 0; p < gradients.size(); ++p)
        for (std::size_t i = 0; i < values[p].size(); ++i)
          numbers_of(step->program, parameters[p].value)[i] = values[p][i] + h * direction[p][i];
      return loss_of(*step);
    };
    double error = 1;
    for (const double h : {1e-5, 1e-6, 1e-7, 1e-8})
      error = std::min(error, std::abs((loss_at(h) - loss_at(-h)) / (2 * h) - expected) / terms);
    EXPECT_LT(error, 1e-6) << "seed " << seed;
  }
}

}  // namespace
}  // namespace warpstep
