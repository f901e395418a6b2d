// What is refused of models and of their steps before anything is built.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/core/error.h"
#include "models/build.h"
#include "models/plugin.h"
#include "tests/build_tree.h"

namespace warpstep {
namespace {

using testing::ThrowsMessage;

TEST(Zoo, BuildsNoStepOfNothing) {
  for (const char* name : {"cifar10cnn", "gpt2-nano"})
    for (const std::int64_t batch : {0, -3}) {
      models::BuildOptions build;
      build.batch = batch;
      EXPECT_THAT([&] { models::build(models::find(name), build); },
                  ThrowsMessage<UsageError>(fmt::format(
                      "{}: BuildOptions::batch is {}; must be at least 1", name, batch)));
    }
  models::BuildOptions set;
  set.images = models::Images::set;
  set.pixels = PixelPlan{.channels = 1};
  EXPECT_THAT(
      [&] { models::build(models::find("mlp"), set); },
      ThrowsMessage<UsageError>("mlp: BuildOptions::samples is 0; a resident set has at least 1"));
}

// It would be called at address 0.
TEST(Zoo, RefusesAModelWithoutABuilder) {
  const models::Model empty{.name = "empty",
                            .description = "",
                            .image = {4, 4, 1},
                            .learning_rate = 1,
                            .logits = nullptr};
  const auto refusal = ThrowsMessage<UsageError>(
      "model 'empty' has no builder: set Model::logits or Model::text_logits");
  EXPECT_THAT([&] { models::build(empty, {}); }, refusal);
  EXPECT_THAT([&] { models::add_model(empty); }, refusal);
}

TEST(Zoo, NamesTheModelWhoseBuilderThrows) {
  models::Model model = models::find("mlp");
  model.logits = [](Tensor, std::int64_t) -> Tensor { throw 42; };
  EXPECT_THAT([&] { models::build(model, {}); },
              ThrowsMessage<Error>("mlp: its builder threw: an exception of type int, which is not "
                                   "a std::exception"));
}

// Also when a program that went on asks again: it would find no such model.
TEST(Zoo, RefusesAPluginWithAModelWithoutABuilder) {
  const std::string file = testing_support::binary_dir() + "/lib/plugin_without_builder.so";
  const std::size_t before = models::zoo().size();
  const PluginLibrary library(file);
  for (int time = 0; time < 2; ++time)
    EXPECT_THAT([&] { models::add_plugin(library); },
                ThrowsMessage<UsageError>(
                    fmt::format("--plugin {}: its model 'no-layer' has no builder: set "
                                "Model::logits or Model::text_logits",
                                file)));
  EXPECT_EQ(models::zoo().size(), before);
}

// find() would give the other one.
TEST(Zoo, RefusesAModelOfANameThatIsTaken) {
  models::Model own = models::find("mlp");
  own.description = "my own";
  EXPECT_THAT([&] { models::add_model(own); },
              ThrowsMessage<UsageError>(
                  "two models are called 'mlp'; give the one that is added another name"));
}

}  // namespace
}  // namespace warpstep
