#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/core/error.h"
#include "kernels/loss/loss.cuda.h"
#include "tests/device_memory.h"
#include "tests/loss_batch.h"

namespace warpstep::cuda {
namespace {

using testing::Array;
using testing::Batch;
using testing::expect_near;
using testing::Expected;
using testing::expected_of;
using testing::Floats;
using testing::Memory;
using testing::settled;

std::vector<double> padded(const std::vector<double>& rows, std::size_t columns,
                           std::size_t pitch) {
  std::vector<double> out(rows.size() / columns * pitch);
  for (std::size_t i = 0; i < rows.size(); ++i) out[i / columns * pitch + i % columns] = rows[i];
  return out;
}

// The operands of softmax_xent on the device.
struct Xent {
  explicit Xent(const Batch& b)
      : batch(b),
        logits(b.dtype, b.logits),
        labels(b.labels),
        plans(b.plans),
        ticket(std::vector<std::uint32_t>{0}) {}
  // Loss, top-1 and gradient, one after the other.
  std::vector<float> run(bool gradient, const StepState* state, bool keeps_rows = false) const {
    const Array<float> loss(1);
    const Array<std::int32_t> correct(1);
    const Floats d_logits(batch.dtype, batch.logits.size());
    const Memory workspace(softmax_xent_workspace(batch.shape));
    softmax_xent(batch.shape,
                 {.logits = logits.data(),
                  .labels = labels.data(),
                  .rows = batch.rows_of(plans),
                  .loss = loss.data(),
                  .correct = correct.data(),
                  .d_logits = gradient ? d_logits.data() : nullptr,
                  .state = state,
                  .workspace = workspace.data(),
                  .ticket = ticket.data(),
                  .keeps_rows = keeps_rows},
                 batch.dtype, nullptr);
    EXPECT_EQ(ticket.value(), 0U);
    std::vector<float> all{loss.value(), static_cast<float>(correct.value())};
    const std::vector<float> d = gradient ? d_logits.values() : std::vector<float>();
    all.insert(all.end(), d.begin(), d.end());
    return all;
  }
  void expect(const std::vector<float>& all, double loss_scale) const {
    const Expected e = expected_of(batch, loss_scale);
    expect_near({all[0]}, {e.loss}, 1e-5, 1e-6);
    EXPECT_EQ(all[1], static_cast<float>(e.correct));
    if (all.size() > 2)
      expect_near({all.begin() + 2, all.end()},
                  padded(e.d_logits, batch.classes(), idx(batch.shape.pitch)),
                  2 * epsilon(batch.dtype), 1e-6 * loss_scale);
  }

  const Batch& batch;
  Floats logits;
  Array<std::int32_t> labels;
  Array<RowPlan> plans;
  Array<std::uint32_t> ticket;
};

void expect_xent(const Batch& b, const StepState* state = nullptr, double loss_scale = 1) {
  const Xent xent(b);
  for (const bool gradient : {false, true})
    for (const bool keeps_rows : {false, true})
      xent.expect(settled([&] { return xent.run(gradient, state, keeps_rows); }), loss_scale);
}

class LossCuda : public ::testing::TestWithParam<DType> {
 protected:
  DType dtype() const { return GetParam(); }
};

TEST_P(LossCuda, SoftmaxXentScalesTheGradientAlone) {
  StepState state;
  state.loss_scale = 1024;
  const Array<StepState> on_device(std::vector<StepState>{state});
  expect_xent(Batch(dtype(), 128, 10, 3, 9), on_device.data(), 1024);
}

// One row whose loss is NaN: its top-1, by both kernels, and its gradient.
void expect_nan(const Batch& b) {
  const Expected e = expected_of(b, 1);
  const Floats logits(b.dtype, b.logits), d_logits(b.dtype, b.logits.size());
  const Array<std::int32_t> labels(b.labels), correct(1), alone(1);
  const Array<float> loss(1);
  softmax_xent(b.shape,
               {.logits = logits.data(),
                .labels = labels.data(),
                .loss = loss.data(),
                .correct = correct.data(),
                .d_logits = d_logits.data(),
                .keeps_rows = true},
               b.dtype, nullptr);
  top1(b.shape, logits.data(), labels.data(), alone.data(), b.dtype, nullptr);
  EXPECT_TRUE(std::isnan(loss.value()));
  EXPECT_TRUE(std::isnan(d_logits.values()[1]));
  EXPECT_EQ(d_logits.values().back(), 0.0F) << "padding";
  EXPECT_EQ(correct.value(), e.correct);
  EXPECT_EQ(alone.value(), e.correct);
}

// Rows of a group of lanes, of a whole block, and in 16 bits in shared memory.
constexpr std::size_t few_and_many[] = {10, 5001, 9001};

// As std::max_element: a NaN is the first maximum in the first place, and nowhere else.
TEST_P(LossCuda, Nan) {
  for (const std::size_t classes : few_and_many)
    for (const std::size_t at : {0U, 2U, 3U})
      for (const std::int32_t label : {0, 2, 3, 9}) {
        SCOPED_TRACE(::testing::Message()
                     << classes << " classes, NaN at " << at << ", label " << label);
        Batch b(dtype(), 1, classes, 1, 10);
        b.logits[9] = 5;
        b.logits[at] = std::numeric_limits<float>::quiet_NaN();
        b.labels = {label};
        expect_nan(b);
      }
}

TEST_P(LossCuda, NothingButMinusInfinity) {
  for (const std::size_t classes : few_and_many)
    for (const std::int32_t label : {0, 3, 9}) {
      SCOPED_TRACE(::testing::Message() << classes << " classes, label " << label);
      Batch b(dtype(), 1, classes, 1, 10);
      std::fill_n(b.logits.begin(), classes, -std::numeric_limits<float>::infinity());
      b.labels = {label};
      expect_nan(b);
    }
}

// Of a whole block, with several vectors a lane: the label's logit alone, and one as large before
// and after it in its own vector, in its lane's next one and in those of others; a larger one;
// lanes with nothing but -inf; the last class; a row that does not count.
TEST_P(LossCuda, ManyClasses) {
  constexpr std::int32_t classes = 13001, label = 8205, none = -1;
  const auto width = static_cast<std::int32_t>(16 / size_bytes(dtype()));
  const std::int32_t equals[] = {
      none, label - 1, label + 1, label - 512 * width, label + 512 * width, 0, 8, classes - 1};
  Batch b(dtype(), std::size(equals) + 4, classes, 3, 5);
  const auto logit = [&](std::size_t row, std::int32_t k) -> float& {
    return b.logits[row * idx(b.shape.pitch) + static_cast<std::size_t>(k)];
  };
  for (std::size_t r = 0; r < b.rows(); ++r) {
    b.labels[r] = label;
    logit(r, label) = 8;
    if (r < std::size(equals) && equals[r] > none && equals[r] < classes) logit(r, equals[r]) = 8;
  }
  std::size_t row = std::size(equals);
  logit(row++, 4000) = 9;
  std::fill_n(&logit(row++, 0), 8000, -std::numeric_limits<float>::infinity());
  b.labels[row] = classes - 1;
  logit(row++, classes - 1) = 10;
  b.labels[row] = none;
  expect_xent(b);
  b.mix();
  expect_xent(b);
}

TEST_P(LossCuda, SoftmaxXentOfNoRows) {
  expect_xent(Batch(dtype(), 0, 10, 1, 4));
}

TEST_P(LossCuda, OpByOpOfNoRows) {
  const Batch b(dtype(), 0, 10, 1, 12);
  const Array<float> loss(1);
  const Array<std::int32_t> correct(1);
  log_softmax(b.shape, nullptr, nullptr, dtype(), nullptr);
  nll(b.shape, nullptr, nullptr, nullptr, {}, loss.data(), dtype(), nullptr);
  nll_grad(b.shape, nullptr, nullptr, {}, nullptr, nullptr, dtype(), nullptr);
  log_softmax_grad(b.shape, nullptr, nullptr, nullptr, dtype(), nullptr);
  top1(b.shape, nullptr, nullptr, correct.data(), dtype(), nullptr);
  EXPECT_EQ(loss.value(), 0.0F);
  EXPECT_EQ(correct.value(), 0);
}

INSTANTIATE_TEST_SUITE_P(DTypes, LossCuda, ::testing::Values(DType::f32, DType::f16, DType::bf16),
                         [](const auto& of) { return std::string(name(of.param)); });

TEST(LossCudaRows, MayBeMoreThanBlocks) {
  const Batch b(DType::f16, 1420, 520, 4, 1);
  const Xent xent(b);
  xent.expect(xent.run(true, nullptr), 1);
}

// In place, too: a block copies its next row while it writes over this one. Of 264 blocks seven
// have two rows, of which in one the first is padding, in one the second and in one both.
TEST(LossCudaRows, OfSharedMemoryMayBeMoreThanBlocks) {
  Batch b(DType::bf16, 271, 8203, 4, 1);
  for (const std::size_t row : {2, 264 + 3, 4, 264 + 4}) b.labels[row] = -1;
  const Xent xent(b);
  const std::vector<float> apart = xent.run(true, nullptr, true);
  xent.expect(apart, 1);
  const Array<float> loss(1);
  const Array<std::int32_t> correct(1);
  const Memory workspace(softmax_xent_workspace(b.shape));
  const Floats in_place(b.dtype, b.logits);
  softmax_xent(b.shape,
               {.logits = in_place.data(),
                .labels = xent.labels.data(),
                .loss = loss.data(),
                .correct = correct.data(),
                .d_logits = in_place.data(),
                .workspace = workspace.data(),
                .ticket = xent.ticket.data(),
                .keeps_rows = true},
               b.dtype, nullptr);
  EXPECT_EQ(loss.value(), apart[0]);
  EXPECT_EQ(in_place.values(), std::vector<float>(apart.begin() + 2, apart.end()));
}

// GPT-2's, padded to whole sectors, and one that is too long for two blocks of a multiprocessor.
TEST(LossCudaRows, OfSharedMemoryMayBeAsLongAsTheVocabularyOfGpt2) {
  for (const std::size_t classes : {50257U, 50690U}) {
    Batch b(DType::f16, 2, classes, 4, 1);
    const auto pitch = (b.shape.classes + 63) / 64 * 64;
    std::vector<float> padded(2 * idx(pitch), std::numeric_limits<float>::quiet_NaN());
    for (std::size_t r = 0; r < 2; ++r)
      std::copy_n(b.logits.begin() + static_cast<std::ptrdiff_t>(r * idx(b.shape.pitch)), classes,
                  padded.begin() + static_cast<std::ptrdiff_t>(r * idx(pitch)));
    b.logits = padded;
    b.shape.pitch = pitch;
    EXPECT_EQ(may_keep_rows(b.shape, b.dtype), classes == 50257);
    const Xent xent(b);
    xent.expect(xent.run(true, nullptr, true), 1);
  }
}

}  // namespace
}  // namespace warpstep::cuda
