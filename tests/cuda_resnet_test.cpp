// ResNets on a CUDA device as they are trained in 16 bits, their batch norms fused into the
// neighbouring convolutions: against the reference call by call, against the norms by themselves,
// and one graph launch per step against single calls. At 32 x 32 pixels, for the reference's sake.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string_view>

#include "engine/core/error.h"
#include "engine/graph/graph.h"
#include "engine/passes/fuse.h"
#include "engine/run/runner.h"
#include "tests/runners.h"
#include "tests/stepping.h"
#include "tests/tested_backend.h"

namespace warpstep {
namespace {

using testing_support::check_runner;
using testing_support::open_tested_backend;
using testing_support::relative_difference;
using testing_support::Stepping;
using testing_support::tested_backend;

bool is_emulated() {
  return std::string_view(tested_backend()) == "cuda_emulated";
}

// ResNet-50 takes minutes on the emulated device.
std::vector<const char*> tested_models() {
  return is_emulated() ? std::vector{"resnet18"} : std::vector{"resnet18", "resnet50"};
}

using Numbers = std::vector<std::vector<float>>;

constexpr std::int64_t batch = 8;
constexpr float loss_scale = 64;
constexpr std::int64_t first = 2;  // the step that a test begins with

class ResNetOnCuda : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    try {
      backend_ = open_tested_backend(tested_backend());
    } catch (const DeviceError& error) {
      GTEST_SKIP() << error.what();
    }
  }

  std::unique_ptr<Stepping> stepping(std::shared_ptr<Backend> backend, bool fused = true,
                                     Precision precision = Precision::fp16) const {
    StepOptions options{.schedule = {.peak = 1e-4}, .precision = precision};
    for (const std::string_view row :
         {fusion::conv_statistics, fusion::dgrad_norm_dgrad, fusion::norm_conv, fusion::join_conv})
      if (!fused) options.no_fuse.emplace(row);
    models::BuildOptions build;
    build.batch = batch;
    build.image = {32, 32, 3};
    Graph graph = compile_step(models::build(models::find(GetParam()), build),
                               options_for(*backend_, std::move(options)));
    auto step = std::make_unique<Stepping>(std::move(graph), std::move(backend));
    Store& store = step->program.store();
    store.initialize(1);
    // The last norms are over `batch` numbers, so that gradients overflow at the first loss scale,
    // which the clock sets in the first step.
    StepState state = store.step_state();
    state.step = first - 1;
    if (precision == Precision::fp16) state.loss_scale = loss_scale;
    store.set_step_state(state);
    return step;
  }

  // After `steps` steps: the losses, the gradients and the norms' running statistics.
  static Numbers run(Stepping& step, Runner& runner, std::uint64_t steps) {
    const Store& store = step.program.store();
    Numbers found(1);
    for (std::uint64_t i = 0; i < steps; ++i) {
      step.load(i);
      runner.step();
      step.program.wait();
      found[0].push_back(store.report(static_cast<std::int64_t>(i) + first).loss);
    }
    for (std::size_t p = 0; p < store.parameters().size(); ++p)
      found.push_back(store.read(p, Store::Section::gradient));
    for (std::size_t i = 1; i < found.size(); ++i)
      for (float& gradient : found[i])
        gradient /= store.report(static_cast<std::int64_t>(steps) + first - 1).loss_scale;
    for (std::size_t b = 0; b < store.buffers().size(); ++b) found.push_back(store.read_buffer(b));
    return found;
  }

  std::shared_ptr<Backend> backend_;
};

std::vector<float> joined(const Numbers& numbers, std::size_t from) {
  std::vector<float> all;
  for (std::size_t i = from; i < numbers.size(); ++i)
    all.insert(all.end(), numbers[i].begin(), numbers[i].end());
  return all;
}

int fused_norms(const Stepping& step) {
  const auto& nodes = step.program.graph().nodes;
  return static_cast<int>(std::ranges::count_if(
      nodes, [](const Node& node) { return std::holds_alternative<NormConv>(node.op); }));
}

TEST_P(ResNetOnCuda, AgreesWithTheReferenceCallByCall) {
  const auto ours = stepping(backend_), theirs = stepping(open_backend("ref"));
  ASSERT_GT(fused_norms(*ours), 0);
  const auto check = check_runner(ours->program, theirs->program);
  for (std::uint64_t step = 0; step < 2; ++step) {
    ours->load(step);
    theirs->load(step);
    ASSERT_NO_THROW(check->step()) << "step " << step;
  }
}

TEST_P(ResNetOnCuda, OneGraphLaunchGivesTheBitsOfItsCalls) {
  if (is_emulated()) GTEST_SKIP() << "takes half a minute there; ModelOnCuda has small models";
  backend_ = open_tested_backend(tested_backend(), {.deterministic = true});
  const auto calls = stepping(backend_), graph = stepping(backend_);
  EXPECT_EQ(run(*calls, *eager_runner(calls->program), 4),
            run(*graph, *graph_runner(graph->program), 4));
}

// A separate norm rounds once, at its output; a fused one rounds its scale, its bias and the
// convolution's input: the error against fp32 is at most three times as large.
TEST_P(ResNetOnCuda, HasTheGradientsOfNormsByThemselves) {
  const auto fused = stepping(backend_), apart = stepping(backend_, false),
             exact = stepping(backend_, false, Precision::fp32);
  ASSERT_EQ(fused_norms(*apart), 0);
  const Numbers of_fused = run(*fused, *graph_runner(fused->program), 1),
                of_apart = run(*apart, *graph_runner(apart->program), 1),
                of_exact = run(*exact, *graph_runner(exact->program), 1);
  EXPECT_NEAR(of_fused[0][0], of_exact[0][0],
              3 * std::abs(of_apart[0][0] - of_exact[0][0]) + 2e-3 * of_exact[0][0]);
  const auto error = [&](const Numbers& of) {
    return relative_difference(joined(of, 1), joined(of_exact, 1));
  };
  EXPECT_LT(error(of_fused), 3 * error(of_apart));
}

INSTANTIATE_TEST_SUITE_P(Zoo, ResNetOnCuda, testing::ValuesIn(tested_models()),
                         [](const auto& of) { return std::string(of.param) + "_fp16"; });

}  // namespace
}  // namespace warpstep
