// The optimisers of the reference backend against PyTorch's numbers.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "engine/core/error.h"
#include "engine/passes/autodiff.h"
#include "engine/passes/fuse.h"
#include "engine/passes/update.h"
#include "engine/run/program.h"

namespace warpstep {
namespace {

constexpr std::array<float, 4> start{0.5F, -0.25F, 1.5F, 0.0F};
constexpr std::array<std::array<float, 4>, 4> gradients{{{0.1F, -0.2F, 0.3F, 0.05F},
                                                         {0.4F, 0.1F, -0.6F, -0.05F},
                                                         {-0.3F, 0.2F, 0.1F, 0.0F},
                                                         {0.05F, -0.15F, 0.25F, 1e-4F}}};

// One parameter whose gradient the test writes.
Graph one_parameter(const Optimizer& optimizer, bool all_at_once) {
  Graph graph;
  const Type type{DType::f32, {4}};
  const int value = graph.add_value(type, Role::parameter, "p");
  const int gradient = graph.add_value(type, Role::gradient, "d_p");
  graph.value(value).owner = graph.value(gradient).owner = 0;
  graph.parameters.push_back({.name = "p",
                              .value = value,
                              .gradient = gradient,
                              .moments = {},
                              .view = type.shape,
                              .permutation = {0},
                              .initial = {}});
  Schedule schedule;
  schedule.peak = 0.1;
  graph = add_optimizer(std::move(graph), optimizer, schedule);
  return all_at_once ? fuse(std::move(graph), FuseStage::updates, {}) : graph;
}

struct Expected {
  const char* name;
  Optimizer optimizer;
  std::array<double, 4> result;
};
void PrintTo(const Expected& expected, std::ostream* out) {
  *out << expected.name;
}

class OptimizerIs : public testing::TestWithParam<Expected> {};

// f32 learning rate and corrections, and start and gradients rounded to f32, against doubles: the
// difference is some 1e-8 a step.
TEST_P(OptimizerIs, PyTorchs) {
  for (const bool all_at_once : {false, true}) {
    Program program(one_parameter(GetParam().optimizer, all_at_once), open_backend("ref"));
    program.store().write(0, start);
    for (const auto& gradient : gradients) {
      program.store().write(0, gradient, Store::Section::gradient);
      for (std::size_t call = 0; call < program.calls().size(); ++call) program.enqueue(call);
    }
    const std::vector<float> result = program.store().read(0);
    for (std::size_t i = 0; i < result.size(); ++i)
      EXPECT_NEAR(static_cast<double>(result[i]), GetParam().result[i], 2e-7) << "element " << i;
  }
}

Optimizer sgd(double weight_decay, double momentum = 0, bool nesterov = false) {
  Optimizer o;
  o.kind = Optimizer::Kind::sgd;
  o.weight_decay = weight_decay;
  o.momentum = momentum;
  o.nesterov = nesterov;
  return o;
}

Optimizer adam(Optimizer::Kind kind) {
  Optimizer o;
  o.kind = kind;
  o.beta1 = 0.8;
  o.beta2 = 0.95;
  o.epsilon = 1e-4;
  o.weight_decay = 0.05;
  return o;
}

Optimizer rmsprop(double momentum = 0) {
  Optimizer o;
  o.kind = Optimizer::Kind::rmsprop;
  if (momentum == 0) return o;
  o.momentum = momentum;
  o.alpha = 0.9;
  o.epsilon = 1e-4;
  o.weight_decay = 0.05;
  return o;
}

// torch 2.15: torch.optim.X([p], lr=0.1, ...) in float64, p = start, p.grad = gradients[i], four
// steps. Defaults where nothing is named; "with all": betas=(0.8, 0.95), eps=1e-4,
// weight_decay=0.05, of rmsprop momentum=0.9 and alpha=0.9.
INSTANTIATE_TEST_SUITE_P(
    All, OptimizerIs,
    testing::Values(
        Expected{"sgd", sgd(0), {0.475, -0.245, 1.495, -1e-05}},
        Expected{"sgd weight_decay=0.05",
                 sgd(0.05),
                 {0.4654730015625, -0.24013612765625003, 1.4651235046875, 1.475062499999961e-05}},
        Expected{"sgd momentum=0.9 weight_decay=0.05",
                 sgd(0.05, 0.9),
                 {0.3878190328125, -0.22070538078125002, 1.4483415984375, -0.003524836875}},
        Expected{
            "sgd nesterov momentum=0.9 weight_decay=0.05",
            sgd(0.05, 0.9, true),
            {0.3658800297689062, -0.21437365008214065, 1.4192277548067187, -0.003049445642437501}},
        Expected{
            "rmsprop",
            rmsprop(),
            {-0.9784470467379922, 0.08178479400574062, 0.8978159130272716, -0.29254987974244995}},
        Expected{"rmsprop with all",
                 rmsprop(0.9),
                 {-1.042998751456033, 0.1685877674632047, 0.8369083210840684, -0.1975305626025389}},
        Expected{
            "adam",
            Optimizer{},
            {0.27380988524653854, -0.14460174146329263, 1.4493259627984147, -0.08741806336170985}},
        Expected{
            "adam with all",
            adam(Optimizer::Kind::adam),
            {0.2681583683469583, -0.1441521368998228, 1.4005057050413456, -0.05328954533816617}},
        Expected{
            "adamw with all",
            adam(Optimizer::Kind::adamw),
            {0.2750350605712209, -0.15557137629371542, 1.4233976044773162, -0.07307706869327688}}));

TEST(Optimizer, TellsItsMoments) {
  EXPECT_EQ(sgd(0).moments(), 0);
  EXPECT_EQ(sgd(0, 0.9).moments(), 1);
  EXPECT_EQ(Optimizer{}.moments(), 2);
  EXPECT_EQ(rmsprop().moments(), 1);
  EXPECT_EQ(rmsprop(0.9).moments(), 2);
  EXPECT_EQ(text(sgd(0.05, 0.9, true)), "sgd momentum 0.9 nesterov weight decay 0.05");
}

TEST(Optimizer, RefusesNumbersThatTrainNothing) {
  const auto refused = [](const Optimizer& optimizer, double rate, const UpdateOptions& options,
                          const std::string& words) {
    Graph graph;
    EXPECT_THAT([&] { add_optimizer(graph, optimizer, {.peak = rate}, options); },
                testing::ThrowsMessage<UsageError>(words));
  };
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  refused({}, nan, {}, "the learning rate is nan; must be a finite number of at least 0");
  refused({}, -1, {}, "the learning rate is -1; must be a finite number of at least 0");
  refused({}, 1, {.clip_norm = -1},
          "the limit of gradients' norm is -1; must be a finite number of at least 0");
  refused({}, 1, {.accumulate = 0}, "an update of 0 steps; must be at least 1");
  refused({}, 1, {.average_decay = 1},
          "the decay of the weights' average is 1; must be at least 0 and below 1");
  refused({.beta1 = 1}, 1, {}, "beta1 is 1; must be at least 0 and below 1");
  refused({.epsilon = nan}, 1, {}, "epsilon is nan; must be a finite number of at least 0");
  refused({.weight_decay = -1}, 1, {}, "weight decay is -1; must be a finite number of at least 0");
}

}  // namespace
}  // namespace warpstep
