// Batches whose rows have plans, from a model's inputs to the loss of its step, on the reference
// backend.
#include "tests/row_plans.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/core/error.h"
#include "engine/explain/explain.h"
#include "engine/run/trainer.h"
#include "tests/small_graphs.h"

namespace warpstep {
namespace {

using models::Images;
using testing::HasSubstr;
using testing::ThrowsMessage;

struct Input {
  std::string name;
  Type type;
  Role role;
  bool operator==(const Input&) const = default;
};
void PrintTo(const Input& input, std::ostream* out) {
  *out << input.name << " " << input.type.text() << " role " << static_cast<int>(input.role);
}

std::vector<Input> inputs_of(const models::BuildOptions& build) {
  const Graph graph = models::build(models::find("mlp"), build);
  std::vector<Input> inputs;
  for (const int id : graph.inputs)
    inputs.push_back({graph.value(id).name, graph.value(id).type, graph.value(id).role});
  return inputs;
}

TEST(Images, ComeByTheInputsThatTheyNeed) {
  models::BuildOptions build;
  build.batch = 4;
  const Input labels{"labels", {DType::i32, {4}}, Role::input};
  const Input rows{"rows", {DType::i32, {4, 14}}, Role::input};
  const Input bytes{"images", {DType::u8, {4, 28, 28, 1}}, Role::input};
  EXPECT_EQ(inputs_of(build), (std::vector{bytes, labels}));
  build.rows = true;
  EXPECT_EQ(inputs_of(build), (std::vector{bytes, labels, rows}));
  build.images = Images::floats;
  build.rows = false;
  const Input floats{"images", {DType::f32, {4, 28, 28, 1}}, Role::input};
  EXPECT_EQ(inputs_of(build), (std::vector{floats, labels}));
  build = testing_support::set_of_windows(4);
  const Input set{"images", {DType::u8, {9, 30, 30, 1}}, Role::resident};
  EXPECT_EQ(inputs_of(build), (std::vector{set, labels, rows}));
  build.images = Images::window;
  const Input window{"images", {DType::u8, {4, 30, 30, 1}}, Role::input};
  EXPECT_EQ(inputs_of(build), (std::vector{window, labels, rows}));
  build.uploaded = true;
  for (const Input& input : inputs_of(build)) EXPECT_EQ(input.role, Role::resident) << input.name;
}

TEST(Images, InWindowsNeedAPlan) {
  models::BuildOptions build = testing_support::set_of_windows(4);
  build.pixels.reset();
  EXPECT_THAT([&] { models::build(models::find("mlp"), build); },
              ThrowsMessage<ShapeError>(HasSubstr("mlp: windows or a resident set of images")));
}

TEST(Images, OfASetAreListedAsResident) {
  const Program program(
      compile_step(models::build(models::find("mlp"), testing_support::set_of_windows(4)), {}),
      open_backend("ref"));
  const std::string text = explain(program);
  EXPECT_THAT(text, HasSubstr("input/augment affine 1x2, mask 0.25 dilated, mix"));
  EXPECT_THAT(text, HasSubstr("images u8 9x30x30x1\n"));
  EXPECT_THAT(text, HasSubstr("labels i32 4, rows i32 4x14\n"));
}

// Two batches of four rows.
class Source final : public BatchSource {
 public:
  Source() {
    for (std::size_t i = 0; i < images_.size(); ++i)
      images_[i] = static_cast<std::uint8_t>(i * 37 % 256);
    batch_.add("images", std::span(images_));
    batch_.add("labels", std::span(labels_));
    batch_.count = 3;
  }
  void give(std::span<const RowPlan> rows) { batch_.add("rows", rows); }
  std::int64_t batch_size() const override { return 4; }
  std::uint64_t samples() const override { return 6; }
  std::uint64_t steps_per_epoch() const override { return 2; }
  const Batch& next() override { return batch_; }
  Position position() const override { return {}; }
  void seek(Position) override {}

 private:
  std::vector<std::uint8_t> images_ = std::vector<std::uint8_t>(4 * 28 * 28);
  std::vector<std::int32_t> labels_{3, 1, 4, -1};
  Batch batch_;
};

Program evaluation_of(const models::BuildOptions& build) {
  StepOptions options;
  options.training = false;
  Program program(compile_step(models::build(models::find("mlp"), build), options),
                  open_backend("ref"));
  program.store().initialize(1);
  return program;
}

// Plans that leave every row unchanged, with the colours of normalisation.
TEST(Evaluate, OfPlansThatChangeNothingIsThatOfNormalisedBytes) {
  models::BuildOptions build;
  build.batch = 4;
  Program plain = evaluation_of(build);
  build.images = Images::window;
  build.pixels = PixelPlan{.channels = 1};
  build.pixels->m[0][0] = 1 / (255 * 0.25F);
  build.pixels->shift[0] = -2;
  Program planned = evaluation_of(build);
  Source source;
  EXPECT_THAT([&] { evaluate(planned, source); },
              ThrowsMessage<Error>(HasSubstr("source provides none")));
  std::vector<RowPlan> rows(4);
  for (std::uint32_t r = 0; r < 4; ++r) rows[r].source = r;
  source.give(rows);
  const Score expected = evaluate(plain, source), score = evaluate(planned, source);
  EXPECT_NEAR(score.loss(), expected.loss(), 1e-6);
  EXPECT_EQ(score.correct, expected.correct);
  rows[1].source = 2;
  EXPECT_GT(std::abs(evaluate(planned, source).loss() - expected.loss()), 1e-5);
}

TEST(Mixup, IsInTheLossAndItsGradientInEveryPrecision) {
  for (const Precision precision : {Precision::fp32, Precision::bf16, Precision::fp16})
    for (const bool fused : {true, false}) {
      StepOptions options;
      options.precision = precision;
      if (!fused) options.no_fuse.emplace("softmax+xent");
      const Graph graph = compile_step(
          models::build(models::find("mlp"), testing_support::set_of_windows(4)), options);
      EXPECT_EQ(testing_support::count<SoftmaxXent>(graph), fused ? 1 : 0);
      for (const Node& node : graph.nodes)
        if (std::holds_alternative<SoftmaxXent>(node.op) || std::holds_alternative<Nll>(node.op) ||
            std::holds_alternative<NllGrad>(node.op)) {
          EXPECT_THAT(text(node.op), HasSubstr("+mixup"));
          EXPECT_NO_THROW(infer(node.op, graph.types(node.in)));
        }
    }
}

// A memorised batch, including its pairs.
TEST(Mixup, TrainsTowardsBothLabels) {
  StepOptions options;
  options.schedule.peak = 1e-3;
  testing_support::Stepping step(
      compile_step(models::build(models::find("mlp"), testing_support::set_of_windows(4)), options),
      open_backend("ref"));
  step.program.store().initialize(3);
  const auto runner = eager_runner(step.program);
  testing_support::load_with_plans(step, 1, testing_support::row_plans(4));
  runner->step();
  const float before = step.program.loss();
  for (int i = 0; i < 20; ++i) runner->step();
  EXPECT_LT(step.program.loss(), before - 0.5F);
}

}  // namespace
}  // namespace warpstep
