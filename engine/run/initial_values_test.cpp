#include "engine/run/initial_values.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "engine/core/random.h"
#include "engine/core/types.h"

namespace warpstep {
namespace {

// Box and Muller's numbers by the library's functions.
std::vector<double> expected_normal(const InitialDraws& of, std::int64_t first, std::size_t count) {
  std::vector<double> values;
  for (std::int64_t q = first; values.size() < count; ++q) {
    const auto words =
        draw(of.seed, Purpose::parameters, of.parameter, static_cast<std::uint64_t>(q));
    for (std::size_t i = 0; i < 4; i += 2) {
      const double radius = std::sqrt(-2 * std::log(1 - static_cast<double>(uniform(words[i]))));
      const double angle = 2 * std::numbers::pi * static_cast<double>(uniform(words[i + 1]));
      values.push_back(of.initial.value * radius * std::cos(angle));
      values.push_back(of.initial.value * radius * std::sin(angle));
    }
  }
  values.resize(count);
  return values;
}

TEST(InitialValues, AreNormalNumbersOfTheirDraws) {
  const InitialDraws of{{Initial::Kind::normal, 0.02}, 5, 3};
  for (const std::int64_t first : {std::int64_t{0}, (std::int64_t{1} << 32) - 5}) {
    const std::size_t count = 4 * 5000 + 3;
    const std::vector<double> expected = expected_normal(of, first, count);
    std::vector<float> values(count);
    initial_values(of, first, static_cast<std::int64_t>(count), values.data());
    std::size_t rounded_otherwise = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const auto nearest = static_cast<float>(expected[i]);
      rounded_otherwise += values[i] != nearest;
      ASSERT_NEAR(values[i], expected[i], std::abs(expected[i]) * 0x1p-23) << i;
    }
    EXPECT_LE(rounded_otherwise, 1U);  // doubles that differ by 1e-15 seldom round apart
  }
}

TEST(InitialValues, DoNotDependOnTheInstructionSet) {
  for (const Initial initial : {Initial{Initial::Kind::normal, 0.5}, {Initial::Kind::uniform, 2}})
    for (const std::int64_t count : {1, 63, 64, 1000}) {
      const InitialDraws of{initial, 11, 2};
      std::vector<float> expected(idx(count));
      initial_values_variants().back().run(of, 7, count, expected.data());
      for (const InitialValuesVariant& variant : initial_values_variants()) {
        std::vector<float> values(idx(count) + 1, 42);
        variant.run(of, 7, count, values.data());
        EXPECT_EQ(values.back(), 42);
        values.pop_back();
        EXPECT_EQ(values, expected) << name(variant.isa);
      }
    }
}

}  // namespace
}  // namespace warpstep
