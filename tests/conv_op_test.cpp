// Convolutions with options and numbers that no case has.
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "tests/tested_backend.h"
#include "tests/tolerance.h"
#include "tests/trial.h"

namespace warpstep {
namespace {

using testing_support::Result;
using testing_support::Trial;

// Of which only the first window is there.
TEST(Conv, TakesAnyStride) {
  if (testing_support::tests_cuda()) GTEST_SKIP() << "the library has limits of its own";
  const auto backend = testing_support::open_tested_backend(testing_support::tested_backend());
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
