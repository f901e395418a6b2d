// From the graph of a model in training to that of the model in use.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "engine/core/error.h"
#include "engine/graph/adjoint.h"
#include "engine/passes/autodiff.h"
#include "engine/passes/compile.h"
#include "engine/passes/inference.h"
#include "engine/run/runner.h"
#include "tests/small_graphs.h"
#include "tests/stepping.h"

namespace warpstep {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;
using testing_support::count;
using testing_support::residual;
using testing_support::Stepping;

StepOptions evaluation() {
  StepOptions options;
  options.training = false;
  return options;
}

TEST(ForInference, MakesNormsTakeTheirRunningStatistics) {
  const Graph before = residual(), g = for_inference(before);
  EXPECT_EQ(count<BatchNorm>(g), 8);
  ASSERT_EQ(g.nodes.size(), before.nodes.size());
  for (const Node& node : g.nodes) {
    EXPECT_EQ(infer(node.op, g.types(node.in)), g.types(node.out)) << node.title();
    if (const auto* norm = std::get_if<BatchNorm>(&node.op)) {
      EXPECT_FALSE(norm->training);
      EXPECT_EQ(node.out.size(), 1U);
    }
  }
  EXPECT_EQ(g.buffers.size(), 16U);
}

TEST(ForInference, LeavesDropoutsOut) {
  const Graph before = residual({.dropout = 0.5}), g = for_inference(before);
  EXPECT_EQ(count<Dropout>(before), 1);
  EXPECT_EQ(count<Dropout>(g), 0);
  EXPECT_EQ(g.nodes.size(), before.nodes.size() - 1);
  EXPECT_GE(before.state, 0);
  EXPECT_EQ(g.state, -1) << "which the dropout drew from";
  const auto pool = std::find_if(g.nodes.begin(), g.nodes.end(), [](const Node& n) {
    return std::holds_alternative<AvgPool>(n.op);
  });
  ASSERT_NE(pool, g.nodes.end());
  EXPECT_EQ(std::prev(pool)->out[0], pool->in[0]) << "reads what the dropout read";
}

// One after the other, and as the model's last op.
TEST(ForInference, LeavesDropoutsOutInARow) {
  Graph g;
  const Tensor x = g.input("x", {DType::f32, {4, 7}});
  const Tensor logits = dropout(dropout(linear("fc", dropout(x, 0.1), {.out = 10}), 0.5), 0.2);
  cross_entropy(logits, g.input("labels", {DType::i32, {4}}));
  const int trained_logits = g.logits;
  const Graph used = for_inference(std::move(g));
  EXPECT_EQ(count<Dropout>(used), 0);
  EXPECT_EQ(used.nodes[0].in[0], used.inputs[0]);
  EXPECT_NE(used.logits, trained_logits);
  EXPECT_EQ(used.logits, used.nodes[0].out[0]);
  EXPECT_EQ(used.nodes[1].in[0], used.logits);
}

// At first the running statistics are 0 and 1; after many steps on one batch with momentum they
// are the batch's own but for the unbiased variance, and so are the model's outputs.
TEST(ForInference, ComputesWithWhatTrainingCollected) {
  StepOptions options;
  options.schedule.peak = 0;  // the parameters stay
  const testing_support::Residual small{.batch = 8, .size = 16};
  Stepping trained(compile_step(residual(small), options), open_backend("ref"));
  Stepping used(compile_step(residual(small), evaluation()), open_backend("ref"),
                trained.program.shared_store());
  Store& store = trained.program.store();
  store.initialize(5);
  trained.load(1);
  used.load(1);
  const auto train = eager_runner(trained.program), use = eager_runner(used.program);
  use->step();
  const double at_first = static_cast<double>(used.program.loss());
  for (int step = 0; step < 200; ++step) train->step();
  const std::vector<float> mean = store.read_buffer(0), variance = store.read_buffer(1);
  use->step();
  const double loss = static_cast<double>(trained.program.loss());
  EXPECT_NEAR(static_cast<double>(used.program.loss()), loss, 0.1 * loss);
  EXPECT_GT(std::abs(at_first - loss),
            2 * std::abs(static_cast<double>(used.program.loss()) - loss));
  EXPECT_EQ(store.read_buffer(0), mean) << "inference leaves the statistics alone";
  EXPECT_EQ(store.read_buffer(1), variance);
}

// x, a buffer [1] -> x; each training step that computes it adds 1 to the buffer.
class Counted final : public CustomOp {
 public:
  enum class Form { training, inference, wrong, infinite };
  explicit Counted(Form form = Form::training, Form used = Form::inference)
      : form_(form), used_(used) {}
  std::string_view name() const override { return "counted"; }
  Types infer(const Types& in) const override { return {in[form_ == Form::wrong ? 1 : 0]}; }
  Cost cost(const Types&, const Types&) const override { return {}; }
  void grad(Adjoint& adjoint) const override { adjoint.give(0, adjoint.d_out()); }
  std::shared_ptr<const CustomOp> for_inference() const override {
    return std::make_shared<Counted>(used_);
  }
  std::unique_ptr<Kernel> bind(std::string_view, const Graph& graph,
                               const Node& node) const override {
    return std::make_unique<Loop>(graph.value(node.in[0]).type.shape.count(),
                                  form_ == Form::training   ? 1.0
                                  : form_ == Form::infinite ? HUGE_VAL
                                                            : 0.0);
  }

 private:
  struct Loop final : Kernel {
    Loop(std::int64_t elements, double more) : count(elements), added(more) {}
    void enqueue(Stream&, const Buffers& b) const override {
      *static_cast<double*>(b.in[1]) += added;
      std::copy_n(static_cast<const double*>(b.in[0]), count, static_cast<double*>(b.out[0]));
    }
    std::int64_t count;
    double added;
  };
  Form form_, used_;
};

Graph counting(bool read, Counted::Form used = Counted::Form::inference,
               Counted::Form form = Counted::Form::training) {
  Graph g;
  const std::vector<float> half{0.5F, 0.5F, 0.5F};
  const Tensor images = g.input("images", {DType::u8, {4, 2, 2, 3}});
  const Tensor h = linear("fc", flatten(normalize(images, half, half)), {.out = 3});
  const Tensor seen = g.buffer("seen", {1}, {0});
  const auto op = std::make_shared<Counted>(form, used);
  const Tensor same = custom("count", op, {h, seen});
  cross_entropy(read ? same : h, g.input("labels", {DType::i32, {4}}));
  return g;
}

TEST(OpWithABuffer, ChangesItInTrainingStepsAlone) {
  for (const bool read : {false, true}) {
    Stepping trained(compile_step(counting(read), {}), open_backend("ref"));
    Stepping used(compile_step(counting(read), evaluation()), open_backend("ref"),
                  trained.program.shared_store());
    EXPECT_EQ(count<Custom>(trained.program.graph()), 1) << "also if nothing reads its output";
    EXPECT_EQ(count<Custom>(used.program.graph()), read ? 1 : 0);
    Store& store = trained.program.store();
    store.initialize(5);
    trained.load(1);
    used.load(1);
    const auto train = eager_runner(trained.program), use = eager_runner(used.program);
    for (int step = 0; step < 3; ++step) {
      train->step();
      use->step();
    }
    EXPECT_EQ(store.read_buffer(0), std::vector<float>{3});
  }
}

TEST(OpWithABuffer, IsNotComputedAgainWithItsBlock) {
  Graph g;
  const std::vector<float> half{0.5F, 0.5F, 0.5F};
  const Tensor x = normalize(g.input("images", {DType::u8, {4, 2, 2, 3}}), half, half);
  const Tensor h = linear("block.b", linear("block.a", flatten(x), {.out = 3}), {.out = 3});
  const Tensor same =
      custom("block.count", std::make_shared<Counted>(), {h, g.buffer("seen", {1}, {0})});
  cross_entropy(linear("block.c", same, {.out = 3}), g.input("labels", {DType::i32, {4}}));
  StepOptions options;
  options.recompute = {"block"};
  const Graph step = compile_step(std::move(g), options);
  EXPECT_EQ(count<Linear>(step), 4) << "what block.b reads is made twice";
  EXPECT_EQ(count<Custom>(step), 1);
}

TEST(OpWithABuffer, IsNamedWhereItMakesTheBufferInfinite) {
  Stepping step(compile_step(counting(true, Counted::Form::inference, Counted::Form::infinite), {}),
                open_backend("ref"));
  step.program.store().initialize(5);
  step.load(1);
  EXPECT_THAT([&] { numerics_runner(step.program)->step(); },
              ThrowsMessage<NumericError>(HasSubstr("count/counted (forward")));
}

TEST(OpWithABuffer, HasTheSameOutputsInInference) {
  EXPECT_THAT([] { for_inference(counting(true, Counted::Form::wrong)); },
              ThrowsMessage<ShapeError>(HasSubstr("count/counted: its for_inference() has other "
                                                  "outputs")));
}

TEST(ForInference, GivesAModelThatCannotBeTrained) {
  EXPECT_THAT([] { differentiate(for_inference(residual())); },
              ThrowsMessage<Error>(HasSubstr("running statistics has no adjoint")));
}

// A user's op whose grad() is wrong.
class WrongGrad final : public CustomOp {
 public:
  explicit WrongGrad(std::function<void(Adjoint&)> grad) : grad_(std::move(grad)) {}
  std::string_view name() const override { return "wrong"; }
  Types infer(const Types& in) const override { return {in[0], {DType::i32, in[0].shape}}; }
  Cost cost(const Types&, const Types&) const override { return {}; }
  void grad(Adjoint& adjoint) const override { grad_(adjoint); }
  std::unique_ptr<Kernel> bind(std::string_view, const Graph&, const Node&) const override {
    return nullptr;
  }

 private:
  std::function<void(Adjoint&)> grad_;
};

TEST(CustomOp, NamesWhatItsGradGetsWrong) {
  const auto refused = [](const std::function<void(Adjoint&)>& grad, const std::string& words) {
    Graph graph;
    const Tensor x = linear("fc", graph.input("x", {DType::f32, {4, 8}}), {.out = 2});
    const Tensor y = custom("own", std::make_shared<WrongGrad>(grad), {x});
    cross_entropy(y, graph.input("labels", {DType::i32, {4}}));
    try {
      compile_step(std::move(graph), {.schedule = {.peak = 1}});
      ADD_FAILURE() << "no error; expected " << words;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr("own/wrong: its grad() " + words));
    }
  };
  refused([](Adjoint& a) { a.give(7, a.d_out()); }, "names input 7 of 1");
  refused([](Adjoint& a) { a.give(0, a.in(-1)); }, "names input -1 of 1");
  refused([](Adjoint& a) { a.give(0, a.out(3)); }, "names output 3 of 2");
  refused([](Adjoint& a) { a.give(0, a.out(1)); }, "gives input 0 a gradient of i32 4x2");
  Graph other;
  const Tensor stray = other.input("x", {DType::f32, {4, 2}});
  refused([&](Adjoint& a) { a.give(0, stray); }, "gives input 0 a gradient of another graph");
}

}  // namespace
}  // namespace warpstep
