// Attention over scores that are not finite: what has no answer is NaN, not a number that hides it.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "engine/graph/layers.h"
#include "engine/run/program.h"

namespace warpstep {
namespace {

constexpr float infinite = std::numeric_limits<float>::infinity();

struct Row {  // of the input: query, key and value of one feature
  float q, k, v;
};

// The output of one head over one sequence of these rows.
std::vector<float> attended(const std::string& backend_name, const std::vector<Row>& rows) {
  const std::shared_ptr<Backend> backend = open_backend(backend_name);
  Graph graph;
  const auto length = static_cast<std::int64_t>(rows.size());
  const Tensor qkv = graph.input("qkv", {DType::f32, {length, 3}});
  const Tensor o = attention(qkv, {.heads = 1, .sequence = length});
  const int output = o.id;
  Program program(std::move(graph), backend);
  program.store().initialize(0);
  const Value& value = program.graph().value(program.graph().inputs[0]);
  const std::shared_ptr<std::byte> slot = backend->allocate(value.layout.bytes);
  const std::vector<const void*> slots{slot.get()};
  program.set_inputs(slots);
  backend->write(value, slot.get(), std::as_bytes(std::span(rows)));
  for (std::size_t call = 0; call < program.calls().size(); ++call) program.enqueue(call);
  return program.read(output);
}

class AttentionOf : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Backends, AttentionOf, testing::Values("ref", "cpu"));

TEST_P(AttentionOf, AnInfiniteKeyIsNaN) {
  EXPECT_TRUE(std::isnan(attended(GetParam(), {{-1, infinite, 0.5F}})[0]));
  EXPECT_TRUE(std::isnan(attended(GetParam(), {{1, infinite, 0.5F}})[0]));
}

// Position 0 sees its own key alone, the others finite scores too.
TEST_P(AttentionOf, RowsWithAFiniteScoreHaveAnAnswer) {
  std::vector<Row> rows(21, {-1, 0.25F, 0.5F});
  rows[0].k = infinite;
  const std::vector<float> o = attended(GetParam(), rows);
  EXPECT_TRUE(std::isnan(o[0]));
  for (std::size_t i = 1; i < o.size(); ++i) EXPECT_NEAR(o[i], 0.5F, 1e-5F) << i;
}

// -1e40 is below all numbers of f32.
TEST(AttentionOnCpu, OfScoresThatOverflowIsNaN) {
  EXPECT_TRUE(std::isnan(attended("cpu", {{-1e20F, 1e20F, 0.5F}})[0]));
  EXPECT_TRUE(std::isnan(attended("cpu", {{-1e20F, 1e20F, 2}})[0]));
}

}  // namespace
}  // namespace warpstep
