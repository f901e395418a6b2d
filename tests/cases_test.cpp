// Warpstep's own cases: every op has one.
#include <gtest/gtest.h>

#include <array>
#include <set>

#include "kernels/cases.h"

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

}  // namespace
}  // namespace warpstep
