// Convolutions of the CPU backend with options, sizes and numbers that no case has.
#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "tests/tolerance.h"
#include "tests/trial.h"

namespace warpstep {
namespace {

using testing_support::Result;
using testing_support::Trial;

// Groups may be computed together, with weights of zero between them, but not with exact_math: NaN
// times 0 is NaN.
TEST(Conv, KeepsNaNInItsGroupWithExactMath) {
  const auto backend = open_backend("cpu", {.exact_math = true});
  for (const std::int64_t out : {8, 16}) {
    cases::Case c;
    const Tensor x = cases::input(c, "x", {DType::f32, {2, 9, 7, 8}}, {.nan = true});
    conv("conv", x, {.out = out, .kernel = 3, .padding = 1, .groups = 4});
    const std::vector<Result> ours = Trial(c, backend).run();
    const std::vector<Result> theirs = Trial(c, open_backend("ref")).run();
    ASSERT_EQ(ours[0].floats.size(), theirs[0].floats.size());
    std::size_t finite = 0;
    for (std::size_t i = 0; i < ours[0].floats.size(); ++i) {
      const bool nan = std::isnan(theirs[0].floats[i]);
      ASSERT_EQ(std::isnan(ours[0].floats[i]), nan) << out << " outputs, number " << i;
      finite += nan ? 0 : 1;
    }
    EXPECT_GT(finite, 0U);
  }
}

// Winograd's weight gradient in several chunks of tiles, whose sums the threads share as they are
// large, and weights that stay in no cache: too much for the reference, so against products.
TEST(Conv, AddsLargeWeightGradientsInChunks) {
  for (const std::int64_t stride : {1, 2}) {
    cases::Case c;
    const Shape shape{86, 6 * stride, 6 * stride, 352};
    const Tensor x = cases::input(c, "x", {DType::f32, shape});
    conv("conv", x, {.out = 336, .kernel = 3, .stride = stride, .padding = 1});
    c = cases::with_adjoint(std::move(c));
    const auto run = [&](bool exact_math) {
      return Trial(c, open_backend("cpu", {.threads = 3, .exact_math = exact_math})).run();
    };
    const std::vector<Result> ours = run(false), theirs = run(true);
    ASSERT_EQ(ours.size(), theirs.size());
    for (std::size_t r = 0; r < ours.size(); ++r)
      EXPECT_LT(testing_support::relative_difference(ours[r].floats, theirs[r].floats), 1e-5)
          << ours[r].what << ", stride " << stride;
    EXPECT_NE(ours[0].floats, theirs[0].floats) << "the same kernel";
  }
}

// A convolution and its gradients as the reference computes them, and all by Winograd's kernels.
void expect_winograd(const Type& type, const Conv& op, const std::string& form = "winograd") {
  static const auto backend = open_backend("cpu", {.threads = 3}), ref = open_backend("ref");
  SCOPED_TRACE(testing::Message() << type.text() << " to " << op.out << ", padding " << op.padding
                                  << (op.pool ? ", pool" : ""));
  cases::Case c;
  conv("conv", cases::input(c, "x", type), op);
  c = cases::with_adjoint(std::move(c));
  Trial ours(c, backend);
  int calls = 0;
  for (const Call& call : ours.program().calls()) {
    const std::string kernel = call.kernel->implementation();
    if (!call.title.starts_with("conv/conv")) continue;
    EXPECT_TRUE(kernel.starts_with(form)) << call.title << ": " << kernel;
    ++calls;
  }
  EXPECT_EQ(calls, 3) << "a convolution and both gradients";
  const std::vector<Result> b = Trial(c, ref).run(), a = ours.run_beside(b);
  ASSERT_LE(a.size(), b.size());
  for (std::size_t r = 0; r < a.size(); ++r) {
    ASSERT_EQ(a[r].what, b[r].what);
    EXPECT_LT(testing_support::relative_difference(a[r].floats, b[r].floats), 1e-5) << a[r].what;
  }
}

// On images of a few pixels products leave out the taps outside, which the definition counts.
TEST(Conv, TellsHowManyFlopsItExecutes) {
  const auto backend = open_backend("cpu", {.threads = 1, .exact_math = true});
  struct Case {
    std::int64_t pixels, stride, outputs;  // of an axis
    double inside;                         // of the taps of all outputs
  };
  for (const auto& [pixels, stride, outputs, inside] :
       {Case{1, 1, 1, 1.0 / 9}, Case{2, 1, 2, 4.0 / 9}, Case{2, 2, 1, 4.0 / 9}, Case{8, 1, 8, 1}}) {
    SCOPED_TRACE(testing::Message() << pixels << " pixels, stride " << stride);
    cases::Case c;
    conv("conv", cases::input(c, "x", {DType::f32, {6, pixels, pixels, 24}}),
         {.out = 32, .kernel = 3, .stride = stride, .padding = 1});
    const Trial trial(cases::with_adjoint(std::move(c)), backend);
    int calls = 0;
    for (const Call& call : trial.program().calls()) {
      if (!call.title.starts_with("conv/conv")) continue;
      const auto counted = static_cast<double>(2 * 6 * outputs * outputs * 9 * 24 * 32);
      EXPECT_DOUBLE_EQ(call.cost.flops, counted) << call.title;
      EXPECT_DOUBLE_EQ(call.executed_flops(), inside * counted) << call.title;
      ++calls;
    }
    EXPECT_EQ(calls, 3) << "a convolution and both gradients";
  }
  cases::Case c;
  conv("conv", cases::input(c, "x", {DType::f32, {6, 1, 1, 20}}),
       {.out = 20, .kernel = 3, .padding = 1, .groups = 4});
  const Trial joined(std::move(c), open_backend("cpu", {.threads = 1}));
  const Call& call = joined.program().calls()[0];
  EXPECT_THAT(call.kernel->implementation(), testing::HasSubstr("4 groups at once"));
  EXPECT_DOUBLE_EQ(call.executed_flops(), 2.0 * 6 * 20 * 20) << "one tap, with zeros";
}

// An image of 2x2 pixels is one tile. Threads divide the tiles, or with 64 or more channels of a
// multiple of 16 the channels; the weight gradient's sums are each thread's own, or all threads'.
TEST(Conv, ComputesTinyImagesInWinograd) {
  for (const auto& [images, in, out] :
       {std::array{6, 16, 16}, std::array{900, 17, 40}, std::array{37, 80, 64},
        std::array{130, 264, 200}, std::array{25, 640, 500}})
    for (const bool bias : {false, true})
      expect_winograd(
          {DType::f32, {images, 2, 2, in}},
          {.out = out, .kernel = 3, .padding = 1, .bias = bias, .relu = bias && in == 17},
          "winograd 2x2");
}

// Winograd's last tiles have three outputs where four would leave the image. With few channels and
// many images threads divide the tiles, with many channels and few images the channels.
TEST(Conv, EndsImagesWithShortTilesInWinograd) {
  constexpr std::int64_t sizes[] = {3, 5, 6, 7, 9, 10, 11, 12, 13, 14};
  for (const auto& [pixels, in, out] :
       {std::array{5000, 17, 20}, std::array{4000, 40, 24}, std::array{250, 128, 144}})
    for (std::size_t i = 0; i < std::size(sizes); ++i) {
      const std::int64_t height = sizes[i], width = sizes[(3 * i + 1) % std::size(sizes)];
      const Type type{DType::f32, {pixels / (height * width), height, width, in}};
      Conv op{.out = out, .kernel = 3, .padding = 1, .bias = true};
      expect_winograd(type, op);
      op.padding = i % 2 == 0 ? 2 : 0;
      if (std::min(height, width) > 3) expect_winograd(type, op);
      op.padding = 1;
      op.pool = MaxPool{.window = 2, .stride = 2, .padding = 0};
      expect_winograd(type, op);
      op.pool.reset();
      op.stride = 2;
      const Shape larger{type.shape[0], 2 * height - 1, 2 * width, in};
      if (std::min(height, width) > 5) expect_winograd({DType::f32, larger}, op);
    }
}

// Of which only the first window is there.
TEST(Conv, TakesAnyStride) {
  const auto backend = open_backend("cpu");
  cases::Case c;
  const Tensor x = cases::input(c, "x", {DType::f32, {2, 5, 6, 3}});
  conv("conv", x, {.out = 8, .kernel = 3, .stride = std::int64_t{1} << 40, .padding = 1});
  c = cases::with_adjoint(std::move(c));
  const std::vector<Result> ours = Trial(c, backend).run();
  const std::vector<Result> theirs = Trial(c, open_backend("ref")).run();
  ASSERT_EQ(ours.size(), theirs.size());
  for (std::size_t r = 0; r < ours.size(); ++r)
    EXPECT_LT(testing_support::relative_difference(ours[r].floats, theirs[r].floats), 1e-5)
        << ours[r].what;
}

}  // namespace
}  // namespace warpstep
