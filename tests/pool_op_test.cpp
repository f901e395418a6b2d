// Pools with numbers that no case has.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "engine/core/error.h"
#include "tests/tested_backend.h"
#include "tests/trial.h"

namespace warpstep {
namespace {

using testing_support::Result;
using testing_support::Trial;

// A run that diverges must end with a message, not with a finite loss or with writes outside of the
// image.
TEST(Pool, OfNotANumberIsNaNAndPointsIntoTheImage) {
  std::shared_ptr<Backend> backend;
  try {
    backend = testing_support::open_tested_backend(testing_support::tested_backend());
  } catch (const DeviceError& error) {
    GTEST_SKIP() << error.what();
  }
  for (const std::size_t channels : {3, 16}) {
    cases::Case c;
    const double nan = std::numeric_limits<double>::quiet_NaN();
    const Type type{DType::f32, {1, 5, 4, static_cast<std::int64_t>(channels)}};
    const Tensor x = cases::input(c, "x", type, {cases::Fill::Kind::constant, nan});
    max_pool(x, {.window = 3, .stride = 2, .padding = 1});
    const std::vector<Result> results = Trial(c, backend).run();
    for (const float maximum : results[0].floats) EXPECT_TRUE(std::isnan(maximum));
    ASSERT_EQ(results[1].integers.size(), 3 * 2 * channels);
    for (std::size_t o = 0; o < results[1].integers.size(); ++o) {
      const auto pixel = static_cast<int>(o / channels);
      const int h = pixel / 2 * 2 - 1 + results[1].integers[o] / 3;
      const int w = pixel % 2 * 2 - 1 + results[1].integers[o] % 3;
      EXPECT_TRUE(h >= 0 && h < 5 && w >= 0 && w < 4) << "output " << o;
    }
  }
}

TEST(Pool, ComputesNothingOfNoImages) {
  std::shared_ptr<Backend> backend;
  try {
    backend = testing_support::open_tested_backend(testing_support::tested_backend());
  } catch (const DeviceError& error) {
    GTEST_SKIP() << error.what();
  }
  for (const std::int64_t channels : {3, 16})
    for (const std::int64_t stride : {1, 2, 5}) {
      cases::Case c;
      const Tensor x = cases::input(c, "x", {DType::f32, {0, 9, 7, channels}});
      max_pool(x, {.window = 5, .stride = stride, .padding = 1});
      c = cases::with_adjoint(std::move(c));
      EXPECT_TRUE(Trial(c, backend).run()[0].floats.empty());
    }
}

}  // namespace
}  // namespace warpstep
