// From a language model's graph to that of a step that continues sequences.
#include "engine/passes/decode.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/core/error.h"
#include "engine/passes/compile.h"
#include "tests/small_graphs.h"

namespace warpstep {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;
using testing_support::count;

// Two layers of attention with dropout, over 12 positions.
Graph small_model(std::int64_t batch, std::int64_t sequence) {
  Graph graph;
  const Type type{DType::i32, {batch * sequence}};
  const Tensor tokens = graph.input("tokens", type), order = graph.input("order", type),
               labels = graph.input("labels", type);
  const Tensor embedded =
      embed("wte", "wpe", tokens, order,
            {.vocabulary = 23, .context = 12, .sequence = sequence, .width = 8});
  Tensor x = dropout(embedded, 0.1);
  for (const std::string layer : {"h.0", "h.1"})
    x = attention(linear(layer, x, {.out = 24}),
                  {.heads = 2, .sequence = sequence, .dropout = 0.1});
  cross_entropy(tied_head("lm_head", x, embedded), labels);
  return graph;
}

std::vector<std::string> input_names(const Graph& graph) {
  std::vector<std::string> names;
  for (const int id : graph.inputs) names.push_back(graph.value(id).name);
  return names;
}

TEST(ForDecoding, KeepsThePastOfEachAttentionInABuffer) {
  const Graph before = small_model(3, 2), g = for_decoding(before, 10);
  EXPECT_THAT(input_names(before), ElementsAre("tokens", "order", "labels"));
  EXPECT_THAT(input_names(g), ElementsAre("tokens", "position"));
  EXPECT_EQ(count<Embed>(g) + count<Attention>(g), 0);
  EXPECT_EQ(count<EmbedAt>(g), 1);
  EXPECT_EQ(count<CachedAttention>(g), 2);
  ASSERT_EQ(g.buffers.size(), 2U);
  EXPECT_EQ(g.buffers[1].name, "h.1.cache");
  EXPECT_FALSE(g.buffers[1].saved);
  EXPECT_EQ(g.value(g.buffers[1].value).type, (Type{DType::f32, {3, 10, 16}}));
  EXPECT_EQ(g.parameters.size(), before.parameters.size());
  EXPECT_EQ(g.loss, -1);
  EXPECT_EQ(g.value(g.logits).type, (Type{DType::f32, {6, 23}}));
  for (const Node& node : g.nodes)
    EXPECT_EQ(infer(node.op, g.types(node.in)), g.types(node.out)) << node.title();
}

TEST(ForDecoding, CompilesWithoutDropoutAndLoss) {
  const Graph g = compile_step(for_decoding(small_model(1, 1), 12), {.training = false});
  EXPECT_EQ(count<Dropout>(g), 0);
  EXPECT_EQ(count<CachedAttention>(g), 2);
  EXPECT_EQ(g.nodes.back().out[0], g.logits);
}

TEST(ForDecoding, RefusesWhatCannotContinueASequence) {
  const auto refusal = [](const std::string& part) {
    return ThrowsMessage<ShapeError>(HasSubstr(part));
  };
  EXPECT_THAT([] { for_decoding(small_model(1, 1), 13); },
              refusal("a context of 13 tokens is longer than the model's 12 positions"));
  EXPECT_THAT([] { for_decoding(small_model(1, 8), 4); },
              refusal("8 tokens at once are more than the 4 positions"));
  EXPECT_THAT([] { for_decoding(testing_support::two_branches(), 4); },
              refusal("a model that embeds no tokens"));
  Graph all_seen = small_model(1, 1);
  for (Node& node : all_seen.nodes)
    if (auto* attention = std::get_if<Attention>(&node.op)) attention->causal = false;
  EXPECT_THAT([&] { for_decoding(all_seen, 12); },
              refusal("h.0/attention: positions see later ones"));
}

TEST(WithoutLoss, LeavesTheLabelsOut) {
  const Graph g = without_loss(small_model(1, 4));
  EXPECT_THAT(input_names(g), ElementsAre("tokens", "order"));
  EXPECT_EQ(g.loss, -1);
  EXPECT_EQ(g.correct, -1);
  EXPECT_EQ(count<Attention>(g), 2);
}

}  // namespace
}  // namespace warpstep
