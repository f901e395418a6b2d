// Warpstep's own cases: every op has one.
#include <gtest/gtest.h>

#include <array>
#include <set>

#include "kernels/cases.h"
#include "tests/trial.h"

namespace warpstep {
namespace {

// An op without a case is an op that no test runs.
TEST(Cases, EveryOpHasOne) {
  std::set<std::size_t> seen;
  for (const cases::Case& c : cases::all()) {
    const cases::Case tried = cases::has_adjoint(c) ? cases::with_adjoint(c) : c;
    for (const Node& node : tried.graph.nodes) seen.insert(node.op.index());
  }
  const auto names = []<std::size_t... I>(std::index_sequence<I...>) {
    return std::array{std::variant_alternative_t<I, OpVariant>::name...};
  }
  (std::make_index_sequence<std::variant_size_v<OpVariant>>());
  for (std::size_t op = 0; op < names.size(); ++op) {
    if (names[op] == Custom::name) continue;  // the engine has no kernels for it
    EXPECT_TRUE(seen.contains(op))
        << "no case has " << names[op] << "; add one to kernels/*/*.cases.cpp";
  }
}

TEST(GuardedMemory, EndsATestThatReadsBeyondIt) {
  using testing_support::Guarded;
  for (const std::size_t bytes : {1U, 64U, 4096U, 10000U}) {
    const std::size_t lines = (bytes + 63) / 64 * 64;
    const auto last = testing_support::guarded_memory(bytes, Guarded::end);
    const auto first = testing_support::guarded_memory(bytes, Guarded::begin);
    for (std::size_t i = 0; i < lines; ++i)
      EXPECT_EQ(std::to_integer<int>(last.get()[i]) + std::to_integer<int>(first.get()[i]), 0);
    const auto read = [](const std::byte* at) {
      return std::to_integer<int>(*static_cast<const volatile std::byte*>(at));
    };
    EXPECT_DEATH(read(last.get() + lines), "");
    EXPECT_DEATH(read(first.get() - 1), "");
  }
}

}  // namespace
}  // namespace warpstep
