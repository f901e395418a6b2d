// An op from outside the engine in a whole step: the loss of docs/custom_op after two branches that
// share their weights, on a backend (tests/tested_backend.h), against the reference and PyTorch.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>

#include "docs/custom_op/cosine_embedding.h"
#include "engine/core/error.h"
#include "engine/core/random.h"
#include "engine/explain/explain.h"
#include "engine/graph/adjoint.h"
#include "engine/passes/autodiff.h"
#include "engine/passes/compile.h"
#include "engine/run/runner.h"
#include "kernels/kernel.h"
#include "tests/runners.h"
#include "tests/tested_backend.h"

namespace warpstep {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;
using testing_support::check_runner;
using testing_support::open_tested_backend;
using testing_support::tested_backend;

// 5 and 7 are no multiples of a vector: backends that pad rows must undo it before the op.
Graph siamese(std::int64_t pairs = 64) {
  Graph g;
  const Tensor a = g.input("a", {DType::f32, {pairs, 12}});
  const Tensor b = g.input("b", {DType::f32, {pairs, 12}});
  const Tensor y = g.input("y", {DType::i32, {pairs}});
  const Tensor h1 = linear("fc1", a, {.out = 7}), x1 = linear("fc2", relu(h1), {.out = 5});
  const Tensor x2 = twin(relu(twin(b, h1)), x1);
  cosine_embedding_loss(x1, x2, y, 0.1);
  return g;
}

class Steps {
 public:
  Steps(const Graph& graph, const std::shared_ptr<Backend>& backend, StepOptions options = {})
      : backend_(backend), program(compile_step(graph, options_for(*backend, options)), backend) {
    std::vector<const void*> addresses;
    for (const int id : program.graph().inputs) {
      slots_.push_back(backend->allocate(program.graph().value(id).layout.bytes));
      addresses.push_back(slots_.back().get());
    }
    program.set_inputs(addresses);
    program.store().initialize(1);
  }

  void write(int input, const std::vector<float>& numbers) {
    const Value& value = program.graph().value(program.graph().inputs[idx(input)]);
    std::vector<std::int32_t> integers(numbers.begin(), numbers.end());
    const auto bytes = value.type.dtype == DType::i32 ? std::as_bytes(std::span(integers))
                                                      : std::as_bytes(std::span(numbers));
    backend_->write(value, program.address(program.graph().inputs[idx(input)]), bytes);
  }

  void load(std::uint64_t seed) {
    for (int input = 0; input < 3; ++input) {
      const Type& type = program.graph().value(program.graph().inputs[idx(input)]).type;
      std::vector<float> numbers;
      for (std::uint64_t i = 0; i < static_cast<std::uint64_t>(type.shape.count()); ++i) {
        const auto word = draw(seed, Purpose::synthetic, static_cast<std::uint32_t>(input), i)[0];
        numbers.push_back(input < 2 ? 2 * uniform(word) - 1 : below(word, 2) == 0 ? -1.0F : 1.0F);
      }
      write(input, numbers);
    }
  }

 private:
  std::shared_ptr<Backend> backend_;
  std::vector<std::shared_ptr<std::byte>> slots_;

 public:
  Program program;
};

class CustomOpStep : public testing::Test {
 protected:
  void SetUp() override {
    try {
      backend_ = open_tested_backend(tested_backend());
    } catch (const DeviceError& error) {
      GTEST_SKIP() << error.what();
    }
  }
  std::shared_ptr<Backend> backend_;
};

// Two branches share each parameter, custom gradients arrive, layouts change around the op.
TEST_F(CustomOpStep, AgreesWithTheReferenceCallByCall) {
  std::vector<Precision> precisions{Precision::fp32};
  if (testing_support::tests_cuda())
    precisions = {Precision::fp32, Precision::bf16, Precision::fp16};
  for (const Precision precision : precisions) {
    if (!testing_support::why_not(*backend_, precision).empty()) continue;
    StepOptions options;
    options.precision = precision;
    options.schedule.peak = 1e-4;
    Steps ours(siamese(), backend_, options);
    // The same fusions on both sides.
    Steps theirs(siamese(), open_backend("ref"), options_for(*backend_, options));
    const auto check = check_runner(ours.program, theirs.program);
    for (std::uint64_t step = 1; step <= 2; ++step) {
      ours.load(step);
      theirs.load(step);
      ASSERT_NO_THROW(check->step()) << name(precision) << " step " << step;
    }
    EXPECT_EQ(ours.program.correct(), 0);
  }
}

TEST_F(CustomOpStep, TrainsAndReportsWithoutACountOfRightSamples) {
  StepOptions options;
  options.schedule.peak = 0.01;
  Steps steps(siamese(), backend_, options);
  const auto runner = graph_runner(steps.program);
  steps.load(1);
  for (int i = 0; i < 40; ++i) {
    runner->step();
    steps.program.wait();
  }
  const StepReport first = steps.program.store().report(33),
                   last = steps.program.store().report(40);
  EXPECT_EQ(last.step, 40);
  EXPECT_LT(last.loss, first.loss);
  EXPECT_LT(last.loss, 0.35F);
  EXPECT_EQ(last.correct, 0);
}

// import torch
// x1 = torch.tensor([[1, 2, -1, .5], [.5, -1, 2, 1], [-1, 1, .25, 2]], requires_grad=True)
// x2 = torch.tensor([[2, 1, .5, -1], [1, -.5, 1.5, 0], [1, -1, .5, -2]], requires_grad=True)
// torch.nn.CosineEmbeddingLoss(margin=0.1)(x1, x2, torch.tensor([1, -1, -1])).backward()
// in float64: the loss, x1.grad and x2.grad
TEST_F(CustomOpStep, GivesPyTorchsLossAndGradients) {
  Graph g;
  const auto weight = [&](const char* name) {
    return parameter(g, name, {3, 4}, {Initial::Kind::constant, 0});
  };
  const Tensor x1 = weight("x1"), x2 = weight("x2"), y = g.input("y", {DType::i32, {3}});
  cosine_embedding_loss(x1, x2, y, 0.1);
  StepOptions options;
  options.schedule.peak = 0;
  Steps steps(g, backend_, options);
  steps.program.store().write(0, std::vector<float>{1, 2, -1, .5F, .5F, -1, 2, 1, -1, 1, .25F, 2});
  steps.program.store().write(1,
                              std::vector<float>{2, 1, .5F, -1, 1, -.5F, 1.5F, 0, 1, -1, .5F, -2});
  steps.write(0, {1, -1, -1});
  eager_runner(steps.program)->step();
  EXPECT_NEAR(static_cast<double>(steps.program.loss()), 0.4250786580398814, 1e-7);
  const std::vector<double> d_x1{-0.08106666666665778,
                                 -0.0021333333333411753,
                                 -0.05226666666665421,
                                 0.06613333333332069,
                                 0.04846337186677914,
                                 0.009977753031387641,
                                 0.01567932619220669,
                                 -0.04561258528636961,
                                 0,
                                 0,
                                 0,
                                 0};
  const std::vector<double> d_x2{-0.0021333333333411753,
                                 -0.08106666666665778,
                                 0.06613333333332069,
                                 -0.05226666666665421,
                                 -0.045816212899239234,
                                 -0.03054414193285334,
                                 0.02036276128859607,
                                 0.07126966450996394,
                                 0,
                                 0,
                                 0,
                                 0};
  for (const std::size_t p : {0U, 1U}) {
    const std::vector<float> gradient = steps.program.store().read(p, Store::Section::gradient);
    ASSERT_EQ(gradient.size(), 12U);
    for (std::size_t i = 0; i < 12; ++i)
      EXPECT_NEAR(static_cast<double>(gradient[i]), (p == 0 ? d_x1 : d_x2)[i], 1e-7)
          << p << " " << i;
  }
}

// As PyTorch's: an error in the embeddings must show in the loss.
TEST_F(CustomOpStep, APairWithoutACosineHasNoLoss) {
  for (const float y : {1.0F, -1.0F}) {
    Steps steps(siamese(), backend_);
    steps.load(1);
    std::vector<float> a(64 * 12, 0.5F);
    a[3 * 12] = std::numeric_limits<float>::quiet_NaN();
    steps.write(0, a);
    steps.write(2, std::vector<float>(64, y));
    eager_runner(steps.program)->step();
    EXPECT_TRUE(std::isnan(steps.program.loss())) << y;
  }
}

// Its name in a listing and in the profiler.
TEST_F(CustomOpStep, IsListedByItsOwnName) {
  const Steps steps(siamese(), backend_);
  const std::string text = explain_calls(steps.program);
  EXPECT_THAT(text, HasSubstr("loss/cosine_embedding margin 0.1"));
  EXPECT_THAT(text, HasSubstr("loss/cosine_embedding.dgrad margin 0.1"));
  EXPECT_THAT(text, HasSubstr("loss/loss.dgrad"));
}

// An op without kernels and without any of the optional functions.
class Halved : public CustomOp {
 public:
  std::string_view name() const override { return "halved"; }
  Types infer(const Types& in) const override { return in; }
  Cost cost(const Types& in, const Types& out) const override {
    return {1, bytes_of(in) + bytes_of(out), 1};
  }
  std::unique_ptr<Kernel> bind(std::string_view, const Graph&, const Node&) const override {
    return nullptr;
  }
};

TEST_F(CustomOpStep, SaysWhenABackendHasNoKernel) {
  Graph g;
  custom("half", std::make_shared<Halved>(), {g.input("x", {DType::f32, {2, 3}})});
  EXPECT_THAT([&] { Program(g, backend_); },
              ThrowsMessage<DeviceError>(HasSubstr("half/halved has no kernel for this backend")));
}

TEST(CustomOp, SaysWhatDoesNotFit) {
  Graph g;
  const Tensor x = g.input("x", {DType::f32, {4, 6}}), y = g.input("y", {DType::i32, {3}});
  EXPECT_THAT([&] { cosine_embedding_loss(x, x, y, 0); },
              ThrowsMessage<ShapeError>(HasSubstr("cosine_embedding of f32 4x6 needs y i32 4")));
  EXPECT_THAT([&] { set_loss(x); },
              ThrowsMessage<ShapeError>(HasSubstr("a loss is one number, f32 [], not f32 4x6")));
  EXPECT_THAT(
      [&] { twin(x, x); },
      ThrowsMessage<ShapeError>("twin takes the output of linear() of the same graph, not x"));
}

TEST(CustomOp, WithoutAnAdjointCannotBeTrainedThrough) {
  Graph g;
  const Tensor x = linear("fc", g.input("x", {DType::f32, {4, 6}}), {.out = 3});
  const Tensor h = custom("half", std::make_shared<Halved>(), {x});
  cosine_embedding_loss(h, h, g.input("y", {DType::i32, {4}}), 0);
  EXPECT_THAT(
      [&] { differentiate(g); },
      ThrowsMessage<NoAdjoint>(HasSubstr("halved has no adjoint; override CustomOp::grad")));
}

TEST(CustomOp, LossIsScaledInFp16) {
  StepOptions options;
  options.precision = Precision::fp16;
  const Graph g = compile_step(siamese(), options);
  int scaled = 0;
  for (const Node& node : g.nodes)
    if (const auto* loss = std::get_if<LossGrad>(&node.op)) {
      EXPECT_TRUE(loss->scaled);
      EXPECT_EQ(node.in, std::vector<int>{g.state});
      ++scaled;
    }
  EXPECT_EQ(scaled, 1);
}

class WithoutOutput final : public Halved {
 public:
  Types infer(const Types&) const override { return {}; }
};

// Its adjoint gives its first input the gradient of the second.
class Swapped final : public Halved {
 public:
  Types infer(const Types& in) const override { return {in[1]}; }
  void grad(Adjoint& adjoint) const override { adjoint.give(0, adjoint.d_out()); }
};

TEST(CustomOp, SaysWhatAUsersOpDoesWrong) {
  Graph g;
  const Tensor x = g.input("x", {DType::f32, {4, 3}});
  EXPECT_THAT([&] { custom("none", nullptr, {x}); },
              ThrowsMessage<UsageError>(HasSubstr("custom(\"none\"): the op is null")));
  EXPECT_THAT([&] { custom("half", std::make_shared<Halved>(), {}); },
              ThrowsMessage<UsageError>(HasSubstr("halved has no inputs")));
  EXPECT_THAT([&] { custom("empty", std::make_shared<WithoutOutput>(), {x}); },
              ThrowsMessage<ShapeError>(HasSubstr("its infer() gives no output")));
  const Tensor h = custom("swap", std::make_shared<Swapped>(), {linear("a", x, {.out = 5}), x});
  cross_entropy(h, g.input("labels", {DType::i32, {4}}));
  EXPECT_THAT([&] { differentiate(g); },
              ThrowsMessage<ShapeError>(HasSubstr("gives a gradient of 4x3 for input 0, which is "
                                                  "4x5")));
}

// x -> x; the gradient passes unchanged.
class Passed final : public CustomOp {
 public:
  std::string_view name() const override { return "passed"; }
  Types infer(const Types& in) const override { return in; }
  Cost cost(const Types&, const Types&) const override { return {}; }
  void grad(Adjoint& adjoint) const override { adjoint.give(0, adjoint.d_out()); }
  std::unique_ptr<Kernel> bind(std::string_view, const Graph&, const Node&) const override {
    return nullptr;
  }
};

// x -> x; one of its answers throws what is no Error.
class Throwing final : public CustomOp {
 public:
  explicit Throwing(std::string_view where) : where_(where) {}
  std::string_view name() const override { return "throwing"; }
  Types infer(const Types& in) const override { return at("infer()"), in; }
  Cost cost(const Types&, const Types&) const override { return at("cost()"), Cost{}; }
  void grad(Adjoint& adjoint) const override {
    at("grad()");
    adjoint.give(0, adjoint.d_out());
  }
  std::unique_ptr<Kernel> bind(std::string_view, const Graph&, const Node&) const override {
    at("bind()");
    return host_kernel("loops", [where = where_](const Buffers&) { Throwing(where).at("kernel"); });
  }

 private:
  void at(std::string_view place) const {
    if (where_ == place) throw 42;
  }
  std::string_view where_;
};

TEST(CustomOp, NamesTheOpWhoseAnswerThrew) {
  const std::shared_ptr<Backend> ref = open_backend("ref");
  for (const std::string where : {"infer()", "cost()", "grad()", "bind()", "kernel"}) {
    const auto run = [&] {
      Graph g;
      const Tensor x = linear("fc", g.input("x", {DType::f32, {4, 6}}), {.out = 3});
      const Tensor out = custom("mine", std::make_shared<Throwing>(where), {x});
      cross_entropy(out, g.input("labels", {DType::i32, {4}}));
      Program program(compile_step(std::move(g), {}), ref);
      const std::vector<double> images(24);  // as the reference stores f32
      const std::vector<std::int32_t> labels(4);
      const std::array<const void*, 2> slots{images.data(), labels.data()};
      program.set_inputs(slots);
      eager_runner(program)->step();
    };
    EXPECT_THAT(run, ThrowsMessage<Error>("mine/throwing: its " + where +
                                          " threw: an exception of type int, which is not a "
                                          "std::exception"));
  }
}

TEST(CustomOp, CrossEntropyMustBeTheLossItself) {
  Graph g;
  const Tensor x = linear("fc", g.input("x", {DType::f32, {4, 6}}), {.out = 3});
  cross_entropy(x, g.input("labels", {DType::i32, {4}}));
  set_loss(custom("more", std::make_shared<Passed>(), {{&g, g.loss}}));
  EXPECT_THAT([&] { differentiate(g); },
              ThrowsMessage<Error>(HasSubstr("cross-entropy must be the loss itself")));
}

// The gradient of a parameter that two branches share, against central differences in double.
TEST(SharedParameter, GetsTheGradientOfBothBranches) {
  StepOptions options;
  options.optimizer.kind = Optimizer::Kind::sgd;
  options.schedule.peak = 0;  // the update leaves the parameters alone
  Steps steps(siamese(), open_backend("ref"), options);
  steps.load(1);
  Program& program = steps.program;
  const auto loss = [&] {
    for (std::size_t call = 0; call < program.calls().size(); ++call) program.enqueue(call);
    return *static_cast<const double*>(program.address(program.graph().loss));
  };
  for (const Parameter& parameter : program.graph().parameters) {
    loss();
    const auto count = program.graph().value(parameter.value).type.shape.count();
    auto* values = static_cast<double*>(program.address(parameter.value));
    const auto* d = static_cast<const double*>(program.address(parameter.gradient));
    const std::vector<double> gradient(d, d + count);
    for (std::int64_t e = 0; e < count; ++e) {
      const double value = values[e], h = 1e-6;
      values[e] = value + h;
      const double ahead = loss();
      values[e] = value - h;
      const double behind = loss();
      values[e] = value;
      EXPECT_NEAR((ahead - behind) / (2 * h), gradient[idx(e)], 1e-7)
          << parameter.name << " element " << e;
    }
  }
}

}  // namespace
}  // namespace warpstep
