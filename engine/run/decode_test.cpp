// Which token a sampling chooses, and what of a long text a model sees.
#include "engine/run/decode.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <numeric>

#include "engine/core/error.h"
#include "engine/graph/layers.h"
#include "engine/passes/compile.h"

namespace warpstep {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;
using testing::ThrowsMessage;

// How often each token is chosen, by 1,000 numbers that divide [0, 1) evenly.
std::map<std::int32_t, int> choices(const std::vector<float>& logits, const Sampling& sampling) {
  std::map<std::int32_t, int> counts;
  for (int i = 0; i < 1000; ++i) ++counts[choose_token(logits, sampling, (i + 0.5) / 1000)];
  return counts;
}

std::vector<float> logs(const std::vector<double>& probabilities) {
  std::vector<float> logits;
  for (const double p : probabilities) logits.push_back(static_cast<float>(std::log(p) + 3));
  return logits;
}

TEST(ChooseToken, FollowsTheProbabilities) {
  EXPECT_THAT(choices(logs({0.2, 0.5, 0.3}), {}),
              ElementsAre(Pair(0, 200), Pair(1, 500), Pair(2, 300)));
  // Probabilities squared: 4, 25 and 9 of 38.
  EXPECT_THAT(choices(logs({0.2, 0.5, 0.3}), {.temperature = 0.5}),
              ElementsAre(Pair(0, 105), Pair(1, 658), Pair(2, 237)));
}

TEST(ChooseToken, WithoutTemperatureTakesTheFirstOfTheMostProbable) {
  EXPECT_EQ(choose_token(std::vector{1.F, 5.F, 5.F, -1.F}, {.temperature = 0}, 0.99), 1);
}

TEST(ChooseToken, KeepsTheTopK) {
  EXPECT_THAT(choices(logs({0.1, 0.4, 0.1, 0.4}), {.top_k = 2}),
              ElementsAre(Pair(1, 500), Pair(3, 500)));
  EXPECT_THAT(choices(logs({0.1, 0.4, 0.1, 0.4}), {.top_k = 1}), ElementsAre(Pair(1, 1000)));
  EXPECT_EQ(choices(logs({0.1, 0.4, 0.1, 0.4}), {.top_k = 9}).size(), 4U);
}

TEST(ChooseToken, KeepsTheFewestThatSumToTopP) {
  const std::vector<float> logits = logs({0.15, 0.5, 0.05, 0.3});
  EXPECT_THAT(choices(logits, {.top_p = 0.75}), ElementsAre(Pair(1, 625), Pair(3, 375)));
  EXPECT_THAT(choices(logits, {.top_p = 0.4}), ElementsAre(Pair(1, 1000)));
  EXPECT_THAT(choices(logits, {.top_p = 0}), ElementsAre(Pair(1, 1000)));
  EXPECT_EQ(choices(logits, {.top_p = 0.99}).size(), 4U);
  // Of those that top_k leaves.
  EXPECT_THAT(choices(logits, {.top_k = 3, .top_p = 0.8}), ElementsAre(Pair(1, 625), Pair(3, 375)));
}

TEST(ChooseToken, TakesNoTokenOutsideOfTheVocabularyAndNoImpossibleOne) {
  EXPECT_THAT(choices(logs({0.25, 0.25, 0.5}), {.vocabulary = 2}),
              ElementsAre(Pair(0, 500), Pair(1, 500)));
  const std::vector<float> logits{-INFINITY, 1, -INFINITY, 1, -INFINITY};
  EXPECT_THAT(choices(logits, {}), ElementsAre(Pair(1, 500), Pair(3, 500)));
  EXPECT_EQ(choose_token(logits, {}, std::nextafter(1.0, 0.0)), 3);
}

TEST(ChooseToken, RefusesLogitsThatAreNotNumbers) {
  for (const std::vector<float>& logits :
       {std::vector{1.F, NAN}, {INFINITY, 1.F}, {-INFINITY, -INFINITY}})
    EXPECT_THAT([&] { choose_token(logits, {}, 0.5); },
                ThrowsMessage<NumericError>(HasSubstr("not finite")));
}

TEST(ContextWindow, ForgetsTheOlderHalfOfAFullContext) {
  ContextWindow window({1, 2, 3}, 4);
  EXPECT_FALSE(window.append(4));
  EXPECT_THAT(window.tokens(), ElementsAre(1, 2, 3, 4));
  EXPECT_TRUE(window.append(5));
  EXPECT_THAT(window.tokens(), ElementsAre(4, 5));
  EXPECT_THAT(ContextWindow({1, 2, 3, 4, 5}, 4).tokens(), ElementsAre(2, 3, 4, 5));
  ContextWindow by_one({1, 2, 3, 4}, 4, 1);
  EXPECT_TRUE(by_one.append(5));
  EXPECT_THAT(by_one.tokens(), ElementsAre(2, 3, 4, 5));
  ContextWindow all({1, 2, 3, 4}, 4, 4);
  EXPECT_TRUE(all.append(5));
  EXPECT_THAT(all.tokens(), ElementsAre(5));
  ContextWindow one({7}, 1);
  EXPECT_TRUE(one.append(8));
  EXPECT_THAT(one.tokens(), ElementsAre(8));
}

// Their rows would be read before and after the table.
TEST(NextToken, RefusesTokensOutsideOfTheVocabulary) {
  Graph g;
  const Type tokens{DType::i32, {4}};
  const Tensor x = embed("wte", "wpe", g.input("tokens", tokens), g.input("order", tokens),
                         {.vocabulary = 9, .context = 4, .sequence = 4, .width = 3});
  g.logits = linear("fc", x, {.out = 9}).id;
  Program program(compile_step(std::move(g), {.training = false}), open_backend("ref"));
  program.store().initialize(1);
  const std::unique_ptr<NextToken> next = whole_sequence(program);
  const auto after = [&](std::int32_t token) {
    return next->logits_after(std::vector<std::int32_t>{0, token}).size();
  };
  EXPECT_EQ(after(8), 9U);
  for (const std::int32_t token : {-1, 9})
    EXPECT_THAT([&] { after(token); }, ThrowsMessage<DataError>(fmt::format(
                                           "token {}, but the model has 9 tokens", token)));
}

}  // namespace
}  // namespace warpstep
