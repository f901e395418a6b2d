// A table that a layer reads before tokens are embedded with it: its gradient is the sum of both,
// of which the embedding's comes first.
#include <gtest/gtest.h>

#include <algorithm>

#include "engine/run/runner.h"
#include "tests/stepping.h"
#include "tests/tolerance.h"

namespace warpstep {
namespace {

using testing_support::relative_difference;
using testing_support::Stepping;
using testing_support::tolerance;

constexpr std::int64_t classes = 10, width = 8, sequence = 4;

// With `apart` the tokens are embedded with a table of their own.
Graph head_before_embedding(bool apart) {
  Graph g;
  const Type type{DType::i32, {2 * sequence}};
  const Tensor tokens = g.input("tokens", type), order = g.input("order", type),
               labels = g.input("labels", type);
  const Initial normal{Initial::Kind::normal, 0.5};
  const Tensor table = parameter(g, "table", {classes, width}, normal);
  const Tensor places = parameter(g, "places", {sequence, width}, normal);
  const Tensor x = embed("wte", "wpe", tokens, order,
                         {.vocabulary = classes,
                          .context = sequence,
                          .sequence = sequence,
                          .width = width,
                          .deviation = 0.5});
  const Tensor head = g.record(Phase::forward, Linear{.out = classes, .bias = false}, {x, table},
                               "head", Where::current())[0];
  const Tensor of_tokens =
      apart ? parameter(g, "table of tokens", {classes, width}, normal) : table;
  const Tensor embedded =
      g.record(Phase::forward, Embed{sequence}, {tokens, order, of_tokens, places}, "again",
               Where::current())[0];
  cross_entropy(add(head, linear("fc", embedded, {.out = classes})), labels);
  return g;
}

class TableOn : public testing::TestWithParam<const char*> {
 protected:
  const std::shared_ptr<Backend> backend_ = open_backend(GetParam(), {.threads = 2});

  Stepping step_of(bool apart) {
    StepOptions options;
    options.optimizer.kind = Optimizer::Kind::sgd;
    options.schedule.peak = 0;  // the update leaves the parameters alone
    return Stepping(compile_step(head_before_embedding(apart), options_for(*backend_, options)),
                    backend_);
  }
};
INSTANTIATE_TEST_SUITE_P(Backends, TableOn, testing::Values("ref", "cpu"));

std::size_t number_of(const Graph& graph, std::string_view name) {
  return idx(std::ranges::find(graph.parameters, name, &Parameter::name) -
             graph.parameters.begin());
}

std::vector<float> gradient_after_step(Stepping& step, std::string_view name) {
  step.load(1);
  eager_runner(step.program)->step();
  const Graph& graph = step.program.graph();
  return step.program.read(graph.parameters[number_of(graph, name)].gradient);
}

TEST_P(TableOn, HasTheSumOfBothGradients) {
  Stepping shared = step_of(false), apart = step_of(true);
  const Graph &one = shared.program.graph(), &two = apart.program.graph();
  Store& store = apart.program.store();
  shared.program.store().initialize(1);
  store.initialize(1);
  for (const Parameter& parameter : one.parameters)
    store.write(number_of(two, parameter.name),
                shared.program.store().read(number_of(one, parameter.name)));
  store.write(number_of(two, "table of tokens"), store.read(number_of(two, "table")));

  const auto part = std::ranges::find_if(one.nodes, [](const Node& node) {
    return std::holds_alternative<EmbedGrad>(node.op) && node.scope == "again";
  });
  ASSERT_NE(part, one.nodes.end());
  EXPECT_FALSE(std::get<EmbedGrad>(part->op).sum);
  EXPECT_EQ(one.value(part->out[0]).role, Role::activation) << "it is not the whole gradient";

  const std::vector<float> whole = gradient_after_step(shared, "table");
  std::vector<float> sum = gradient_after_step(apart, "table");
  const std::vector<float> of_tokens = gradient_after_step(apart, "table of tokens");
  EXPECT_EQ(shared.program.loss(), apart.program.loss());
  for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += of_tokens[i];
  EXPECT_LE(relative_difference(whole, sum), tolerance(DType::f32, 2));
  EXPECT_GT(number_kinds(of_tokens).largest, 1e-3F);
  EXPECT_GT(relative_difference(whole, of_tokens), 0.1);
}

}  // namespace
}  // namespace warpstep
