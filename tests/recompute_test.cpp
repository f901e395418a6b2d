// Recomputation: the same numbers to the bit, and less memory as the planner reports it.
#include "engine/passes/recompute.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "engine/core/error.h"
#include "tests/stepping.h"

namespace warpstep {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;
using Scopes = std::vector<std::string>;

Graph step_of(const models::Model& model, std::int64_t batch, Shape image, const Scopes& scopes,
              const Backend& backend) {
  StepOptions options;
  options.recompute = scopes;
  models::BuildOptions build;
  build.batch = batch;
  build.image = image;
  return compile_step(models::build(model, build), options_for(backend, options));
}

// Every kind of layer with activations to drop: norms with and without a shortcut, max pooling with
// its index, dropout, a view.
Tensor mixed(Tensor x, std::int64_t classes) {
  x = relu(batch_norm("stem.norm", conv("stem.conv", x, {.out = 8, .padding = 1, .bias = false})));
  Tensor y = relu(batch_norm("block.0.norm", conv("block.0.conv", x, {.out = 8, .padding = 1})));
  y = batch_norm("block.1.norm", conv("block.1.conv", y, {.out = 8, .padding = 1}));
  x = max_pool(relu(add(y, x)));
  x = dropout(relu(conv("tail.conv", x, {.out = 16, .padding = 1})), 0.25);
  x = max_pool(x);
  x = dropout(relu(linear("tail.fc1", flatten(x), {.out = 32})), 0.5);
  return linear("head", x, {.out = classes});
}

const models::Model mixed_model{"mixed", "", {8, 8, 3}, 1e-3, mixed};

struct State {
  std::vector<std::vector<float>> parameters, buffers;
  std::vector<float> losses;
};

State after_steps(Graph graph, const std::shared_ptr<Backend>& backend) {
  testing_support::Stepping stepping(std::move(graph), backend);
  Program& program = stepping.program;
  program.store().initialize(3);
  State state;
  for (std::uint64_t step = 0; step < 3; ++step) {
    stepping.load(step);
    for (std::size_t call = 0; call < program.calls().size(); ++call) {
      program.enqueue(call);
      program.wait();
      program.poison_dead_buffers(call);
    }
    state.losses.push_back(program.loss());
  }
  state.parameters = stepping.parameters();
  for (std::size_t b = 0; b < program.store().buffers().size(); ++b)
    state.buffers.push_back(program.store().read_buffer(b));
  return state;
}

class Recompute : public testing::TestWithParam<const char*> {
 protected:
  const std::shared_ptr<Backend> backend_ = open_backend(GetParam());

  void expect_same_bits(const models::Model& model, std::int64_t batch, Shape image,
                        const Scopes& scopes) {
    const State plain = after_steps(step_of(model, batch, image, {}, *backend_), backend_);
    const State again = after_steps(step_of(model, batch, image, scopes, *backend_), backend_);
    EXPECT_EQ(plain.losses, again.losses);
    EXPECT_EQ(plain.parameters, again.parameters);
    EXPECT_EQ(plain.buffers, again.buffers);
  }
};

TEST_P(Recompute, GivesTheSameBits) {
  for (const Scopes& scopes : {Scopes{"stem"}, Scopes{"block"}, Scopes{"tail"},
                               Scopes{"block.0", "block.1"}, Scopes{"stem", "block", "tail"}}) {
    expect_same_bits(mixed_model, 6, {8, 8, 3}, scopes);
    if (HasFailure()) FAIL() << testing::PrintToString(scopes);
  }
}

TEST_P(Recompute, GivesTheSameBitsOfAResidualNetwork) {
  expect_same_bits(models::find("resnet18"), 3, {32, 32, 3}, {"layer1", "layer2.0"});
}

TEST_P(Recompute, AddsClonesOnlyInTheBackwardHalf) {
  const Graph plain = step_of(mixed_model, 6, {8, 8, 3}, {}, *backend_);
  const Graph graph = step_of(mixed_model, 6, {8, 8, 3}, {"block"}, *backend_);
  EXPECT_GT(graph.nodes.size(), plain.nodes.size());
  bool backward = false;
  std::size_t clones = 0;
  for (const Node& node : graph.nodes) {
    backward = backward || node.phase == Phase::data_grad || node.phase == Phase::weight_grad;
    const bool clone = node.phase == Phase::data_grad && std::holds_alternative<Conv>(node.op);
    clones += clone ? 1 : 0;
    if (clone) {
      EXPECT_TRUE(node.scope.starts_with("block.")) << node.scope;
    }
    if (const auto* norm = std::get_if<BatchNorm>(&node.op)) {
      EXPECT_EQ(norm->momentum == 0, backward) << node.title();
    }
  }
  EXPECT_EQ(clones, 2U);
}

INSTANTIATE_TEST_SUITE_P(Backends, Recompute, testing::Values("ref", "cpu"));

std::size_t arena_bytes(const char* model, std::int64_t batch, const Scopes& scopes) {
  StepOptions options;
  options.recompute = scopes;
  Graph graph = testing_support::model_step(model, batch, options);
  for (Value& value : graph.values) value.layout.bytes = value.type.bytes();
  return plan_memory(graph, {}, one_lane(graph)).arena_bytes;
}

TEST(RecomputeMemory, FallsWithEveryScope) {
  const std::size_t plain = arena_bytes("resnet50", 32, {});
  const std::size_t one = arena_bytes("resnet50", 32, {"layer1.0", "layer1.1", "layer1.2"});
  const std::size_t two = arena_bytes(
      "resnet50", 32,
      {"layer1.0", "layer1.1", "layer1.2", "layer2.0", "layer2.1", "layer2.2", "layer2.3"});
  EXPECT_LT(one, plain - plain / 10);
  EXPECT_LT(two, one - plain / 10);
}

TEST(RecomputeScopes, AreCheckedAgainstTheModel) {
  const auto compile = [](const Scopes& scopes) { return arena_bytes("resnet18", 2, scopes); };
  EXPECT_THAT([&] { compile({"layr1"}); },
              ThrowsMessage<UsageError>(AllOf(HasSubstr("--recompute layr1: "),
                                              HasSubstr("did you mean layer1?"),
                                              HasSubstr("bn1, conv1, fc, "))));
  EXPECT_THAT([&] { compile({"layer1."}); }, ThrowsMessage<UsageError>(HasSubstr("layer1")));
  EXPECT_THAT(
      [&] {
        compile({"layer1", "layer1.0"});
      },
      ThrowsMessage<UsageError>(HasSubstr("--recompute layer1 and --recompute layer1.0")));
  EXPECT_THAT(
      [&] {
        compile({"layer1.0", "layer1.0"});
      },
      ThrowsMessage<UsageError>(HasSubstr("contains the other; give only one")));
  EXPECT_NO_THROW(compile({"conv1", "fc"}));
}

// A scope that begins with another's name, but without a dot after it, is another layer.
TEST(RecomputeScopes, EndAtADot) {
  EXPECT_THROW(arena_bytes("resnet18", 2, {"layer"}), UsageError);
}

}  // namespace
}  // namespace warpstep
