#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "engine/core/error.h"
#include "engine/core/file.h"
#include "engine/files/checkpoint.h"
#include "engine/files/safetensors.h"
#include "tests/small_graphs.h"
#include "tests/stepping.h"

namespace warpstep {
namespace {

using Json = nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;

Json written() {
  Progress progress{
      .step = 40, .next = {6, 4}, .epoch_score = {1.5, 9, 32, 12.5}, .evaluation = {}};
  progress.evaluation =
      EvaluationRecord{6, 36, {std::nan(""), 5, 10, 10}, 0};  // diverged, but trains
  progress.watch = Watch{true, 0.25, 30, 1};
  StepState state;
  state.step = 40;
  state.skipped = 2;
  state.good_steps = 7;
  state.micro_step = 1;
  state.update = 0;
  state.overflow = 1;
  state.loss_scale = 0.25F;
  state.seed = std::numeric_limits<std::uint64_t>::max();
  return Json::parse(progress_text(progress, state));
}

// The error for this text; empty if it is accepted.
std::string refusal(const std::string& text) try {
  StepState state;
  const Progress progress = parse_progress(text, "run/checkpoint.safetensors", state);
  EXPECT_GE(progress.step, progress.next.epoch + progress.next.step);
  EXPECT_TRUE(std::isfinite(state.loss_scale) && state.loss_scale > 0);
  EXPECT_TRUE(std::isfinite(progress.epoch_score.loss_sum));
  EXPECT_GE(state.step, state.skipped);
  EXPECT_GE(state.skipped, 0);
  EXPECT_GE(state.micro_step, 0);
  for (const Score& score :
       {progress.epoch_score, progress.evaluation.value_or(EvaluationRecord()).score}) {
    EXPECT_GE(score.correct, 0);
    EXPECT_LE(score.correct, score.count);
  }
  return {};
} catch (const DataError& error) {
  return error.what();
}

TEST(CheckpointProgress, IsReadAsItWasWritten) {
  StepState state;
  const Progress read = parse_progress(written().dump(), "x", state);
  EXPECT_EQ(Json::parse(progress_text(read, state)), written());
  Json older = written();  // before these fields existed
  for (const char* key :
       {"skipped_steps", "good_steps", "micro_step", "overflow", "evaluation", "watch", "seed"})
    older.erase(key);
  EXPECT_EQ(refusal(older.dump()), "");
  StepState initialized;
  initialized.seed = 5;
  parse_progress(older.dump(), "x", initialized);
  EXPECT_EQ(initialized.seed, 5U);
  EXPECT_EQ(read.epoch_score.weight, 12.5);
  older["epoch_score"].erase("weight");  // or without --class-weights
  EXPECT_EQ(parse_progress(older.dump(), "x", state).epoch_score.weight, 32);
}

// Another run of the same store begins with a progress of its own.
TEST(CheckpointProgress, MayBeOfARunThatOthersCameBefore) {
  Json second = written();
  second["step"] = 10;
  second["next_epoch"] = 2;
  second["optimizer_step"] = 70;
  second["micro_step"] = 20;
  second.erase("evaluation");
  second.erase("watch");
  StepState state;
  const Progress read = parse_progress(second.dump(), "x", state);
  EXPECT_EQ(read.step, 10U);
  EXPECT_EQ(state.step, 70);
  EXPECT_EQ(state.micro_step, 20);
  EXPECT_EQ(Json::parse(progress_text(read, state)), second);
}

// Every field, also in nested objects, with every kind of wrong value.
TEST(CheckpointProgress, RefusesEveryFieldThatIsNoneByItsName) {
  const Json whole = written();
  const std::vector<Json> wrong{nullptr,
                                -1,
                                6.5,
                                1e300,
                                "junk",
                                "",
                                "0x1p+",
                                " 1",
                                "-nan",
                                true,
                                Json::array(),
                                Json::object(),
                                {{"step", 1}},
                                std::numeric_limits<std::uint64_t>::max(),
                                std::numeric_limits<std::int64_t>::min()};
  int refused = 0;
  const Json flat = whole.flatten();
  for (const auto& [pointer, value] : flat.items()) {
    for (const Json& instead : wrong) {
      if (instead.is_boolean() && value.is_boolean()) continue;
      if (pointer == "/evaluation/score/loss_sum" && instead == "-nan") continue;
      Json changed = whole;
      changed[Json::json_pointer(pointer)] = instead;
      const std::string field = pointer.substr(pointer.rfind('/') + 1);
      EXPECT_THAT(refusal(changed.dump()), AllOf(HasSubstr("run/checkpoint.safetensors: metadata"),
                                                 HasSubstr("'" + field + "' is ")))
          << pointer << " " << instead;
      ++refused;
    }
  }
  EXPECT_GT(refused, 200);
  for (const char* object : {"epoch_score", "evaluation", "watch"})
    for (const Json& instead : wrong) {
      Json changed = whole;
      changed[object] = instead;
      EXPECT_THAT(refusal(changed.dump()), HasSubstr(object)) << instead;
    }
}

TEST(CheckpointProgress, RefusesNumbersThatDoNotFitEachOther) {
  const auto with = [](const std::string& pointer, const Json& value) {
    Json changed = written();
    changed[Json::json_pointer(pointer)] = value;
    return refusal(changed.dump());
  };
  EXPECT_THAT(with("/next_step", 35), HasSubstr("a whole number from 0 to 34"));
  EXPECT_THAT(with("/next_epoch", 41), HasSubstr("a whole number from 0 to 40"));
  EXPECT_THAT(with("/evaluation/step", 41), HasSubstr("'evaluation': 'step' is 41"));
  EXPECT_THAT(with("/epoch_score/correct", 33), HasSubstr("from 0 to 32"));
  EXPECT_THAT(with("/loss_scale", "0x0p+0"), HasSubstr("above 0"));
  EXPECT_THAT(with("/loss_scale", "1e39"), HasSubstr("above 0")) << "infinite in 32 bits";
  Json lacks = written();
  lacks.erase("loss_scale");
  EXPECT_THAT(refusal(lacks.dump()), HasSubstr("has no 'loss_scale'"));
}

TEST(CheckpointProgress, RefusesWhatIsNoObject) {
  EXPECT_THAT(refusal(""), HasSubstr("no JSON"));
  EXPECT_THAT(refusal("7"), HasSubstr("7, where an object belongs"));
  EXPECT_THAT(refusal(std::string(1'000'000, '[')), HasSubstr("no JSON"));
  EXPECT_THAT(refusal(std::string(100'000, '[') + std::string(100'000, ']')), HasSubstr("no JSON"));
}

// As docs/cpp.md continues a run: no initialize() before. Dropout and the rounding of moments in
// bf16 draw by the seed. The reference keeps numbers in double: both continue from the file.
TEST(Checkpoint, ContinuesARunOfAnotherProgramBitForBit) {
  const auto path = std::filesystem::temp_directory_path() /
                    fmt::format("warpstep_checkpoint_seed_{}.safetensors", ::getpid());
  StepOptions options;
  options.optimizer.moment_dtype = DType::bf16;
  const auto make = [&] {
    Graph graph = testing_support::residual({.batch = 2, .size = 8, .pool = false, .dropout = 0.3});
    return testing_support::Stepping(compile_step(std::move(graph), options), open_backend("ref"));
  };
  const auto train = [](testing_support::Stepping& step, std::uint64_t from, std::uint64_t to) {
    const auto runner = eager_runner(step.program);
    for (std::uint64_t s = from; s < to; ++s) {
      step.load(s);
      runner->step();
    }
  };
  testing_support::Stepping whole = make(), again = make();
  whole.program.store().initialize(7);
  train(whole, 0, 2);
  save_checkpoint(path, whole.program.store(), options.optimizer.kind, {.step = 2}, {"m", "{}"});
  for (testing_support::Stepping* each : {&whole, &again}) {
    load_checkpoint(path, each->program.store(), options.optimizer.kind);
    train(*each, 2, 4);
  }
  EXPECT_EQ(again.program.store().step_state().seed, 7U);
  EXPECT_EQ(all_numbers(again), all_numbers(whole));
  std::filesystem::remove(path);
}

// One changed bit may leave valid JSON with another learning rate or step.
TEST(Checkpoint, WithDamagedMetadataIsRefused) {
  const auto path = std::filesystem::temp_directory_path() /
                    fmt::format("warpstep_checkpoint_metadata_{}.safetensors", ::getpid());
  Program step(testing_support::model_step("mnist_cnn", 1), open_backend("ref"));
  step.store().initialize(1);
  save_checkpoint(path, step.store(), StepOptions().optimizer.kind, {.step = 4},
                  {"m", R"({"options":{"lr":0.001}})"});
  const std::string whole = read_file(path);  // from here on one bit at a time differs
  const auto put = [&](std::size_t at, int byte) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(at));
    file.put(static_cast<char>(byte));
  };
  const auto with_flip = [&](std::size_t at) {
    std::string message;
    put(at, whole.at(at) ^ 1);
    try {
      read_checkpoint_info(path);
      read_progress(path);
    } catch (const DataError& error) {
      message = error.what();
    }
    put(at, whole.at(at));
    return message;
  };
  const auto place = [&](std::string_view text) { return whole.find(text); };
  const std::size_t key = place(metadata_checksum_key);
  const std::size_t rest = key + std::string_view(metadata_checksum_key).size();
  for (std::size_t at = rest; at < place("\"},\""); at += 3)
    EXPECT_NE(with_flip(at), "") << whole.substr(at, 40);
  for (const std::size_t at :
       {place("0.001") + 4, place("optimizer_step") + 17, whole.find(checksum_prefix, rest) + 20})
    EXPECT_THAT(with_flip(at), AllOf(HasSubstr(path.string()),
                                     HasSubstr("the metadata is not as it was saved (wrong "
                                               "checksum); the disk or a copy damaged it")));
  EXPECT_EQ(with_flip(key), "") << "a file without this entry, as of an older version";
  std::filesystem::remove(path);
}

// A bit that changes after the prefix: an evaluation must not take the weights themselves instead.
TEST(Checkpoint, WithDamagedNamesOfAveragesIsRefused) {
  const auto path = std::filesystem::temp_directory_path() /
                    fmt::format("warpstep_checkpoint_average_{}.safetensors", ::getpid());
  Program step(testing_support::model_step("mlp", 1, {.update = {.average_decay = 0.9}}),
               open_backend("ref"));
  step.store().initialize(1);
  save_checkpoint(path, step.store(), StepOptions().optimizer.kind, {}, {"m", "{}"});
  std::string bytes = read_file(path);
  const std::string name = "ema." + step.store().parameters().front().name;
  bytes.at(bytes.find(fmt::format("\"{}\":{{", name)) + 5) ^= 1;
  std::ofstream(path, std::ios::binary) << bytes;
  EXPECT_NO_THROW(load_parameters(path, step.store(), false));
  EXPECT_THAT([&] { load_parameters(path, step.store(), true); },
              testing::ThrowsMessage<DataError>(HasSubstr(fmt::format("no tensor \"{}\"", name))));
  std::filesystem::remove(path);
}

// It could not be resumed, and the names of its moments would be others'.
TEST(Checkpoint, NamesTheOptimizerOfItsStore) {
  const auto path = std::filesystem::temp_directory_path() /
                    fmt::format("warpstep_checkpoint_kind_{}.safetensors", ::getpid());
  using enum Optimizer::Kind;
  const auto save = [&](const StepOptions& options, Optimizer::Kind kind) {
    Program step(testing_support::model_step("mlp", 1, options), open_backend("ref"));
    step.store().initialize(1);
    save_checkpoint(path, step.store(), kind, {}, {"m", "{}"});
    std::filesystem::remove(path);
  };
  const auto refused = [&](const Optimizer& optimizer, Optimizer::Kind kind) {
    EXPECT_THAT([&] { save({.optimizer = optimizer}, kind); },
                testing::ThrowsMessage<UsageError>(HasSubstr(
                    fmt::format("a checkpoint of {} of a store with {} moments per parameter",
                                name(kind), optimizer.moments()))));
  };
  refused({.kind = adam}, sgd);
  refused({.kind = sgd, .momentum = 0.9}, adamw);
  refused({.kind = sgd}, rmsprop);
  refused({.kind = rmsprop, .momentum = 0.9}, lars);
  EXPECT_NO_THROW(save({.optimizer = {.kind = sgd, .momentum = 0.9}}, sgd));
  EXPECT_NO_THROW(save({.optimizer = {.kind = rmsprop}}, rmsprop));
  EXPECT_NO_THROW(save({.training = false}, adam));
}

// Of a running statistic it may be: an evaluation shows it.
TEST(Checkpoint, IsNotMadeOfWeightsThatAreNotFinite) {
  const auto path = std::filesystem::temp_directory_path() /
                    fmt::format("warpstep_checkpoint_test_{}.safetensors", ::getpid());
  Program step(testing_support::model_step("mnist_cnn", 1), open_backend("ref"));
  Store& store = step.store();
  store.initialize(1);
  const Optimizer::Kind optimizer = StepOptions().optimizer.kind;
  const auto save = [&] { save_checkpoint(path, store, optimizer, {}, {"m", "{}"}); };
  const std::vector<float> finite = store.read(2);
  for (const double value : {std::nan(""), std::numeric_limits<double>::infinity()}) {
    std::vector<float> spoilt = finite;
    spoilt.back() = static_cast<float>(value);
    store.write(2, spoilt);
    EXPECT_THAT(save, testing::ThrowsMessage<NumericError>(HasSubstr(
                          store.parameters()[2].name + " has values that are not finite")));
    EXPECT_FALSE(std::filesystem::exists(path));
  }
  store.write(2, finite);
  store.write_buffer(0, std::vector<float>(store.read_buffer(0).size(), std::nanf("")));
  save();
  EXPECT_TRUE(std::filesystem::exists(path));
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace warpstep
