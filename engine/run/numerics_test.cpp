// The numerics runner names the first call whose result is not finite; on the reference backend.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "engine/core/error.h"
#include "engine/passes/precision.h"
#include "engine/run/evaluate.h"
#include "engine/run/runner.h"
#include "tests/stepping.h"

namespace warpstep {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::ThrowsMessage;
using testing_support::model_step;
using testing_support::Stepping;

constexpr float nan = std::numeric_limits<float>::quiet_NaN();
constexpr float infinity = std::numeric_limits<float>::infinity();

Stepping stepping(const StepOptions& options = {}) {
  Stepping step(model_step("mlp", 4, options), open_backend("ref"));
  step.program.store().initialize(3);
  step.load(1);
  return step;
}

void multiply(Store& store, std::size_t parameter, float factor) {
  std::vector<float> values = store.read(parameter);
  for (float& value : values) value *= factor;
  store.write(parameter, values);
}

TEST(NumberKinds, CountsEachKind) {
  const NumberKinds kinds = number_kinds(std::vector<float>{nan, -2, infinity, -infinity, 1, nan});
  EXPECT_FALSE(kinds.finite());
  EXPECT_EQ(text(kinds),
            "2 NaN, 1 +inf and 1 -inf of 6 elements, the largest finite magnitude is 2");
  EXPECT_TRUE(number_kinds(std::vector<float>{0, -1}).finite());
}

TEST(NumericsRunner, ComputesTheSameAsOthers) {
  Stepping checked = stepping(), plain = stepping();
  const auto numerics = numerics_runner(checked.program), eager = eager_runner(plain.program);
  for (int i = 0; i < 2; ++i) {
    numerics->step();
    eager->step();
  }
  EXPECT_EQ(checked.parameters(), plain.parameters());
  EXPECT_EQ(checked.program.loss(), plain.program.loss());
}

TEST(NumericsRunner, NamesTheCallThatMadeThem) {
  Stepping step = stepping();
  const auto runner = numerics_runner(step.program);
  runner->step();
  multiply(step.program.store(), 0, 1e25F);  // of fc1
  multiply(step.program.store(), 2, 1e25F);  // of fc2
  EXPECT_THAT(
      [&] { runner->step(); },
      ThrowsMessage<NumericError>(AllOf(
          HasSubstr("step 2: fc2/linear (forward, models/mlp.cpp:7; loops of ref) wrote fc2/relu"),
          HasSubstr(" of 2048 elements, the largest finite magnitude is "),
          HasSubstr("its inputs were all finite, so the call produced them: fc1/relu (to "),
          HasSubstr("fc2.weight (to "))));
}

TEST(NumericsRunner, NamesParametersThatWereGiven) {
  Stepping step = stepping();
  std::vector<float> weight = step.program.store().read(2);
  weight[7] = nan;
  weight[9] = -infinity;
  step.program.store().write(2, weight);
  EXPECT_THAT(
      [&] { numerics_runner(step.program)->step(); },
      ThrowsMessage<NumericError>(
          AllOf(HasSubstr("step 1: parameter fc2.weight holds 1 NaN, 0 +inf and 1 -inf of 262144"),
                HasSubstr("before the first call: this is an input of the step, not a result"))));
}

TEST(NumericsRunner, NamesInputsThatWereGiven) {
  Graph g;
  max_pool(g.input("pixels", {DType::f32, {1, 2, 2, 1}}));
  Program program(std::move(g), open_backend("ref"));
  const std::vector<double> pixels{1, 2, std::numeric_limits<double>::quiet_NaN(), 4};
  const void* slots[] = {pixels.data()};
  program.set_inputs(slots);
  EXPECT_THAT([&] { numerics_runner(program)->step(); },
              ThrowsMessage<NumericError>(HasSubstr("input pixels holds 1 NaN, ")));
}

TEST(NumericsRunner, ChecksTheResultsOfAnUpdate) {
  for (const bool fused : {true, false}) {
    StepOptions options;
    options.optimizer.kind = Optimizer::Kind::sgd;
    options.optimizer.momentum = 0.9;
    options.schedule.peak = 1e42;
    if (!fused) options.no_fuse.emplace("updates");
    Stepping step = stepping(options);
    EXPECT_THAT(
        [&] { numerics_runner(step.program)->step(); },
        ThrowsMessage<NumericError>(AllOf(
            HasSubstr(fused ? "step 1: update_all (update; " : "step 1: fc1.weight/update"),
            HasSubstr(") wrote fc1.weight: "), HasSubstr("the call produced them: fc1.weight (to"),
            HasSubstr("d_fc1.weight (to"), HasSubstr("moment1_fc1.weight (to 0)"),
            HasSubstr("learning rate inf"), Not(HasSubstr("fc2")))));
  }
}

TEST(NumericsRunner, ChecksGradientsThatACallChanges) {
  StepOptions options;
  options.optimizer.kind = Optimizer::Kind::lars;
  options.optimizer.trust = 1e38;
  options.schedule.peak = 1e-30;
  Stepping step = stepping(options);
  multiply(step.program.store(), 0, 100);  // of fc1
  EXPECT_THAT(
      [&] { numerics_runner(step.program)->step(); },
      ThrowsMessage<NumericError>(
          AllOf(HasSubstr("step 1: lars (update; "), HasSubstr(") wrote d_fc1.weight: "),
                HasSubstr("its inputs were all finite, so the call produced them: fc1.weight (to"),
                HasSubstr("d_fc1.weight (to"), Not(HasSubstr("fc2")))));
}

// With fp16 they lower the loss scale: here what LARS makes of them, and a sum over two steps.
TEST(NumericsRunner, LetsGradientsOverflowInPlace) {
  StepOptions options;
  options.precision = Precision::fp16;
  options.optimizer.kind = Optimizer::Kind::lars;
  options.optimizer.trust = 1e5;
  Stepping scaled = stepping(options);
  numerics_runner(scaled.program)->step();
  EXPECT_EQ(scaled.program.store().step_state().overflow, 1U);
  options.update.accumulate = 2;
  Stepping summed = stepping(options);
  Store& store = summed.program.store();
  StepState state = store.step_state();
  state.step = 1;
  state.update = 0;
  state.loss_scale = 65536;
  store.set_step_state(state);
  std::vector<float> sum = store.read(0, Store::Section::accumulator);
  sum[0] = infinity;
  store.write(0, sum, Store::Section::accumulator);
  numerics_runner(summed.program)->step();
  EXPECT_EQ(store.step_state().overflow, 1U);
}

// Of a convolution's results of 1e25 the norm's own are sound, their variance is not.
TEST(NumericsRunner, ChecksRunningStatistics) {
  Stepping step(model_step("mnist_cnn", 4), open_backend("ref"));
  Store& store = step.program.store();
  store.initialize(3);
  step.load(1);
  const auto runner = numerics_runner(step.program);
  runner->step();
  multiply(store, 0, 1e25F);
  EXPECT_THAT([&] { runner->step(); },
              ThrowsMessage<NumericError>(AllOf(HasSubstr("step 2: "), HasSubstr("batch_norm"),
                                                HasSubstr(".running_var: 0 NaN, "))));
}

TEST(NumericsRunner, NamesBuffersAndAveragesThatWereGiven) {
  StepOptions options;
  options.update.average_decay = 0.5;
  Stepping training(model_step("mnist_cnn", 4, options), open_backend("ref"));
  Store& store = training.program.store();
  store.initialize(3);
  training.load(1);
  std::vector<float> average = store.read(2, Store::Section::average);
  average[0] = nan;
  store.write(2, average, Store::Section::average);
  EXPECT_THAT([&] { numerics_runner(training.program)->step(); },
              ThrowsMessage<NumericError>(HasSubstr("step 1: the average ema_")));
  store.initialize(3);
  std::vector<float> mean = store.read_buffer(0);
  mean[1] = infinity;
  store.write_buffer(0, mean);
  const auto of_step = HasSubstr("running_mean holds 0 NaN, 1 +inf and 0 -inf of");
  EXPECT_THAT([&] { numerics_runner(training.program)->step(); },
              ThrowsMessage<NumericError>(AllOf(HasSubstr("step 1: buffer "), of_step)));
  StepOptions forward;
  forward.training = false;
  Stepping evaluation(model_step("mnist_cnn", 4, forward), open_backend("ref"),
                      training.program.shared_store());
  evaluation.load(1);
  EXPECT_THAT(
      [&] { numerics_runner(evaluation.program)->step(); },
      ThrowsMessage<NumericError>(AllOf(HasSubstr("batch 1 of the evaluation: buffer "), of_step)));
}

TEST(NumericsRunner, CountsTheBatchesOfAnEvaluation) {
  Stepping training = stepping();
  StepOptions options;
  options.training = false;
  Stepping step(model_step("mlp", 4, options), open_backend("ref"),
                training.program.shared_store());
  step.load(1);
  const auto runner = numerics_runner(step.program);
  runner->step();
  runner->step();
  eager_runner(training.program)->step();
  runner->step();
  multiply(training.program.store(), 0, 1e25F);
  multiply(training.program.store(), 2, 1e25F);
  EXPECT_THAT([&] { runner->step(); },
              ThrowsMessage<NumericError>(
                  HasSubstr("batch 2 of the evaluation after step 1: fc2/linear (forward")));
}

// Such an evaluation has a store of its own.
TEST(NumericsRunner, ChecksTheAverageOfEachEvaluation) {
  StepOptions options;
  options.update.average_decay = 0.5;
  Stepping training = stepping(options);
  options.training = false;
  Stepping step(model_step("mlp", 4, options), open_backend("ref"));
  step.load(1);
  const auto runner = numerics_runner(step.program);
  const auto train = eager_runner(training.program);
  Store& averaged = training.program.store();
  for (int evaluation = 0; evaluation < 2; ++evaluation) {
    train->step();
    take_average(averaged, step.program.store());
    for (int batch = 0; batch < 3; ++batch) runner->step();
  }
  train->step();
  std::vector<float> weight = averaged.read(2, Store::Section::average);
  weight[7] = nan;
  averaged.write(2, weight, Store::Section::average);
  take_average(averaged, step.program.store());
  EXPECT_THAT([&] { runner->step(); },
              ThrowsMessage<NumericError>(HasSubstr(
                  "batch 1 of the evaluation after step 3: parameter fc2.weight holds 1 NaN")));
}

TEST(InPrecision, RestartsLossScaling) {
  StepState state;
  state.step = 9;
  state.skipped = 2;
  state.loss_scale = 1024;
  state.good_steps = 5;
  state.overflow = 1;
  const StepState same = in_precision(state, Precision::fp16, Precision::fp16);
  EXPECT_EQ(same.loss_scale, 1024);
  EXPECT_EQ(same.overflow, 1U);
  const StepState wide = in_precision(state, Precision::fp16, Precision::bf16);
  EXPECT_EQ(wide.step, 9);
  EXPECT_EQ(wide.loss_scale, 1) << "gradients are divided by it";
  StepState after = wide;
  tick(after, {}, 0.9, 0.999, {});
  EXPECT_EQ(after.overflow, 0U) << "no update would ever be made";
  EXPECT_EQ(after.skipped, 3);
  StepState next = in_precision(after, Precision::fp32, Precision::fp16);
  EXPECT_EQ(next.loss_scale, 65536);
  EXPECT_EQ(next.skipped, 3);
  tick(next, {}, 0.9, 0.999, {.enabled = true});
  EXPECT_EQ(next.loss_scale, 65536);
  EXPECT_EQ(next.good_steps, 1);
}

}  // namespace
}  // namespace warpstep
