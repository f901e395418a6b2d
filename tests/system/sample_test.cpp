// Text from a trained run: the same with and without the cache, by every way of choosing the most
// probable token, and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "tests/system/program.h"
#include "tests/system/sets.h"

namespace warpstep::system_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

class Sample : public testing::Test {
 protected:
  // One run for all tests. Its data are gone afterwards: a run is complete without them.
  static void SetUpTestSuite() {
    folder_ = std::make_unique<TemporaryFolder>();
    const std::string data = *folder_ / "set";
    std::ofstream text(*folder_ / "text.txt");
    for (int i = 0; i < 60; ++i) text << "the cat sat on the mat; " << i << " élans\n";
    text.close();
    const Ended tokens =
        run({"data", "tokenize", *folder_ / "text.txt", data, "--tokenizer", "char"});
    ASSERT_EQ(tokens.exit_code, 0) << tokens.err;
    const Ended trained =
        run({"train",      "gpt2-nano", "--data",         data,       "--model-option", "layers=1",
             "--sequence", "16",        "--model-option", "width=32", "--batch",        "8",
             "--lr",       "1e-2",      "--steps",        "60",       "--ema",          "0.8",
             "--device",   "cpu",       "--out",          run_()});
    ASSERT_EQ(trained.exit_code, 0) << trained.err;
    std::filesystem::remove_all(data);
  }
  static void TearDownTestSuite() { folder_.reset(); }

  static std::string run_() { return *folder_ / "run"; }
  static std::string path(const std::string& name) { return *folder_ / name; }
  static std::vector<std::string> sample(const std::vector<std::string>& more) {
    std::vector<std::string> arguments{"sample", run_(), "--device", "cpu"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }
  static std::string text(const std::vector<std::string>& more) {
    const Ended ended = run(sample(more));
    EXPECT_EQ(ended.exit_code, 0) << ended.err;
    return ended.out;
  }

 private:
  static inline std::unique_ptr<TemporaryFolder> folder_;
};

TEST_F(Sample, AFullDiskIsAnError) {
  const Ended ended = run(sample({"--prompt", "cat", "--tokens", "5"}), {.out = Standard::full});
  EXPECT_EQ(ended.exit_code, 1);
  EXPECT_THAT(ended.err, HasSubstr("standard output: No space left on device"));
}

// 40 tokens are more than the context of 16.
TEST_F(Sample, TakesTheMostProbableTokensWithAndWithoutTheCache) {
  const auto greedy = [](const std::string& device, const std::vector<std::string>& more) {
    std::vector<std::string> arguments{"sample", run_(),   "--device", device,     "--prompt",
                                       "the c",  "--seed", "7",        "--tokens", "40"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(arguments);
  };
  const Ended first = greedy("ref", {"--temperature", "0"});
  EXPECT_THAT(first.out, AllOf(StartsWith("the cat sat"), testing::EndsWith("\n")));
  EXPECT_THAT(first.err, AllOf(HasSubstr("averaged weights"), HasSubstr("context of 16 tokens"),
                               HasSubstr("prompt: 5 tokens in "), HasSubstr("ms/token"),
                               HasSubstr("was full 4 times")));
  const std::string zero = "0";
  EXPECT_THAT(greedy("ref", {"--temperature", zero, "--samples", "2"}).err,
              HasSubstr("prompt: 5 tokens in "))
      << "read once";
  EXPECT_EQ(greedy("ref", {"--temperature", zero, "--no-cache"}).out, first.out);
  const std::string cached = greedy("cpu", {"--temperature", zero}).out;
  EXPECT_EQ(greedy("cpu", {"--temperature", zero}).out, cached);
  EXPECT_EQ(greedy("cpu", {"--temperature", zero, "--no-cache"}).out, cached);
  EXPECT_EQ(greedy("cpu", {"--temperature", "1.5", "--top-k", "1"}).out, cached);
  EXPECT_EQ(greedy("cpu", {"--temperature", "1.5", "--top-p", "1e-6"}).out, cached);
}

TEST_F(Sample, DrawsEqualTextsFromEqualSeeds) {
  const auto drawn = [](const std::string& seed) {
    return text({"--temperature", "2", "--top-k", "0", "--seed", seed, "--samples", "2"});
  };
  const std::string one = drawn("1");
  EXPECT_EQ(drawn("1"), one);
  EXPECT_NE(drawn("2"), one);
  const std::string line = "\n---------------\n";
  const std::size_t at = one.find(line);
  ASSERT_NE(at, std::string::npos);
  EXPECT_NE(one.substr(0, at + 1), one.substr(at + line.size())) << "two samples are two texts";
}

TEST_F(Sample, BeginsWithAFileAndEndsBeforeAStop) {
  std::ofstream(path("prompt.txt")) << "on the mat; 7 é";
  EXPECT_EQ(text({"--prompt-file", path("prompt.txt"), "--temperature", "0", "--stop", "ns"}),
            "on the mat; 7 éla\n");
  EXPECT_EQ(text({"--prompt-ids", "0,1", "--ids", "--tokens", "1", "--no-ema"}).substr(0, 4),
            "0,1,");
}

// A text of bytes that are in no character of UTF-8 is printed as it is.
TEST_F(Sample, ContinuesBytesThatAreNoText) {
  std::ofstream(path("bytes.bin")) << std::string(2000, '\x80');
  const Ended tokens =
      run({"data", "tokenize", path("bytes.bin"), path("no-text"), "--tokenizer", "byte"});
  ASSERT_EQ(tokens.exit_code, 0) << tokens.err;
  const Ended trained = run({"train",          "gpt2-nano", "--data",         path("no-text"),
                             "--model-option", "layers=1",  "--model-option", "width=32",
                             "--sequence",     "16",        "--batch",        "8",
                             "--lr",           "1e-2",      "--steps",        "10",
                             "--device",       "cpu",       "--out",          path("of-bytes")});
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  const Ended sampled = run({"sample", path("of-bytes"), "--device", "cpu", "--prompt", "\x80",
                             "--tokens", "5", "--temperature", "0"});
  EXPECT_EQ(sampled.exit_code, 0) << sampled.err;
  EXPECT_EQ(sampled.out, std::string(6, '\x80') + "\n");
}

// The model has never seen what follows an end of text where the data have none.
TEST_F(Sample, BeginsAfterAnEndOfTextOnlyIfTheDataHaveIt) {
  for (const bool has_end : {false, true}) {
    const std::string data = path(has_end ? "with-end" : "without-end"), out = data + "-run";
    std::vector<std::string> tokenize{"data", "tokenize", path("text.txt"), path("text.txt"), data};
    for (const char* word : {"--tokenizer", "bpe", "--vocab-size", "260"})
      tokenize.emplace_back(word);
    if (has_end) tokenize.emplace_back("--end-of-text");
    ASSERT_EQ(run(tokenize).exit_code, 0);
    const Ended trained = run({"train", "gpt2-nano", "--data", data, "--model-option", "layers=1",
                               "--sequence", "16", "--model-option", "width=32", "--batch", "8",
                               "--steps", "2", "--device", "cpu", "--out", out});
    ASSERT_EQ(trained.exit_code, 0) << trained.err;
    EXPECT_EQ(read_json(out + "/config.json")["data"]["end_of_text"], has_end);
    const auto ids = [&](const std::string& first) {
      std::vector<std::string> arguments{"sample",   out, "--device",     "cpu",    "--ids",
                                         "--tokens", "5", "--ignore-end", "--seed", "3"};
      const Ended ended = run(first.empty() ? arguments : with(arguments, "--prompt-ids", first));
      EXPECT_EQ(ended.exit_code, 0) << ended.err;
      return ended.out;
    };
    // GPT-2's order: the line end is byte 10, the 198th id from 0 on; 259 is the end of text.
    const std::string first = has_end ? "259" : "198";
    EXPECT_EQ(first + "," + ids(""), ids(first));
  }
}

// One in the folder above the data may have as many tokens, of other text.
TEST_F(Sample, LooksForATokenizerWhereTheDataWere) {
  const std::string copy = path("without-tokenizer"), above = path("tokenizer.json");
  std::filesystem::copy(run_(), copy);
  std::filesystem::rename(copy + "/tokenizer.json", above);
  const Ended ended = run({"sample", copy, "--device", "cpu", "--prompt", "cat", "--tokens", "1"});
  std::filesystem::remove(above);
  EXPECT_EQ(ended.exit_code, 1) << ended.out;
  EXPECT_THAT(ended.err, HasSubstr(path("set/tokenizer.json") + ": there is no such tokenizer"));
}

TEST_F(Sample, NamesMistakesWithTheirFix) {
  const auto refused = [](std::vector<std::string> arguments, int code,
                          const std::string& message) {
    const Ended ended = run(arguments);
    EXPECT_EQ(ended.exit_code, code) << ended.err;
    EXPECT_EQ(ended.out, "");
    EXPECT_THAT(ended.err, HasSubstr(message));
  };
  refused(sample({"--prompt", "cat X"}), 2, "--prompt: byte 4: the character U+0058 is not one of");
  refused(sample({"--prompt", ""}), 2, "--prompt: is empty");
  refused(sample({"--prompt-ids", "0,99"}), 2, "--prompt-ids: there is no token 99");
  refused(sample({"--ids", "--stop", "x"}), 2, "leave out --ids");
  const Ended longer = run(sample({"--prompt", "cat", "--sequence", "2000"}));
  EXPECT_EQ(longer.exit_code, 2);
  EXPECT_THAT(longer.err,
              AllOf(HasSubstr("--sequence 2000: the weights were trained with a context "
                              "of "),
                    testing::Not(HasSubstr("--model-option"))));
  refused({"sample", path("nothing")}, 1, "there is no such run directory or checkpoint");
  refused({"sample", "gpt2"}, 2, "gpt2 is a model, not a run; give its weights: --weights FILE");
  const std::string weights = run_() + "/best.safetensors";
  refused({"sample", "mlp", "--weights", weights}, 2, "mlp is a model of images");
  std::filesystem::copy_file(weights, path("alone.safetensors"));
  refused({"sample", "gpt2-nano", "--weights", path("alone.safetensors"), "--prompt", "a"}, 2,
          "no tokenizer is known for gpt2-nano: name its tokenizer.json, --tokenizer FILE");
  ASSERT_EQ(
      run({"data", "tokenize", path("text.txt"), path("bytes"), "--tokenizer", "byte"}).exit_code,
      0);
  refused(sample({"--tokenizer", path("bytes/tokenizer.json")}), 2,
          "has 256 tokens, and the data that " + run_() + " was trained on 2");
}

}  // namespace
}  // namespace warpstep::system_test
