// What a step takes of a batch, on the reference backend.

#include "engine/run/evaluate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "engine/core/error.h"
#include "engine/graph/layers.h"
#include "engine/passes/compile.h"
#include "engine/passes/decode.h"
#include "tests/deferred_backend.h"
#include "tests/stepping.h"

namespace warpstep {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;
using testing_support::model_step;

constexpr std::int64_t step_rows = 8, row_pixels = 4 * 4 * 2;

// One batch of numbers of type T, without an end.
template <class T>
class Given final : public BatchSource {
 public:
  explicit Given(std::int64_t rows) : pixels_(idx(rows * row_pixels)), labels_(idx(rows)) {
    batch_.add("images", std::span(pixels_));
    batch_.add("labels", std::span(labels_));
    batch_.count = rows;
  }
  std::int64_t batch_size() const override { return batch_.count; }
  std::uint64_t samples() const override { return labels_.size(); }
  std::uint64_t steps_per_epoch() const override { return 1; }
  const Batch& next() override { return batch_; }
  Position position() const override { return {}; }
  void seek(Position) override {}

 private:
  std::vector<T> pixels_;
  std::vector<std::int32_t> labels_;
  Batch batch_;
};

Program evaluation_reading(DType images, bool converts, Precision precision,
                           Role role = Role::input, std::string_view no_fuse = {}) {
  Graph g;
  const Tensor given = g.input("images", {images, {step_rows, 4, 4, 2}}, role);
  const Tensor labels = g.input("labels", {DType::i32, {step_rows}});
  const std::vector<float> half(2, 0.5F);
  const Tensor x = images == DType::u8 ? normalize(given, half, half)
                   : converts          ? convert(given)
                                       : given;
  cross_entropy(linear("fc", flatten(x), {.out = 3}), labels);
  StepOptions options;
  options.training = false;
  options.precision = precision;
  if (!no_fuse.empty()) options.no_fuse.emplace(no_fuse);
  Program program(compile_step(std::move(g), options), open_backend("ref"));
  program.store().initialize(1);
  return program;
}

template <class T>
void evaluate_rows(Program& program, std::int64_t rows) {
  Given<T> source(rows);
  evaluate(program, source);
}

TEST(GiveBatch, RefusesAnotherSize) {
  Program program = evaluation_reading(DType::u8, false, Precision::fp32);
  EXPECT_NO_THROW(evaluate_rows<std::uint8_t>(program, step_rows));
  EXPECT_THAT([&] { evaluate_rows<std::uint8_t>(program, 4); },
              ThrowsMessage<Error>("the step reads 'images' as u8 8x4x4x2, 256 bytes, but its "
                                   "source gives 128 bytes"));
  EXPECT_THAT([&] { evaluate_rows<std::uint8_t>(program, 9); },
              ThrowsMessage<Error>(HasSubstr("256 bytes, but its source gives 288 bytes")));
  EXPECT_THAT([&] { evaluate_rows<float>(program, step_rows); },
              ThrowsMessage<Error>(HasSubstr("256 bytes, but its source gives 1024 bytes")));
}

// The set in the device's memory may have more images than the step counts; what a batch brings
// there may not.
TEST(GiveBatch, TakesMoreOfWhatIsResident) {
  Program program = evaluation_reading(DType::u8, false, Precision::fp32, Role::resident);
  const std::vector<std::uint8_t> more(idx((step_rows + 1) * row_pixels));
  const std::vector<std::int32_t> labels(idx(step_rows));
  const auto give = [&](std::size_t bytes, bool in_slot = false) {
    Batch batch;
    if (in_slot) batch.slot = std::as_bytes(std::span(more));
    batch.add("images", std::span(more).first(bytes));
    batch.add("labels", std::span(labels));
    give_batch(program, batch);
  };
  EXPECT_NO_THROW(give(more.size()));
  EXPECT_NO_THROW(give(256, true));
  EXPECT_THAT([&] { give(255); }, ThrowsMessage<Error>(HasSubstr("its source gives 255 bytes")));
  EXPECT_THAT([&] { give(288, true); },
              ThrowsMessage<Error>(HasSubstr("its source gives 288 bytes")));
}

TEST(GiveBatch, RefusesLabelsBeyondTheClasses) {
  for (const std::string_view no_fuse : {"", "softmax+xent"}) {
    Program program = evaluation_reading(DType::u8, false, Precision::fp32, Role::input, no_fuse);
    const std::vector<std::uint8_t> images(idx(step_rows * row_pixels));
    const std::int64_t classes = program.graph().value(program.graph().logits).type.shape[1];
    const auto give = [&](std::int64_t label) {
      std::vector<std::int32_t> labels(idx(step_rows), -1);
      labels[2] = static_cast<std::int32_t>(label);
      Batch batch;
      batch.add("images", std::span(images));
      batch.add("labels", std::span(labels));
      give_batch(program, batch);
    };
    EXPECT_NO_THROW(give(classes - 1));
    EXPECT_THAT([&] { give(classes); },
                ThrowsMessage<DataError>(fmt::format(
                    "label {0} in row 2 of a batch, but the model has {0} classes", classes)));
  }
}

// Which the host cannot read.
TEST(GiveBatch, ReadsNoIndicesOfADevice) {
  for (const int steps_in_flight : {0, 1}) {
    Graph g;
    const Tensor x = g.input("x", {DType::f32, {1, 2}});
    cross_entropy(linear("fc", x, {.out = 3}), g.input("labels", {DType::i32, {1}}));
    Program program(
        compile_step(std::move(g), {.training = false}),
        std::make_shared<testing_support::DeferredBackend>(open_backend("ref"), steps_in_flight));
    const std::vector<double> numbers(2, 1);  // as the reference stores them
    const std::int32_t beyond = 3;
    Batch batch;
    batch.add("x", std::span(numbers));
    batch.add("labels", std::span(&beyond, 1));
    if (steps_in_flight == 0)
      EXPECT_THROW(give_batch(program, batch), DataError);
    else
      EXPECT_NO_THROW(give_batch(program, batch));
  }
}

// Both would read the same bytes.
TEST(GiveBatch, RefusesTwoInputsOfOneName) {
  Graph g;
  const Tensor a = g.input("x", {DType::f32, {2, 2}}), b = g.input("x", {DType::f32, {2, 2}});
  g.logits = add(a, b).id;
  Program program(compile_step(std::move(g), {.training = false}), open_backend("ref"));
  const std::vector<double> numbers(4, 1), others(4, 2);
  Batch batch;
  batch.add("x", std::span(numbers));
  EXPECT_THAT([&] { give_batch(program, batch); },
              ThrowsMessage<UsageError>(HasSubstr("two inputs of the step are called 'x'")));
  const std::array<const void*, 2> slots{numbers.data(), others.data()};
  program.set_inputs(slots);
  eager_runner(program)->step();
  EXPECT_THAT(program.read(program.graph().logits), testing::Each(3));
}

// Its kernel computes nothing.
class OwnLoss final : public CustomOp {
 public:
  std::string_view name() const override { return "own"; }
  Types infer(const Types&) const override { return {{DType::f32, {}}}; }
  Cost cost(const Types&, const Types&) const override { return {}; }
  std::unique_ptr<Kernel> bind(std::string_view, const Graph&, const Node&) const override {
    class Nothing final : public Kernel {
      void enqueue(Stream&, const Buffers&) const override {}
    };
    return std::make_unique<Nothing>();
  }
};

// What a loss of the user's own reads as labels are no indices of logits.
TEST(GiveBatch, TakesAnyLabelsForALossOfItsOwn) {
  for (const DType dtype : {DType::i32, DType::f32}) {
    Graph g;
    const Tensor x = g.input("x", {DType::i32, {4, 2}});
    const Tensor labels = g.input("labels", {dtype, {4}});
    const Tensor loss = custom("loss", std::make_shared<OwnLoss>(), {x, labels});
    set_loss(loss);
    g.logits = dtype == DType::i32 ? x.id : loss.id;  // two numbers a row, or one number
    Program program(compile_step(std::move(g), {.training = false}), open_backend("ref"));
    const std::vector<std::int32_t> numbers(8, 1000);
    const std::vector<double> targets(4, 1000);
    Batch batch;
    batch.add("x", std::span(numbers));
    if (dtype == DType::i32) batch.add("labels", std::span(numbers).first(4));
    if (dtype == DType::f32) batch.add("labels", std::span(targets));
    EXPECT_NO_THROW(give_batch(program, batch));
  }
}

TEST(GiveBatch, RefusesTokensAndTheirOrderOutOfBounds) {
  Graph g;
  const Type tokens{DType::i32, {4}};
  const Tensor x = embed("wte", "wpe", g.input("tokens", tokens), g.input("order", tokens),
                         {.vocabulary = 9, .context = 4, .sequence = 4, .width = 3});
  cross_entropy(linear("fc", x, {.out = 5}), g.input("targets", tokens));
  Program program(compile_step(std::move(g), {.schedule = {.peak = 1}}), open_backend("ref"));
  const auto give = [&](std::string_view name, std::int32_t number) {
    std::vector<std::int32_t> numbers[3]{{0, 5, 5, 8}, {0, 1, 2, 3}, {0, 1, 2, 3}};
    const std::string_view names[3]{"tokens", "order", "targets"};
    Batch batch;
    for (std::size_t i = 0; i < 3; ++i) {
      if (names[i] == name) numbers[i][1] = number;
      batch.add(names[i], std::span(numbers[i]));
    }
    give_batch(program, batch);
  };
  const auto refused = [&](std::string_view name, std::int32_t number, const std::string& words) {
    EXPECT_THAT([&] { give(name, number); }, ThrowsMessage<DataError>(words));
  };
  EXPECT_NO_THROW(give("tokens", 4));
  EXPECT_NO_THROW(give("targets", -1));
  refused("tokens", 9, "token 9 in row 1 of a batch, but the model has 9 tokens");
  refused("tokens", -1, "token -1 in row 1 of a batch, but the model has 9 tokens");
  for (const std::int32_t order : {-1, 4})
    refused("order", order,
            fmt::format("order {} in row 1 of a batch, but the model has 4 rows", order));
  refused("targets", 5, "label 5 in row 1 of a batch, but the model has 5 classes");
  // The table's gradient would be wrong.
  const std::string words = ": the order is that of a stable sort of the rows by their tokens";
  refused("tokens", 6,
          "order 2 in row 2 of a batch, but that row's token 5 does not follow token 6 of row 1" +
              words);
  refused("order", 2,
          "order 2 in row 2 of a batch, but that row's token 5 does not follow token 5 of row 2" +
              words);
}

// Caches would be written there, and rows of the table of positions read.
TEST(GiveBatch, RefusesPositionsWithoutRoomForTheTokens) {
  Graph g;
  const Type tokens{DType::i32, {2}};
  const Tensor x = embed("wte", "wpe", g.input("tokens", tokens), g.input("order", tokens),
                         {.vocabulary = 9, .context = 8, .sequence = 2, .width = 4});
  const Tensor y = attention(linear("qkv", x, {.out = 12}), {.heads = 2, .sequence = 2});
  g.logits = linear("fc", y, {.out = 9}).id;
  Program program(compile_step(for_decoding(std::move(g), 6), {.training = false}),
                  open_backend("ref"));
  const auto give = [&](std::int32_t position, std::int32_t token = 1) {
    const std::vector<std::int32_t> numbers{0, token};
    Batch batch;
    batch.add("tokens", std::span(numbers));
    batch.add("position", std::span(&position, 1));
    give_batch(program, batch);
  };
  EXPECT_NO_THROW(give(4));
  // Of the table, and of the cache.
  for (const auto& [position, most] : {std::pair{-1, 7}, {7, 7}, {5, 5}})
    EXPECT_THAT([&] { give(position); },
                ThrowsMessage<DataError>(fmt::format(
                    "position {} in row 0 of a batch, but the model has {} positions for the first "
                    "of the step's tokens",
                    position, most)));
  EXPECT_THAT([&] { give(0, 9); }, ThrowsMessage<DataError>(HasSubstr("token 9 in row 1")));
}

TEST(GiveBatch, RefusesRowPlansOutOfBounds) {
  Graph g;
  const Tensor rows = g.input("rows", row_plans_type(2));
  const Tensor x = augment(g.input("images", {DType::u8, {2, 4, 4, 3}}, Role::resident), rows,
                           {.mix = true}, {4, 4});
  cross_entropy(linear("fc", flatten(x), {.out = 5}), g.input("labels", {DType::i32, {2}}), rows);
  Program program(compile_step(std::move(g), {.training = false}), open_backend("ref"));
  const std::vector<std::uint8_t> images(3 * 48);  // a set of more than the step counts
  const std::vector<std::int32_t> labels(2);
  const auto give = [&](const RowPlan& plan) {
    const std::vector<RowPlan> plans{{}, plan};
    Batch batch;
    batch.add("images", std::span(images));
    batch.add("labels", std::span(labels));
    batch.add("rows", std::span(plans));
    give_batch(program, batch);
  };
  const auto refused = [&](const RowPlan& plan, const std::string& words) {
    EXPECT_THAT([&] { give(plan); }, ThrowsMessage<DataError>(words));
  };
  EXPECT_NO_THROW(give({.source = 2, .pair = 9, .pair_label = 9}));  // which is not read
  refused({.source = 3}, "image 3 in row 1 of a batch, but there are 3");
  refused({.pair = 2, .weight = 0.5F}, "the pair 2 in row 1 of a batch, but it has 2 rows");
  refused({.weight = 0.5F, .pair_label = 5},
          "the pair's label 5 in row 1 of a batch, but the model has 5 classes");
}

TEST(GiveBatch, RefusesF32ThatIsReadIn16Bits) {
  for (const Precision precision : {Precision::bf16, Precision::fp16}) {
    Program program = evaluation_reading(DType::f32, false, precision);
    EXPECT_THAT([&] { evaluate_rows<float>(program, step_rows); },
                ThrowsMessage<Error>(
                    AllOf(HasSubstr("in this precision the step reads 'images' as"),
                          HasSubstr("its source gives f32, 1024 bytes"), HasSubstr("convert()"))));
  }
}

// It keeps them in double precision.
TEST(GiveBatch, RefusesF32OnTheReference) {
  Program program = evaluation_reading(DType::f32, true, Precision::fp32);
  EXPECT_THAT([&] { evaluate_rows<float>(program, step_rows); },
              ThrowsMessage<Error>(AllOf(HasSubstr("f32 8x4x4x2, 2048 bytes in this backend"),
                                         HasSubstr("its source gives f32, 1024 bytes"))));
  EXPECT_NO_THROW(evaluate_rows<double>(program, step_rows));
}

// The running statistics of the evaluation's own store are those of its beginning.
TEST(TakeAverage, TakesTheStatisticsAndTheStateOfTheStep) {
  const auto backend = open_backend("ref");
  StepOptions averaged, forward{.training = false};
  averaged.update.average_decay = 0.5;
  Program step(model_step("mnist_cnn", 1, averaged), backend),
      evaluation(model_step("mnist_cnn", 1, forward), backend);
  Store &from = step.store(), &to = evaluation.store();
  from.initialize(1);
  to.initialize(2);
  ASSERT_FALSE(from.buffers().empty());
  for (std::size_t b = 0; b < from.buffers().size(); ++b)
    from.write_buffer(b, std::vector<float>(from.read_buffer(b).size(), 3));
  StepState state = from.step_state();
  state.step = 7;
  from.set_step_state(state);
  take_average(from, to);
  for (std::size_t p = 0; p < to.parameters().size(); ++p)
    EXPECT_EQ(to.read(p), from.read(p, Store::Section::average));
  for (std::size_t b = 0; b < to.buffers().size(); ++b)
    EXPECT_EQ(to.read_buffer(b), from.read_buffer(b));
  EXPECT_EQ(to.step_state().step, 7);
}

}  // namespace
}  // namespace warpstep
