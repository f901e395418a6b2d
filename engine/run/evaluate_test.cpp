// What a step takes of a batch, on the reference backend.

#include "engine/run/evaluate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/core/error.h"
#include "engine/graph/layers.h"
#include "engine/passes/compile.h"
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
                           Role role = Role::input) {
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
  Program program = evaluation_reading(DType::u8, false, Precision::fp32);
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
