#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "engine/core/error.h"
#include "engine/run/runner.h"
#include "engine/run/store.h"
#include "tests/stepping.h"

namespace warpstep {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;
using testing_support::model_step;
using Section = Store::Section;

// conv 5 -> 4 of 3x3 on images of 2x6, then a linear layer after the flatten.
Graph small(bool training) {
  Graph g;
  const Tensor x = g.input("x", {DType::f32, {2, 2, 6, 5}});
  const Tensor h = conv("conv", x, {.out = 4, .padding = 1});
  cross_entropy(linear("fc", flatten(relu(h)), {.out = 3}), g.input("labels", {DType::i32, {2}}));
  StepOptions options;
  options.training = training;
  return compile_step(std::move(g), options);
}

std::vector<float> counting(std::int64_t count) {
  std::vector<float> values(idx(count));
  std::iota(values.begin(), values.end(), 1.0F);
  return values;
}

// The ref backend's storage: doubles in rows of the engine's shape.
const double* stored(const Program& program, std::size_t parameter) {
  return static_cast<const double*>(program.address(program.graph().parameters[parameter].value));
}

TEST(Store, KeepsConvolutionsWeightsAsOhwi) {
  Program program(small(true), open_backend("ref"));
  const std::vector<float> torch = counting(4 * 5 * 3 * 3);  // OIHW
  program.store().write(0, torch);
  EXPECT_EQ(program.store().torch_shape(0), (Shape{4, 5, 3, 3}));
  EXPECT_EQ(program.store().read(0), torch);
  for (std::int64_t o = 0; o < 4; ++o)
    for (std::int64_t i = 0; i < 5; ++i)
      for (std::int64_t h = 0; h < 3; ++h)
        for (std::int64_t w = 0; w < 3; ++w)
          ASSERT_EQ(stored(program, 0)[((o * 3 + h) * 3 + w) * 5 + i],
                    static_cast<double>(torch[idx(((o * 5 + i) * 3 + h) * 3 + w)]));
}

// PyTorch flattens [C,H,W]; the engine's rows are [H,W,C].
TEST(Store, KeepsTheFirstLinearLayerInTheOrderOfImages) {
  Program program(small(true), open_backend("ref"));
  const std::vector<float> torch = counting(3 * 4 * 2 * 6);
  program.store().write(2, torch);
  EXPECT_EQ(program.store().torch_shape(2), (Shape{3, 48}));
  EXPECT_EQ(program.store().read(2), torch);
  for (std::int64_t o = 0; o < 3; ++o)
    for (std::int64_t c = 0; c < 4; ++c)
      for (std::int64_t h = 0; h < 2; ++h)
        for (std::int64_t w = 0; w < 6; ++w)
          ASSERT_EQ(stored(program, 2)[((o * 2 + h) * 6 + w) * 4 + c],
                    static_cast<double>(torch[idx(((o * 4 + c) * 2 + h) * 6 + w)]));
}

TEST(Store, KeepsItsSectionsApart) {
  Program program(small(true), open_backend("ref"));
  Store& store = program.store();
  const Section all[] = {Section::parameter, Section::gradient, Section::moment1, Section::moment2};
  for (std::size_t p = 0; p < 4; ++p)
    for (const Section section : all) {
      std::vector<float> values = counting(store.torch_shape(p).count());
      for (float& value : values)
        value = value * 100 + static_cast<float>(10 * p) + static_cast<float>(section);
      store.write(p, values, section);
    }
  for (std::size_t p = 0; p < 4; ++p)
    for (const Section section : all)
      EXPECT_EQ(store.read(p, section)[0],
                100 + static_cast<float>(10 * p) + static_cast<float>(section));
}

TEST(Store, RefusesWhatDoesNotFit) {
  Program program(small(false), open_backend("ref"));
  Store& store = program.store();
  EXPECT_THAT([&] { store.write(1, std::vector<float>(5)); },
              ThrowsMessage<Error>("conv.bias: 5 values for f32 4"));
  EXPECT_THAT([&] { store.read(0, Section::moment1); },
              ThrowsMessage<Error>(HasSubstr("no moments: it does not train, or its optimiser")));
  const auto refused = [](const std::function<void()>& use, const std::string& words) {
    EXPECT_THAT(use, ThrowsMessage<UsageError>(words));
  };
  refused([&] { store.read(4); }, "parameter 4 of a store of 4");
  refused([&] { store.write(4, {}); }, "parameter 4 of a store of 4");
  refused([&] { store.torch_shape(4); }, "parameter 4 of a store of 4");
  refused([&] { store.read_buffer(0); }, "buffer 0 of a store of 0");
  refused([&] { store.write_buffer(0, {}); }, "buffer 0 of a store of 0");
  refused([&] { store.buffer_shape(0); }, "buffer 0 of a store of 0");
  Value buffer{.role = Role::buffer, .owner = 3};
  refused([&] { store.address(buffer); }, "buffer 3 of a store of 0");
  const Graph unchosen = model_step("mlp", 2);
  refused([&] { Store(open_backend("ref"), unchosen); },
          unchosen.parameters[0].name +
              ": its layout is not chosen; call the backend's choose_layouts() first");
  refused([&] { Store(nullptr, unchosen); },
          "a store of no backend: the pointer is null; see open_backend()");
  EXPECT_THAT([&] { store.report(-1); },
              ThrowsMessage<DeviceError>("ref: no report of step -1 arrived"));
  EXPECT_TRUE(store.block_sums(1).empty());
  Graph other = model_step("mlp", 2);
  EXPECT_THAT([&] { store.fix_layouts(other); },
              ThrowsMessage<Error>("a graph with 6 parameters cannot use a store of 4"));
  Graph renamed = small(false);
  renamed.parameters[2].name = "head.weight";
  EXPECT_THAT([&] { store.fix_layouts(renamed); },
              ThrowsMessage<Error>(
                  "parameter 2 is head.weight f32 3x48 in the graph, fc.weight f32 3x48 in the "
                  "store"));
}

TEST(Store, SaysWhichSectionItLacks) {
  Program training(small(true), open_backend("ref"));
  const auto says = [&](Section section, const std::string& text) {
    EXPECT_THAT([&] { training.store().read(0, section); }, ThrowsMessage<Error>(HasSubstr(text)));
    EXPECT_THAT([&] { training.store().write(1, counting(4), section); },
                ThrowsMessage<Error>(HasSubstr(text)));
  };
  says(Section::copy, "no copies: its step computes with the parameters");
  says(Section::accumulator, "no sums of gradients: it does not train, or each of its steps makes");
  says(Section::average, "no averages: its step keeps none of the parameters");
  Program evaluation(small(false), open_backend("ref"));
  EXPECT_THAT([&] { evaluation.store().read(0, Section::gradient); },
              ThrowsMessage<Error>("this store has no gradients: it does not train"));
}

TEST(Store, CarriesTheStepState) {
  Program program(small(true), open_backend("ref"));
  EXPECT_EQ(program.store().step_state().step, 0);
  StepState state;
  state.step = 1LL << 40;
  state.learning_rate = 0.25F;
  program.store().set_step_state(state);
  EXPECT_EQ(program.store().step_state().step, 1LL << 40);
  EXPECT_EQ(program.store().step_state().learning_rate, 0.25F);
}

TEST(Store, LaysParametersOutOnCacheLines) {
  Program program(small(true), open_backend("ref"));
  const Sections found = sections(program.graph());
  for (const std::size_t offset : found.offsets) EXPECT_EQ(offset % arena_alignment, 0U);
  EXPECT_EQ(program.store().bytes(), 4 * found.bytes);  // parameters, gradients, two moments
}

TEST(Initialize, IsAFunctionOfTheSeed) {
  Program one(small(true), open_backend("ref")), two(small(false), open_backend("ref"));
  one.store().initialize(7);
  two.store().initialize(7);
  for (std::size_t p = 0; p < 4; ++p) EXPECT_EQ(one.store().read(p), two.store().read(p));
  two.store().initialize(8);
  for (std::size_t p = 0; p < 4; ++p) EXPECT_NE(one.store().read(p), two.store().read(p));
}

TEST(Initialize, BeginsAgain) {
  StepOptions options;
  options.update.accumulate = 2;
  testing_support::Stepping step(model_step("mlp", 2, options), open_backend("ref"));
  Store& store = step.program.store();
  const auto losses = [&] {
    store.initialize(7);
    const auto runner = eager_runner(step.program);
    std::vector<float> found;
    for (std::uint64_t s = 0; s < 5; ++s) {  // the last one only accumulates
      step.load(s);
      runner->step();
      found.push_back(step.program.loss());
    }
    return found;
  };
  const std::vector<float> first = losses();
  EXPECT_EQ(losses(), first);
  EXPECT_EQ(store.step_state().step, 5);
  store.initialize(8);
  for (const Section section : {Section::moment1, Section::moment2, Section::accumulator}) {
    EXPECT_THAT(store.read(0, section), testing::Each(0.0F));
  }
  EXPECT_EQ(store.step_state().step, 0);
  EXPECT_EQ(store.step_state().seed, 8U);
}

// The first element in PyTorch's order is the first word of draw(seed, parameters, p, 0).
TEST(Initialize, DrawsInPyTorchsOrder) {
  Program program(small(true), open_backend("ref"));
  program.store().initialize(7);
  const std::vector<float> weight = program.store().read(0);
  const auto bound = static_cast<float>(1 / std::sqrt(45.0));
  for (std::size_t e = 0; e < weight.size(); ++e)
    ASSERT_EQ(weight[e], (2 * uniform(draw(7, Purpose::parameters, 0, e / 4)[e % 4]) - 1) * bound);
}

// Large enough for several threads, in extents that no square of the transposition divides.
TEST(Initialize, IsTheSameForAnyNumberOfThreads) {
  Graph g;
  const Tensor x = g.input("x", {DType::f32, {2, 3, 3, 131}});
  const Tensor h = conv("conv", x, {.out = 130});
  const Tensor y = linear("first", flatten(h), {.out = 137});
  cross_entropy(linear("fc", y, {.out = 1031}, {.transposed = true}),
                g.input("labels", {DType::i32, {2}}));
  StepOptions options;
  options.training = false;
  Program program(compile_step(std::move(g), options), open_backend("ref"));
  program.store().initialize(9);
  for (const std::size_t p : {0U, 4U}) {
    const Shape shape = program.store().torch_shape(p);
    const std::vector<float> values = program.store().read(p);
    const auto bound =
        static_cast<float>(1 / std::sqrt(p == 0 ? 131 * 9.0 : static_cast<double>(shape[0])));
    for (std::size_t e = 0; e < values.size(); ++e) {
      const auto words = draw(9, Purpose::parameters, static_cast<std::uint32_t>(p), e / 4);
      ASSERT_EQ(values[e], (2 * uniform(words[e % 4]) - 1) * bound) << p << ' ' << e;
    }
    // [O,I,H,W] is stored as [O,H,W,I], and the transposed [in,out] as [out,in].
    const std::int64_t outer = p == 0 ? 130 : 1, in = p == 0 ? 131 : 137,
                       columns = p == 0 ? 9 : 1031;
    for (std::int64_t o = 0; o < outer; ++o)
      for (std::int64_t r = 0; r < in; ++r)
        for (std::int64_t c = 0; c < columns; ++c)
          ASSERT_EQ(stored(program, p)[(o * columns + c) * in + r],
                    static_cast<double>(values[idx((o * in + r) * columns + c)]));
  }
}

// torch.nn.Conv2d and Linear: uniform in +-1 / sqrt(fan_in), whose variance is 1 / (3 fan_in).
TEST(Initialize, HasPyTorchsDistribution) {
  Program program(model_step("cifar10cnn", 1), open_backend("ref"));
  program.store().initialize(1);
  const double fan_in[] = {27, 27, 72, 72, 288, 288, 576, 576, 2048, 2048, 2048, 2048};
  for (std::size_t p = 0; p < 12; ++p) {
    const std::vector<float> values = program.store().read(p);
    const auto n = static_cast<double>(values.size());
    double sum = 0, squares = 0, largest = 0;
    for (const float value : values) {
      const auto v = static_cast<double>(value);
      sum += v;
      squares += v * v;
      largest = std::max(largest, std::abs(v));
    }
    const double bound = 1 / std::sqrt(fan_in[p]), variance = bound * bound / 3;
    EXPECT_LE(largest, bound * (1 + 1e-7));
    // Five standard deviations of the mean and of the mean square of n uniform numbers.
    EXPECT_NEAR(sum / n, 0, 5 * std::sqrt(variance / n)) << program.store().parameters()[p].name;
    EXPECT_NEAR(squares / n, variance, 5 * variance * std::sqrt(0.8 / n));
    if (n > 1000) {
      EXPECT_GT(largest, 0.99 * bound);
    }
  }
}

// ---- buffers

// A norm of 4 channels, and weights of 3 classes.
Graph with_buffers(bool training = true, bool unweighted = false) {
  Graph g;
  const Tensor x = g.input("x", {DType::f32, {2, 2, 6, 4}});
  const Tensor labels = g.input("labels", {DType::i32, {2}});
  cross_entropy(linear("fc", flatten(batch_norm("bn", x)), {.out = 3}), labels, {},
                {.class_weights = {1, 2, 4}, .unweighted = unweighted});
  StepOptions options;
  options.training = training;
  return compile_step(std::move(g), options);
}

TEST(StoreBuffers, BeginAsTheirLayersSay) {
  Program program(with_buffers(), open_backend("ref"));
  Store& store = program.store();
  store.initialize(1);
  ASSERT_EQ(store.buffers().size(), 3U);
  EXPECT_EQ(store.buffers()[0].name, "bn.running_mean");
  EXPECT_EQ(store.read_buffer(0), std::vector<float>(4, 0));
  EXPECT_EQ(store.buffers()[1].name, "bn.running_var");
  EXPECT_EQ(store.read_buffer(1), std::vector<float>(4, 1));
  EXPECT_EQ(store.buffers()[2].name, "loss.weight");
  EXPECT_EQ(store.read_buffer(2), (std::vector<float>{1, 2, 4}));
  EXPECT_TRUE(store.buffers()[1].saved);
  EXPECT_FALSE(store.buffers()[2].saved) << "the options have it";
}

TEST(StoreBuffers, KeepWhatIsWritten) {
  Program program(with_buffers(), open_backend("ref"));
  Store& store = program.store();
  store.initialize(1);
  const std::vector<float> weight = store.read(0);
  store.write_buffer(0, counting(4));
  store.write_buffer(1, std::vector<float>{4, 3, 2, 1});
  EXPECT_EQ(store.read_buffer(0), counting(4));
  EXPECT_EQ(store.read_buffer(1), (std::vector<float>{4, 3, 2, 1}));
  EXPECT_EQ(store.read_buffer(2), (std::vector<float>{1, 2, 4}));
  EXPECT_EQ(store.read(0), weight);
  EXPECT_EQ(store.buffer_shape(0), Shape{4});
  EXPECT_THAT([&] { store.write_buffer(1, counting(5)); },
              ThrowsMessage<Error>("bn.running_var: 5 values for f32 4"));
}

// Training and evaluation read and write the same statistics.
TEST(StoreBuffers, AreSharedByTheProgramsOfAStore) {
  Program training(with_buffers(), open_backend("ref"));
  Program testing(with_buffers(false), open_backend("ref"), training.shared_store());
  training.store().write_buffer(0, counting(4));
  const auto* mean = static_cast<const double*>(testing.address(testing.graph().buffers[0].value));
  EXPECT_EQ(std::vector<double>(mean, mean + 4), (std::vector<double>{1, 2, 3, 4}));
}

// Whose loss is the mean of the rows' own, whatever the shared weights.
TEST(StoreBuffers, AreSharedByAnEvaluationWithoutClassWeights) {
  Program training(with_buffers(), open_backend("ref"));
  Store& store = training.store();
  store.initialize(1);
  Program weighted(with_buffers(false), open_backend("ref"), training.shared_store());
  Program plain(with_buffers(false, true), open_backend("ref"), training.shared_store());
  std::vector<double> x(2 * 2 * 6 * 4);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<double>(i % 7);
  const auto loss = [&](Program& program, std::int32_t first, std::int32_t second) {
    const std::array labels{first, second};
    program.set_inputs(std::array<const void*, 2>{x.data(), labels.data()});
    eager_runner(program)->step();
    return program.loss();
  };
  const float both = loss(plain, 0, 2);
  EXPECT_NEAR(both, (loss(weighted, 0, -1) + loss(weighted, -1, 2)) / 2, 1e-5);
  EXPECT_GT(std::abs(both - loss(weighted, 0, 2)), 1e-3);
}

TEST(StoreBuffers, RefuseOtherGraphs) {
  Program program(with_buffers(), open_backend("ref"));
  const Store& store = program.store();
  Graph fewer = with_buffers();
  fewer.buffers.pop_back();
  EXPECT_THAT([&] { store.fix_layouts(fewer); },
              ThrowsMessage<Error>("a graph with 2 buffers cannot use a store of 3"));
  Graph renamed = with_buffers();
  renamed.buffers[1].name = "norm.running_var";
  EXPECT_THAT(
      [&] { store.fix_layouts(renamed); },
      ThrowsMessage<Error>("buffer 1 is norm.running_var in the graph, bn.running_var in the "
                           "store"));
  Graph narrower = with_buffers();
  narrower.value(narrower.buffers[2].value).type.shape = {2};
  EXPECT_THAT([&] { store.fix_layouts(narrower); },
              ThrowsMessage<Error>(HasSubstr("buffer 2 is loss.weight")));
}

TEST(StoreBuffers, HaveNamesAndValuesOfTheirOwn) {
  Graph g;
  g.buffer("a", {3}, {1, 2, 3});
  EXPECT_THAT([&] { g.buffer("a", {3}, {0}); },
              ThrowsMessage<ShapeError>(HasSubstr("two buffers are called a")));
  const auto both = ThrowsMessage<ShapeError>(HasSubstr("a parameter and a buffer are called"));
  EXPECT_THAT([&] { parameter(g, "a", {3}, {}); }, both);
  parameter(g, "p", {3}, {});
  EXPECT_THAT([&] { g.buffer("p", {3}, {0}); }, both);
  EXPECT_THAT(
      [&] {
        g.buffer("b", {3}, {1, 2});
      },
      ThrowsMessage<ShapeError>("b: 2 initial values for 3"));
}

}  // namespace
}  // namespace warpstep
