// Runs that diverge, checked call by call; and runs that must give the same bits again.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "engine/core/file.h"
#include "engine/files/safetensors.h"
#include "tests/system/program.h"
#include "tests/system/sets.h"

namespace warpstep::system_test {
namespace {

namespace fs = std::filesystem;

// OpenMP's runtime is not instrumented: its loops look like races to ThreadSanitizer.
#ifdef __SANITIZE_THREAD__
constexpr const char* several_threads = "1";
#else
constexpr const char* several_threads = "2";
#endif

using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

class Numerics : public testing::Test {
 protected:
  void SetUp() override { make_set(data_); }

  // Its second epoch overflows.
  std::vector<std::string> diverging() const {
    return with(short_run(data_, out_), "--optimizer", "sgd", "--lr-schedule", "step",
                "--lr-step-epochs", "1", "--lr-gamma", "1e25");
  }

  const TemporaryFolder folder_;
  const std::string data_ = folder_ / "data", out_ = folder_ / "run";
  static constexpr const char* call_ =
      "step [78]: [a-z0-9_/.]+ \\([a-z]+, models/mlp.cpp:[0-9]+; [^)]+ of cpu\\) wrote "
      "[a-z0-9_/.]+: "
      "[0-9]+ NaN, [0-9]+ \\+inf and [0-9]+ -inf of [0-9]+ elements, the largest finite magnitude "
      "is [^;]+; its inputs were all finite, so the call produced them: ";
};

TEST_F(Numerics, OfARunThatDivergedAreLookedAtByResumingIt) {
  const Ended diverged = run(diverging());
  EXPECT_EQ(diverged.exit_code, 1);
  const std::string saved = out_ + "/checkpoint-00000006.safetensors";
  EXPECT_THAT(diverged.err,
              AllOf(HasSubstr("the last checkpoint saved is " + saved),
                    HasSubstr("warpstep train --resume " + out_ + " --check-numerics"),
                    Not(HasSubstr("-nan"))));
  const Ended found = run({"train", "--resume", out_, "--check-numerics"});
  EXPECT_EQ(found.exit_code, 1);
  EXPECT_THAT(found.err, ContainsRegex(call_));
  EXPECT_THAT(found.err, HasSubstr("the last checkpoint saved is " + saved));
  EXPECT_THAT(found.err, HasSubstr("--check-numerics: waits for every call"));
  EXPECT_EQ(checkpoints(out_).back(), saved);
  const Ended again = run({"train", "--resume", out_});
  EXPECT_THAT(again.err, Not(HasSubstr("waits for every call"))) << "the mode does not stay";
}

TEST_F(Numerics, AreFoundBeforeAnythingIsSavedToo) {
  std::vector<std::string> arguments =
      with(short_run(data_, out_), "--optimizer", "sgd", "--check-numerics");
  *std::find(arguments.begin(), arguments.end(), "1e-3") = "1e30";
  const Ended ended = run(arguments);
  EXPECT_EQ(ended.exit_code, 1);
  EXPECT_THAT(ended.err,
              AllOf(HasSubstr("step 2: fc"), HasSubstr("no checkpoint was saved before")));
  EXPECT_TRUE(checkpoints(out_).empty());
}

TEST_F(Numerics, OfASoundRunAreItsOwn) {
  ASSERT_EQ(run(short_run(data_, out_)).exit_code, 0);
  const std::string checked = folder_ / "checked";
  const Ended ended = run(with(short_run(data_, checked), "--check-numerics"));
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  expect_equal_runs(out_, checked);
  EXPECT_EQ(read_json(checked + "/config.json")["options"], [&] {
    Json options = read_json(out_ + "/config.json")["options"];
    options["out"] = checked;
    return options;
  }());
  const Ended plain = run({"eval", out_, "--json"}),
              numerics = run({"eval", out_, "--json", "--check-numerics"});
  ASSERT_EQ(numerics.exit_code, 0) << numerics.err;
  EXPECT_EQ(plain.out, numerics.out);
}

TEST_F(Numerics, OfAnEvaluationAreLookedAtToo) {
  ASSERT_EQ(run(short_run(data_, out_)).exit_code, 0);
  const std::vector<std::string> eval{"eval", out_,    "--mean", "0",     "0",
                                      "0",    "--std", "1e-40",  "1e-40", "1e-40"};
  const Ended plain = run(eval), checked = run(with(eval, "--check-numerics"));
  EXPECT_EQ(plain.exit_code, 0) << plain.err;
  EXPECT_EQ(checked.exit_code, 1) << plain.err;
  EXPECT_THAT(checked.err,
              ContainsRegex("batch 1 of the evaluation: .* wrote .*the call produced them"));
}

// As another program may write it: without checksums.
TEST_F(Numerics, OfWeightsThatWereGivenAreNamed) {
  ASSERT_EQ(run(short_run(data_, out_)).exit_code, 0);
  const SafetensorsFile file(checkpoints(out_).back());
  Tensors values = tensors(file.path());
  std::memset(values.at("fc3.bias").data(), 0xFF, sizeof(float));
  std::vector<TensorToStore> stored;
  for (const StoredTensor& t : file.tensors())
    stored.push_back({t.name, t.type, t.shape, values.at(t.name)});
  Metadata metadata = file.metadata();
  std::erase_if(metadata,
                [](const auto& entry) { return entry.first.starts_with("warpstep.checksum."); });
  const std::string broken = out_ + "/broken.safetensors";
  write_safetensors(broken, stored, metadata);
  const Ended plain = run({"eval", broken});
  EXPECT_EQ(plain.exit_code, 0);
  EXPECT_THAT(plain.out, HasSubstr("loss nan"));
  EXPECT_THAT(plain.err, HasSubstr("the loss is not finite; --check-numerics names the call"));
  const Ended checked = run({"eval", broken, "--check-numerics"});
  EXPECT_EQ(checked.exit_code, 1);
  EXPECT_THAT(checked.err, HasSubstr("batch 1 of the evaluation: parameter fc3.bias holds 1 NaN, 0 "
                                     "+inf and 0 -inf of 3 elements"));
  const Ended resumed = run({"train", "--resume", broken, "--epochs", "3", "--check-numerics"});
  EXPECT_EQ(resumed.exit_code, 1);
  EXPECT_THAT(resumed.err, HasSubstr("step 13: parameter fc3.bias holds 1 NaN"));
}

TEST_F(Numerics, DoNotGoWithAProfileOfCalls) {
  const Ended ended = run(with(short_run(data_, out_), "--check-numerics", "--profile", "spans"));
  EXPECT_EQ(ended.exit_code, 2);
  EXPECT_THAT(ended.err, HasSubstr("--profile spans does not go with --check-numerics"));
  EXPECT_FALSE(fs::exists(out_));
}

// --deterministic on the CPU: with the same number of threads, the same file to the last byte.
TEST_F(Numerics, AreTheSameInEveryRunWithAsManyThreads) {
  for (const char* model : {"mlp", "cifar10cnn"}) {
    SCOPED_TRACE(model);
    std::string first;
    for (int i = 0; i < 2; ++i) {
      std::vector<std::string> arguments =
          with(short_run(data_, out_, model), "--deterministic", "--overwrite", "--workers", "2");
      *std::next(std::find(arguments.begin(), arguments.end(), "--threads")) = several_threads;
      const Ended ended = run(arguments);
      ASSERT_EQ(ended.exit_code, 0) << ended.err;
      const std::string bytes = read_file(checkpoints(out_).back());
      ASSERT_GT(bytes.size(), 1'000'000U);
      if (i == 0) first = bytes;
      EXPECT_TRUE(bytes == first);
    }
  }
}

TEST_F(Numerics, CannotBeTheSameOfAlgorithmsThatAreMeasuredEachTime) {
  const std::vector<std::string> both =
      with(short_run(data_, out_), "--deterministic", "--autotune");
  const Ended refused = run(with(both, "--plan-cache", "off"));
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err, AllOf(HasSubstr("--deterministic with --autotune"),
                                 HasSubstr("--plan-cache, or leave out --autotune")));
  EXPECT_FALSE(fs::exists(out_));
  const Ended kept = run(with(both, "--plan-cache", folder_ / "plans"));
  EXPECT_EQ(kept.exit_code, 0) << kept.err;
}

}  // namespace
}  // namespace warpstep::system_test
