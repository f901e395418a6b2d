// Whole models on the CUDA backend (tests/tested_backend.h: on a GPU, or its sources over the
// emulated device): call by call against the reference in each precision, one graph launch per step
// and a poisoned arena against single calls, loss scaling through an overflow.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "engine/core/error.h"
#include "engine/passes/precision.h"
#include "engine/run/runner.h"
#include "tests/runners.h"
#include "tests/stepping.h"
#include "tests/tested_backend.h"

namespace warpstep {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;
using testing_support::check_runner;
using testing_support::model_step;
using testing_support::open_tested_backend;
using testing_support::poisoning_runner;
using testing_support::relative_difference;
using testing_support::Stepping;

using Losses = std::vector<float>;
using Parameters = std::vector<std::vector<float>>;

class ModelOnCuda : public testing::TestWithParam<std::tuple<const char*, Precision>> {
 protected:
  void SetUp() override {
    try {
      // Two runs are compared bit for bit: only algorithms with a fixed order of additions.
      backend_ = open_tested_backend(testing_support::tested_backend(), {.deterministic = true});
    } catch (const DeviceError& error) {
      GTEST_SKIP() << error.what();
    }
    const std::string missing = testing_support::why_not(*backend_, std::get<1>(GetParam()));
    if (!missing.empty()) GTEST_SKIP() << missing;
  }

  std::unique_ptr<Stepping> stepping(std::shared_ptr<Backend> backend,
                                     StepOptions options = {}) const {
    const auto& [model, precision] = GetParam();
    options.precision = precision;
    constexpr std::int64_t batch = 3;
    auto step = std::make_unique<Stepping>(model_step(model, batch, options), std::move(backend));
    step->program.store().initialize(1);
    return step;
  }

  static std::pair<Losses, Parameters> run(Stepping& step, Runner& runner, int steps = 3) {
    Losses losses;
    for (int i = 0; i < steps; ++i) {
      step.load(static_cast<std::uint64_t>(i), i == 2);
      runner.step();
      step.program.wait();
      losses.push_back(step.program.store().report(i + 1).loss);
    }
    return {losses, step.parameters()};
  }

  std::shared_ptr<Backend> backend_;
};

class LossScaling : public ModelOnCuda {};  // fp16 only

TEST_P(ModelOnCuda, AgreesWithTheReferenceCallByCall) {
  StepOptions options;
  options.schedule.peak = 1e-4;
  const auto ours = stepping(backend_, options), theirs = stepping(open_backend("ref"), options);
  const auto check = check_runner(ours->program, theirs->program);
  for (std::uint64_t step = 0; step < 2; ++step) {
    ours->load(step, step == 1);
    theirs->load(step, step == 1);
    ASSERT_NO_THROW(check->step()) << "step " << step;
  }
}

// The graph runs its lanes side by side; the poisoned arena shows a read of a dead buffer.
TEST_P(ModelOnCuda, OneGraphLaunchOrAPoisonedArenaGivesTheBitsOfItsCalls) {
  const auto bits = [&](auto runner) {
    const auto step = stepping(backend_);
    return run(*step, *runner(step->program));
  };
  const auto calls = bits([](Program& program) { return eager_runner(program); });
  EXPECT_EQ(calls, bits(graph_runner)) << "one graph launch";
  EXPECT_EQ(calls, bits(poisoning_runner)) << "a poisoned arena";
}

// Fusions of gradients move sums to other kernels, which round in other places.
TEST_P(ModelOnCuda, GivesTheSameGradientsWithoutTheirFusions) {
  const auto gradients = [&](Stepping& step) {
    const auto [losses, parameters] = run(step, *eager_runner(step.program), 1);
    std::vector<std::vector<float>> all{losses};
    for (std::size_t p = 0; p < parameters.size(); ++p)
      all.push_back(step.program.store().read(p, Store::Section::gradient));
    return all;
  };
  const bool wide = std::get<1>(GetParam()) == Precision::fp32;
  const auto with = gradients(*stepping(backend_));
  for (const std::string_view row :
       {"dgrad+bias", "linear.dgrad+relu", "linear+gelu", "linear.dgrad+gelu", "conv.dgrad+relu"}) {
    StepOptions options;
    options.no_fuse.emplace(row);
    const auto without = gradients(*stepping(backend_, options));
    ASSERT_EQ(with.size(), without.size());
    for (std::size_t i = 0; i < with.size(); ++i)
      EXPECT_LE(relative_difference(with[i], without[i]), wide ? 1e-5 : 2e-2)
          << row << ", gradient " << i;
  }
}

void multiply(Store& store, std::size_t parameter, float factor) {
  std::vector<float> weights = store.read(parameter);
  for (float& weight : weights) weight *= factor;
  store.write(parameter, weights);
}

// The weights are scaled up until fp16 gradients overflow at the first loss scale: updates are
// skipped until the scale fits, then training continues: for two steps here.
TEST_P(LossScaling, LeavesOutTheStepsThatOverflow) {
  const auto step = stepping(backend_);
  Store& store = step->program.store();
  multiply(store, store.parameters().size() - 2, 100);
  const auto runner = graph_runner(step->program);
  std::int64_t skipped = 0;
  float scale = 65536;
  Parameters before = step->parameters();
  for (int i = 1, trained = 0; trained < 2; ++i) {
    ASSERT_LE(i, 12) << "the scale does not fall far enough";
    step->load(static_cast<std::uint64_t>(i));
    runner->step();
    step->program.wait();
    const StepReport report = store.report(i);
    ASSERT_EQ(report.loss_scale, scale) << "step " << i;
    ASSERT_EQ(report.skipped, skipped) << "step " << i;
    const Parameters after = step->parameters();
    EXPECT_EQ(report.overflow != 0, before == after) << "step " << i;
    before = after;
    if (report.overflow == 0) {
      ++trained;
      continue;
    }
    ++skipped;
    scale /= 2;
  }
  EXPECT_GT(skipped, 0);
  for (const auto& parameter : before)
    for (const float element : parameter) ASSERT_TRUE(std::isfinite(element));
}

TEST_P(LossScaling, MayFallBeforeTheNumericsRunnerObjects) {
  const auto step = stepping(backend_);
  Store& store = step->program.store();
  multiply(store, store.parameters().size() - 2, 100);
  const auto runner = numerics_runner(step->program);
  const Parameters before = step->parameters();
  ASSERT_NO_THROW(runner->step());
  EXPECT_EQ(store.report(1).overflow, 1U);
  EXPECT_EQ(step->parameters(), before);
  StepState state = store.step_state();
  state.loss_scale = 0.9F * least_loss_scale;
  state.overflow = 0;
  store.set_step_state(state);
  // One layer scales down, the next one up: the gradient between them overflows at any loss scale.
  const std::size_t end = store.parameters().size();
  for (const std::size_t p : {end - 6, end - 5}) multiply(store, p, 1e-4F);
  multiply(store, end - 4, 1e4F);
  multiply(store, end - 2, 10);
  EXPECT_THAT([&] { runner->step(); },
              ThrowsMessage<NumericError>(AllOf(HasSubstr("step 2: "), HasSubstr("grad, models/"),
                                                HasSubstr("its inputs were all finite"))));
}

TEST_P(LossScaling, IsNoExcuseForTheForwardHalf) {
  const auto step = stepping(backend_);
  Store& store = step->program.store();
  multiply(store, store.parameters().size() - 4, 3e5F);
  EXPECT_THAT(
      [&] { numerics_runner(step->program)->step(); },
      ThrowsMessage<NumericError>(AllOf(HasSubstr("step 1: "), HasSubstr(" (forward, models/"))));
}

// With sanitizers a step takes seconds; fp16 runs every kernel.
std::vector<Precision> precisions() {
  if (testing_support::sanitized()) return {Precision::fp16};
  return {Precision::fp32, Precision::bf16, Precision::fp16};
}

std::string test_name(const testing::TestParamInfo<ModelOnCuda::ParamType>& tested) {
  return fmt::format("{}_{}", std::get<0>(tested.param), name(std::get<1>(tested.param)));
}

INSTANTIATE_TEST_SUITE_P(Zoo, ModelOnCuda,
                         testing::Combine(testing::Values("mlp", "cifar10cnn", "gpt2"),
                                          testing::ValuesIn(precisions())),
                         test_name);
INSTANTIATE_TEST_SUITE_P(Zoo, LossScaling,
                         testing::Combine(testing::Values("mlp", "cifar10cnn"),
                                          testing::Values(Precision::fp16)),
                         test_name);

}  // namespace
}  // namespace warpstep
