// A language model that continues a sequence token by token, with cached keys and values, against
// the same model on the whole sequence, on a backend (tests/tested_backend.h).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/core/error.h"
#include "engine/core/random.h"
#include "engine/passes/compile.h"
#include "engine/passes/decode.h"
#include "engine/run/decode.h"
#include "models/build.h"
#include "tests/deferred_backend.h"
#include "tests/tested_backend.h"
#include "tests/tolerance.h"

namespace warpstep {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;
using testing_support::relative_difference;
using testing_support::tolerance;

constexpr std::int64_t context = 24, vocabulary = 31;

Graph gpt2_on(std::int64_t sequence, const std::string& gelu) {
  const models::Model& model = models::find("gpt2");
  const std::vector<std::string> small{"layers=2", "heads=3", "width=24", "context=32",
                                       "gelu=" + gelu};
  models::BuildOptions options{.batch = 1};
  options.settings = models::resolve_settings(model, small);
  options.sequence = sequence;
  options.vocabulary = vocabulary;
  return models::build(model, options);
}

class Decoding : public testing::TestWithParam<const char*> {
 protected:
  static constexpr std::int64_t at_once = 6;

  void SetUp() override {
    try {
      backend_ = testing_support::open_tested_backend(testing_support::tested_backend());
      if (backend_->name() == "ref")
        backend_ = std::make_shared<testing_support::DeferredBackend>(backend_);
    } catch (const DeviceError& error) {
      GTEST_SKIP() << error.what();
    }
    step_ = program(for_decoding(gpt2_on(1, GetParam()), context), nullptr);
    several_ = program(for_decoding(gpt2_on(at_once, GetParam()), context), step_->shared_store());
    whole_ = program(without_loss(gpt2_on(context, GetParam())), nullptr);
    initialize(*step_);
    initialize(*whole_);
    for (std::uint32_t i = 0; i < context; ++i)
      tokens_.push_back(static_cast<std::int32_t>(
          below(draw(5, Purpose::synthetic, 0, i)[0], static_cast<std::uint32_t>(vocabulary))));
  }

  std::unique_ptr<Program> program(Graph graph, std::shared_ptr<Store> store) const {
    StepOptions options = options_for(*backend_, {.training = false});
    return std::make_unique<Program>(compile_step(std::move(graph), options), backend_,
                                     std::move(store));
  }
  // Weights ten times as large as a training starts with, so that tokens matter to each other.
  static void initialize(Program& program) {
    Store& store = program.store();
    store.initialize(3);
    for (std::size_t p = 0; p < store.parameters().size(); ++p) {
      std::vector<float> values = store.read(p);
      for (float& value : values) value *= store.torch_shape(p).rank() == 2 ? 10.0F : 1.0F;
      store.write(p, values);
    }
  }
  // Equal bits on the reference; elsewhere within what sums of such lengths may round.
  void expect_equal(std::span<const float> ours, std::span<const float> theirs,
                    const std::string& what) const {
    const std::vector<float> a(ours.begin(), ours.end()), b(theirs.begin(), theirs.end());
    ASSERT_EQ(a.size(), idx(vocabulary)) << what;
    if (testing_support::tested_backend() == "ref") {
      EXPECT_EQ(a, b) << what;
      return;
    }
    double depth = 0;
    for (const Node& node : step_->graph().nodes) depth += step_->graph().cost(node).depth;
    EXPECT_LE(relative_difference(a, b), tolerance(DType::f32, depth)) << what;
  }
  std::span<const std::int32_t> first(std::size_t count) const {
    return std::span(tokens_).first(count);
  }

  std::shared_ptr<Backend> backend_;
  std::unique_ptr<Program> step_, several_, whole_;
  std::vector<std::int32_t> tokens_;
};

TEST_P(Decoding, GivesTheLogitsOfTheWholeSequence) {
  const auto cached = cached_sequence(*step_, nullptr), whole = whole_sequence(*whole_);
  ASSERT_EQ(cached->context(), context);
  ASSERT_EQ(whole->context(), context);
  for (std::size_t count = 1; count <= tokens_.size(); ++count)
    expect_equal(cached->logits_after(first(count)), whole->logits_after(first(count)),
                 fmt::format("after {} tokens", count));
}

TEST_P(Decoding, TakesSeveralTokensAtOnce) {
  const auto cached = cached_sequence(*step_, several_.get()), whole = whole_sequence(*whole_);
  for (const std::size_t count : {11, 12, 13, 18, 23, 24})
    expect_equal(cached->logits_after(first(count)), whole->logits_after(first(count)),
                 fmt::format("after {} tokens", count));
}

// As a window that slides, a second sample of one prompt, and a repeated question do.
TEST_P(Decoding, ForgetsWhatTheTokensDoNotBeginWith) {
  const auto cached = cached_sequence(*step_, several_.get()), whole = whole_sequence(*whole_);
  std::vector<std::int32_t> other = tokens_;
  other[5] = (other[5] + 1) % static_cast<std::int32_t>(vocabulary);
  const std::vector<std::int32_t> later(tokens_.begin() + 9, tokens_.end());
  for (const std::vector<std::int32_t>& tokens : {tokens_, other, later, later, other, tokens_})
    expect_equal(cached->logits_after(tokens), whole->logits_after(tokens), "changed tokens");
  const auto logits = [&](std::size_t count) {
    const std::span<const float> all = cached->logits_after(first(count));
    return std::vector<float>(all.begin(), all.end());
  };
  EXPECT_NE(logits(7), logits(6));
}

TEST_P(Decoding, RefusesSequencesThatDoNotFit) {
  const auto cached = cached_sequence(*step_, nullptr), whole = whole_sequence(*whole_);
  const std::vector<std::int32_t> long_one(idx(context + 1), 1);
  for (NextToken* next : {cached.get(), whole.get()})
    for (const auto& tokens : {std::span<const std::int32_t>(), std::span(long_one).first(25)})
      EXPECT_THAT([&] { next->logits_after(tokens); },
                  ThrowsMessage<Error>(HasSubstr("a sequence of 1 to 24 tokens")));
  EXPECT_THAT([&] { cached_sequence(*several_, nullptr); },
              ThrowsMessage<Error>(HasSubstr("continued by 1 token at a time, not by 6")));
}

INSTANTIATE_TEST_SUITE_P(Gelus, Decoding, testing::Values("tanh", "erf"),
                         [](const auto& gelu) { return std::string(gelu.param); });

}  // namespace
}  // namespace warpstep
