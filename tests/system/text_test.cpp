// Runs of a language model: their files and numbers, resumed bit for bit, and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>

#include "engine/core/file.h"
#include "engine/files/safetensors_values.h"
#include "tests/system/program.h"
#include "tests/system/sets.h"

namespace warpstep::system_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// A text of 7 tokens in which every token follows from the one before it.
void make_tokens(const std::string& file, std::size_t count) {
  std::vector<std::uint16_t> tokens(count);
  for (std::size_t i = 1; i < count; ++i)
    tokens[i] = static_cast<std::uint16_t>((3 * tokens[i - 1] + 1) % 7);
  std::ofstream(file, std::ios::binary)
      .write(reinterpret_cast<const char*>(tokens.data()),
             static_cast<std::streamsize>(count * sizeof tokens[0]));
}

class Text : public testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::create_directories(data_);
    make_tokens(data_ + "/train.bin", 2000);
    make_tokens(data_ + "/val.bin", 301);
  }
  std::vector<std::string> start(const std::string& out) const {
    return {"train",          "gpt2-nano", "--data",      data_,      "--model-option", "layers=1",
            "--model-option", "width=32",  "--sequence",  "16",       "--batch",        "8",
            "--optimizer",    "adamw",     "--decay",     "matrices", "--weight-decay", "0.1",
            "--lr",           "1e-2",      "--clip-norm", "1",        "--eval-every",   "10",
            "--log-every",    "1",         "--device",    "cpu",      "--seed",         "5",
            "--out",          out};
  }
  // The file of `eval --logits` has a row and a label for each token, without padding, and that
  // loss.
  void expect_logits_of(double loss, std::size_t tokens) const {
    const std::string path = folder_ / "logits.safetensors";
    const Ended ended = run({"eval", out_, "--logits", path});
    ASSERT_EQ(ended.exit_code, 0) << ended.err;
    const SafetensorsFile file(path);
    ASSERT_EQ(file.at("logits").shape, (std::vector<std::uint64_t>{tokens, 7}));
    const auto logits = read_values(file, file.at("logits")),
               labels = read_values(file, file.at("label"));
    double total = 0;
    for (std::size_t i = 0; i < tokens; ++i) {
      double sum = 0;
      for (std::size_t c = 0; c < 7; ++c) sum += std::exp(static_cast<double>(logits[7 * i + c]));
      total +=
          std::log(sum) - static_cast<double>(logits[7 * i + static_cast<std::size_t>(labels[i])]);
    }
    EXPECT_NEAR(total / static_cast<double>(tokens), loss, 1e-5);
  }
  const TemporaryFolder folder_;
  const std::string data_ = folder_ / "tokens", out_ = folder_ / "run";
};

TEST_F(Text, LearnsAndWritesARunThatEvalReproduces) {
  const Ended ended = run(with(with(start(out_), "--steps", "40"), "--stats-every", "20"));
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_THAT(ended.err, AllOf(HasSubstr("2,000 training and 301 validation tokens"),
                               HasSubstr("perplexity"), HasSubstr("tokens/s")));
  const Json summary = read_json(out_ + "/summary.json");
  EXPECT_EQ(summary["test"]["tokens"], 300);  // each but the first is a label once
  const double loss = summary["test"]["loss"];
  EXPECT_LT(loss, 0.5) << "of log 7 = 1.95 without learning";
  EXPECT_NEAR(summary["test"]["perplexity"], std::exp(loss), 1e-9);
  EXPECT_GT(summary["tokens_per_second"], 0);
  std::vector<std::uint64_t> evaluated;
  for (const Json& line : metrics(out_))
    if (line["kind"] == "evaluation") evaluated.push_back(line["step"]);
  std::vector<std::uint64_t> measured;
  for (const Json& line : metrics(out_)) {
    if (!line.contains("blocks")) continue;
    measured.push_back(line["step"]);
    const Json& block = line["blocks"]["h.0"];
    EXPECT_GT(block["update_ratio"], 1e-5) << block;
    EXPECT_GT(block["rms"], 1e-3) << block;
    EXPECT_TRUE(line["blocks"]["lm_head"]["parameter_norm"].is_null()) << "it is the table's";
  }
  EXPECT_THAT(measured, testing::ElementsAre(1, 20, 40));
  // An epoch has 124 / 8 = 15 steps; 40 is the end.
  EXPECT_THAT(evaluated, testing::ElementsAre(10, 15, 20, 30, 40));

  const Ended again = run({"eval", out_, "--json"});
  ASSERT_EQ(again.exit_code, 0) << again.err;
  EXPECT_EQ(Json::parse(again.out)["loss"], loss);
  const std::vector<std::string> listing{"explain", "gpt2-nano", "--device", "ref", "--batch", "1"};
  EXPECT_THAT(run(with(listing, "--stats-every", "5")).out,
              AllOf(HasSubstr("h.0/activation_statistics"), HasSubstr("/update_statistics adam")));
}

// Perplexities of runs with other losses can be compared.
TEST_F(Text, IsEvaluatedByThePlainCrossEntropy) {
  for (const bool averaged : {false, true}) {
    std::filesystem::remove_all(out_);
    std::vector<std::string> arguments = with(start(out_), "--steps", "20");
    arguments = with(arguments, "--label-smoothing", "0.3");
    arguments = with(arguments, "--class-weights", "1,9,0.5,1,0.1,3,1");
    if (averaged) arguments = with(arguments, "--ema", "0.8");
    const Ended ended = run(arguments);
    ASSERT_EQ(ended.exit_code, 0) << ended.err;
    const double loss = read_json(out_ + "/summary.json")["test"]["loss"];
    EXPECT_EQ(Json::parse(run({"eval", out_, "--json"}).out)["loss"], loss);
    expect_logits_of(loss, 300);
  }
  const auto evaluation = [](const std::vector<std::string>& more) {
    std::vector<std::string> arguments{"explain", "gpt2-nano", "--device", "ref",
                                       "--batch", "1",         "--eval"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(arguments).out;
  };
  EXPECT_EQ(evaluation({"--label-smoothing", "0.1"}), evaluation({}));
}

TEST_F(Text, NeedsNoTrainingTokensToBeEvaluated) {
  ASSERT_EQ(run(with(start(out_), "--steps", "1")).exit_code, 0);
  const std::string only = folder_ / "only";
  std::filesystem::create_directory(only);
  std::filesystem::copy_file(data_ + "/val.bin", only + "/val.bin");
  const Ended evaluated = run({"eval", out_, "--data", only, "--json"});
  ASSERT_EQ(evaluated.exit_code, 0) << evaluated.err;
  EXPECT_EQ(Json::parse(evaluated.out)["loss"],
            Json::parse(run({"eval", out_, "--json"}).out)["loss"]);
  const Ended info = run({"data", "info", only}), verified = run({"data", "verify", only});
  EXPECT_THAT(info.out, AllOf(testing::StartsWith("val: 301 tokens"), HasSubstr("vocabulary: 7")));
  EXPECT_EQ(verified.exit_code, 0) << verified.err;
  const std::string refusal = only + ": has no tokens to train on: no train.safetensors";
  EXPECT_THAT(run({"eval", out_, "--data", only, "--split", "train"}).err, HasSubstr(refusal));
  std::vector<std::string> arguments = start(folder_ / "other");
  *std::ranges::find(arguments, data_) = only;
  const Ended refused = run(arguments);
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_THAT(refused.err, HasSubstr(refusal));
}

TEST_F(Text, NeedsNoValidationTokensToBeEvaluatedOnThoseOfTraining) {
  ASSERT_EQ(run(with(start(out_), "--steps", "1")).exit_code, 0);
  const std::vector<std::string> evaluation{"eval", out_, "--split", "train", "--json"};
  const Json whole = Json::parse(run(evaluation).out);
  std::filesystem::remove(data_ + "/val.bin");
  const Ended ended = run(evaluation);
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_EQ(Json::parse(ended.out)["loss"], whole["loss"]);
  EXPECT_THAT(run({"eval", out_}).err, HasSubstr("has no tokens for validation"));
}

TEST_F(Text, GoesToTransformersAndBack) {
  const std::string folder = folder_ / "exported";
  ASSERT_EQ(run(with(start(out_), "--steps", "10", "--ema", "0.9")).exit_code, 0);
  const Ended exported = run({"weights", "export", out_, folder});
  ASSERT_EQ(exported.exit_code, 0) << exported.err;
  EXPECT_THAT(exported.out, AllOf(HasSubstr("model.safetensors: 16 tensors, "),
                                  HasSubstr("average"), HasSubstr("7 of them biases of zeros")));
  EXPECT_THAT(exported.err, HasSubstr("no tokenizer.json"));
  const Json config = read_json(folder + "/config.json");
  EXPECT_EQ(config["n_layer"], 1);
  EXPECT_EQ(config["n_embd"], 32);
  EXPECT_EQ(config["vocab_size"], 7);
  // config.json beside the weights replaces the layers and width of gpt2.
  const std::vector<std::string> eval{
      "eval",   "gpt2",       "--weights", folder + "/model.safetensors",
      "--data", data_,        "--batch",   "8",
      "--json", "--sequence", "16",        "--device",
      "cpu"};
  const Ended theirs = run(eval), ours = run({"eval", out_, "--json"});
  ASSERT_EQ(theirs.exit_code, 0) << theirs.err;
  EXPECT_THAT(theirs.err,
              HasSubstr("config.json: --model-option bias=yes --model-option gelu=erf"));
  EXPECT_EQ(Json::parse(theirs.out)["loss"], Json::parse(ours.out)["loss"]);

  // The run's own options yield to those of its export, which has biases.
  const std::string without = folder_ / "without", its = folder_ / "its";
  ASSERT_EQ(run(with(start(without), "--steps", "10", "--model-option", "bias=no")).exit_code, 0);
  ASSERT_EQ(run({"weights", "export", without, its}).exit_code, 0);
  const std::vector<std::string> own{"eval", without, "--weights", its + "/model.safetensors",
                                     "--json"};
  const Ended of_export = run(own), of_run = run({"eval", without, "--json"});
  ASSERT_EQ(of_export.exit_code, 0) << of_export.err;
  EXPECT_NEAR(Json::parse(of_export.out)["loss"].get<double>(),
              Json::parse(of_run.out)["loss"].get<double>(), 1e-6);
  EXPECT_EQ(run(with(own, "--model-option", "bias=no")).exit_code, 2);

  // A checkpoint says itself what no shape of its weights shows.
  const std::string erf = folder_ / "erf";
  ASSERT_EQ(run(with(with(start(erf), "--steps", "10", "--model-option", "gelu=erf"),
                     "--model-option", "heads=2"))
                .exit_code,
            0);
  std::vector<std::string> by_name = eval;
  *(std::ranges::find(by_name, "--weights") + 1) = checkpoints(erf).back().string();
  const Ended named = run(by_name);
  ASSERT_EQ(named.exit_code, 0) << named.err;
  EXPECT_THAT(named.err, HasSubstr("--model-option heads=2"));
  EXPECT_EQ(Json::parse(named.out)["loss"], Json::parse(run({"eval", erf, "--json"}).out)["loss"]);
  const Ended refused = run(with(by_name, "--model-option", "gelu=tanh"));
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err, AllOf(HasSubstr("--model-option gelu=tanh: "), HasSubstr("gelu=erf")));
  EXPECT_EQ(run(with(by_name, "--model-option", "dropout=0.1")).exit_code, 0);

  const Ended other = run(with(eval, "--model-option", "heads=2"));
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_THAT(other.err, AllOf(HasSubstr("--model-option heads=2: "), HasSubstr("has heads=4")));
  // A tokenizer of other data, which would give tokens that the model does not have.
  std::ofstream(folder_ / "text") << "some text\n";
  ASSERT_EQ(run({"data", "tokenize", folder_ / "text", folder_ / "bytes", "--tokenizer", "byte"})
                .exit_code,
            0);
  std::filesystem::copy_file(folder_ / "bytes/tokenizer.json", out_ + "/tokenizer.json");
  const Ended foreign = run({"weights", "export", out_, folder_ / "foreign"});
  EXPECT_EQ(foreign.exit_code, 1);
  EXPECT_THAT(foreign.err, HasSubstr("tokens, and the model has 7: it is not the tokenizer"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "foreign"));
  const Ended again = run({"weights", "export", out_, folder});
  EXPECT_EQ(again.exit_code, 2);
  EXPECT_THAT(again.err, HasSubstr("not an empty folder"));
}

TEST_F(Text, ResumesInMidEpochBitForBit) {
  const std::string alone = folder_ / "alone";
  ASSERT_EQ(run(with(start(alone), "--steps", "20")).exit_code, 0);
  ASSERT_EQ(run(with(start(out_), "--steps", "7", "--keep-checkpoints", "0")).exit_code, 0);
  // A setting that is typed again is no change, and leaves the run's others as they are.
  const std::vector<std::string> resume{"train",   "--resume", out_,
                                        "--steps", "20",       "--model-option"};
  const Ended other = run(with(resume, "layers=2"));
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_THAT(other.err, AllOf(HasSubstr("layers=2"), HasSubstr("which --resume cannot change")));
  const Ended resumed = run(with(resume, "layers=1"));
  ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_EQ(run({"eval", out_, "--model-option", "layers=1"}).exit_code, 0);
  EXPECT_EQ(tensors(checkpoints(alone).back()), tensors(checkpoints(out_).back()));
}

TEST_F(Text, KeepsTheSettingsOfAConfigBesideTypedOnes) {
  ASSERT_EQ(run(with(start(out_), "--steps", "1")).exit_code, 0);
  const std::string other = folder_ / "other";
  const Ended ended = run({"train", "--config", out_ + "/config.json", "--model-option",
                           "dropout=0.1", "--model-option", "width=48", "--out", other});
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_THAT(read_json(other + "/config.json")["options"]["model_option"],
              testing::UnorderedElementsAre("layers=1", "dropout=0.1", "width=48"));
}

TEST_F(Text, TakesValidationFromTheEndOfOneFile) {
  std::vector<std::string> arguments = start(out_);
  *(std::ranges::find(arguments, "--data") + 1) = data_ + "/train.bin";
  const Ended ended = run(with(arguments, "--val-split", "0.25", "--steps", "7"));
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_THAT(ended.err, HasSubstr("1,500 training and 500 validation tokens"));
  const Ended resumed = run({"train", "--resume", out_, "--steps", "9"});
  EXPECT_EQ(resumed.exit_code, 0) << resumed.err;
  const Ended evaluated = run({"eval", out_, "--json"});
  ASSERT_EQ(evaluated.exit_code, 0) << evaluated.err;
  EXPECT_EQ(Json::parse(evaluated.out)["tokens"], 499);
  expect_logits_of(Json::parse(evaluated.out)["loss"].get<double>(), 499);
  // Of a folder with tokens for validation these are taken, not a share of others.
  const Ended elsewhere = run({"eval", out_, "--data", data_, "--json"});
  ASSERT_EQ(elsewhere.exit_code, 0) << elsewhere.err;
  EXPECT_EQ(Json::parse(elsewhere.out)["tokens"], 300);
  // Tokens that were trained on would be validated on.
  const Ended other =
      run({"train", "--resume", out_, "--val-split", "0.5", "--allow-changed-data"});
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_THAT(other.err, HasSubstr("--val-split 0.5: the run in " + out_ +
                                   " has 0.25, which --resume cannot change"));
}

// A model of a plugin, whose own loss is a loop over tokens: the numbers of the batched loss, also
// in an evaluation whose last batch is padded, and after resuming.
TEST_F(Text, TrainsAModelOfAPlugin) {
  const std::string plugin = module_path("naive_loss"), alone = folder_ / "alone";
  std::vector<std::string> naive = start(out_);
  naive[1] = "gpt2-nano-naive";
  naive.insert(naive.begin() + 1, {"--plugin", plugin});
  ASSERT_EQ(run(with(start(alone), "--steps", "4")).exit_code, 0);
  const Ended ended = run(with(naive, "--steps", "2"));
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  const Ended resumed = run({"train", "--resume", out_, "--steps", "4"});
  ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
  const auto losses = [](const std::string& at) {
    std::vector<double> all;
    for (const Json& line : metrics(at)) all.push_back(line["loss"]);
    return all;
  };
  const auto sampled = [](const std::string& at) {
    return run({"sample", at, "--device", "cpu", "--prompt-ids", "1,2", "--ids", "--tokens", "4",
                "--temperature", "0"});
  };
  ASSERT_EQ(sampled(out_).exit_code, 0) << sampled(out_).err;
  EXPECT_EQ(sampled(out_).out, sampled(alone).out);
  // The evaluation in which the first run ended is one more.
  std::vector<double> of_naive = losses(out_);
  of_naive.erase(of_naive.begin() + 2);
  EXPECT_THAT(of_naive, testing::Pointwise(testing::DoubleNear(2e-5), losses(alone)));
}

TEST_F(Text, IsSampledWithATokenizerThatIsPutBesideTheWeights) {
  ASSERT_EQ(run(with(start(out_), "--steps", "1")).exit_code, 0);
  const std::vector<std::string> sample{"sample",   out_, "--device",      "cpu", "--prompt", "ab",
                                        "--tokens", "3",  "--temperature", "0"};
  EXPECT_THAT(run(sample).err, HasSubstr("no tokenizer is known"));
  put(folder_ / "text", std::string("abcdefg"));
  ASSERT_EQ(run({"data", "tokenize", folder_ / "text", folder_ / "letters", "--tokenizer", "char"})
                .exit_code,
            0);
  std::filesystem::copy_file(folder_ / "letters/tokenizer.json", out_ + "/tokenizer.json");
  const Ended sampled = run(sample);
  EXPECT_EQ(sampled.exit_code, 0) << sampled.err;
  EXPECT_EQ(sampled.out.substr(0, 2), "ab");
}

// As Llama's beside its tokens.
TEST_F(Text, IsTrainedOnBesideATokenizerThatIsNotSupported) {
  const std::string file = data_ + "/tokenizer.json",
                    reason = file + ": has a 'ignore_merges', which is not supported";
  put(file, std::string(R"({"model": {"type": "BPE", "ignore_merges": true}})"));
  const Ended ended = run(with(start(out_), "--steps", "1"));
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_THAT(ended.err, HasSubstr(reason + "; it is not used"));
  for (const std::vector<std::string>& command :
       {std::vector<std::string>{"eval", out_}, {"data", "info", data_}, {"data", "verify", data_}})
    EXPECT_EQ(run(command).exit_code, 0) << command[0];
  const Ended words = run({"sample", out_, "--prompt", "ab"});
  EXPECT_EQ(words.exit_code, 2);
  EXPECT_THAT(words.err, HasSubstr("no tokenizer is known for " + out_ + " (" + reason +
                                   "): name its tokenizer.json, --tokenizer FILE, or"));
  EXPECT_THAT(run({"sample", out_, "--prompt", "ab", "--tokenizer", file}).err,
              HasSubstr(reason + "; name another, --tokenizer FILE, or work with numbers of"));
  std::filesystem::copy_file(file, out_ + "/tokenizer.json");
  EXPECT_EQ(run({"sample", out_, "--prompt-ids", "1", "--ids", "--tokens", "2"}).exit_code, 0);
}

TEST_F(Text, OfAModelWithoutAContextNeedsASequence) {
  const std::vector<std::string> plugin{"--plugin", module_path("no_context"), "--device", "cpu"};
  const auto ended = [&](std::vector<std::string> arguments, const std::string& sequence) {
    arguments.insert(arguments.end(), plugin.begin(), plugin.end());
    return sequence.empty() ? run(arguments) : run(with(arguments, "--sequence", sequence));
  };
  const std::string refusal = "no-context: give --sequence N: the model has no context of its own";
  const std::vector<std::string> train{"train", "no-context", "--data", data_,   "--batch",
                                       "4",     "--steps",    "1",      "--out", out_};
  EXPECT_THAT(ended(train, "").err, HasSubstr(refusal));
  const Ended trained = ended(train, "16");
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  const std::vector<std::string> sample{"sample",   out_, "--prompt-ids",  "1", "--ids",
                                        "--tokens", "20", "--temperature", "0"};
  const Ended sampled = ended(sample, "8");
  EXPECT_EQ(sampled.exit_code, 0) << sampled.err;
  EXPECT_THAT(ended(sample, "65").err, HasSubstr("sequences of 65 are longer than the 64"));
  EXPECT_THAT(ended({"sample", "no-context", "--weights", out_ + "/best.safetensors",
                     "--prompt-ids", "1", "--ids"},
                    "")
                  .err,
              HasSubstr(refusal));
}

TEST_F(Text, IsNotEvaluatedWithTokensOfAnotherTokenizer) {
  const auto tokens_of = [&](const std::string& letters) {
    std::string text;
    for (int i = 0; i < 500; ++i) text += letters[static_cast<std::size_t>(i * i) % letters.size()];
    const std::string file = folder_ / (letters + ".txt"), tokens = folder_ / letters;
    put(file, text);
    EXPECT_EQ(run({"data", "tokenize", file, tokens, "--tokenizer", "char"}).exit_code, 0);
    return tokens;
  };
  const std::string own = tokens_of("abcdefg"), other = tokens_of("hijklmn");
  std::vector<std::string> arguments = with(start(out_), "--steps", "1");
  *std::ranges::find(arguments, data_) = own;
  const Ended ended = run(arguments);
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_EQ(run({"eval", out_}).exit_code, 0);
  EXPECT_THAT(run({"eval", out_, "--data", other}).err,
              HasSubstr(other + "/tokenizer.json: is not the tokenizer of the run, " + out_));
  put(other + "/tokenizer.json", std::string(R"({"model": {"type": "Unigram"}})"));
  EXPECT_THAT(run({"eval", out_, "--data", other}).err,
              HasSubstr(other + "/tokenizer.json: is not the tokenizer of the run, " + out_));
}

// Data without a tokenizer have as many tokens as their largest id says.
TEST_F(Text, IsEvaluatedWithItsOwnVocabulary) {
  ASSERT_EQ(run(with(start(out_), "--steps", "1")).exit_code, 0);
  const auto evaluated = [&](const std::string& name, char largest) {
    std::string ids;
    for (int i = 0; i < 200; ++i) ids += {static_cast<char>(i % (largest + 1)), '\0'};
    for (const char* split : {"/train.bin", "/val.bin"}) put(folder_ / (name + split), ids);
    return run({"eval", out_, "--data", folder_ / name});
  };
  const Ended few = evaluated("few", 2), many = evaluated("many", 9);
  EXPECT_EQ(few.exit_code, 0) << few.err;
  EXPECT_EQ(many.exit_code, 1);
  EXPECT_THAT(many.err, HasSubstr("the data have a vocabulary of 10 (the largest id), and the run "
                                  "knows 7 tokens"));
}

// The tokens are the same with and without the tokenizer.json beside them.
TEST_F(Text, ContinuesWhereATokenizerAppearsOrDisappears) {
  const std::string file = data_ + "/tokenizer.json", away = folder_ / "away.json";
  put(folder_ / "text", std::string("abcdefghi"));
  ASSERT_EQ(run({"data", "tokenize", folder_ / "text", folder_ / "letters", "--tokenizer", "char",
                 "--val-fraction", "0"})
                .exit_code,
            0);
  std::filesystem::copy_file(folder_ / "letters/tokenizer.json", away);
  for (const bool appears : {true, false}) {
    std::filesystem::remove_all(out_);
    if (!appears) std::filesystem::copy_file(away, file);
    const std::int64_t own = appears ? 7 : 9;
    ASSERT_EQ(run(with(start(out_), "--steps", "2")).exit_code, 0);
    ASSERT_EQ(read_json(out_ + "/config.json")["data"]["vocabulary"], own);
    if (appears)
      std::filesystem::copy_file(away, file);
    else
      std::filesystem::remove(file);
    const Ended evaluated = run({"eval", out_, "--json"});
    EXPECT_EQ(evaluated.exit_code, 0) << evaluated.err;
    const Ended resumed = run({"train", "--resume", out_, "--steps", "4"});
    ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
    EXPECT_THAT(resumed.err, HasSubstr(fmt::format("the run continues with its own {}", own)));
    EXPECT_EQ(read_json(out_ + "/config.json")["data"]["vocabulary"], own);
    EXPECT_EQ(run({"eval", out_}).exit_code, 0);
    const Ended sampled = run({"sample", out_, "--prompt", "ab", "--tokens", "3"});
    EXPECT_EQ(sampled.exit_code, 0) << sampled.err;
    std::filesystem::remove(file);
  }
}

// One of as many tokens, by which the same ids are other words.
TEST_F(Text, DoesNotContinueWithAnotherTokenizer) {
  const std::string file = data_ + "/tokenizer.json";
  const auto tokenizer_of = [&](const std::string& letters) {
    const std::string text = folder_ / (letters + ".txt"), tokens = folder_ / letters;
    put(text, letters);
    EXPECT_EQ(run({"data", "tokenize", text, tokens, "--tokenizer", "char", "--val-fraction", "0"})
                  .exit_code,
              0);
    return read_file(tokens + "/tokenizer.json");
  };
  const std::string own = tokenizer_of("abcdefg"), another = tokenizer_of("hijklmn");
  ASSERT_EQ(own.size(), another.size());
  put(file, own);
  ASSERT_EQ(run(with(start(out_), "--steps", "2")).exit_code, 0);
  const auto resumed = [&](const char* steps) {
    return run({"train", "--resume", out_, "--steps", steps});
  };
  put(file, another);
  const std::string refusal = file + ": is not the tokenizer of the run: its checksum is ";
  const Ended other = resumed("4");
  EXPECT_EQ(other.exit_code, 1);
  EXPECT_THAT(other.err, AllOf(HasSubstr(refusal), HasSubstr("--allow-changed-data")));
  EXPECT_EQ(read_file(out_ + "/tokenizer.json"), own);
  put(file, Json::parse(own).dump(3));  // the same in another layout
  EXPECT_EQ(resumed("4").exit_code, 0);
  std::filesystem::remove(file);
  EXPECT_EQ(resumed("6").exit_code, 0);
  put(file, another);
  EXPECT_THAT(resumed("8").err, HasSubstr(refusal));
  EXPECT_EQ(run({"train", "--resume", out_, "--steps", "8", "--allow-changed-data"}).exit_code, 0);
}

TEST_F(Text, RefusesWhatIsNoPlugin) {
  const auto error = [&](const std::string& file) {
    return run({"explain", "--plugin", file, "gpt2-nano"}).err;
  };
  const std::string none = folder_ / "none.so";
  EXPECT_THAT(error(none), HasSubstr("explain: --plugin: " + none + ": there is no such file"));
  EXPECT_THAT(error(data_ + "/train.bin"), HasSubstr("train.bin: it does not load: "));
  EXPECT_THAT(error(module_path("libwarpstep_ref")), HasSubstr("it is not a plugin"));
  for (const char* other : {"plugin_of_another", "data_plugin_of_another"})
    EXPECT_THAT(error(module_path(other)),
                HasSubstr("it was compiled with the headers of another Warpstep; rebuild it"));
  const Ended smooth =
      run({"train", "--plugin", module_path("naive_loss"), "gpt2-nano-naive", "--data", data_,
           "--batch", "2", "--label-smoothing", "0.1", "--out", out_});
  EXPECT_THAT(smooth.err, HasSubstr("gpt2-nano-naive has a loss of its own"));
}

TEST_F(Text, RefusesWhatDoesNotFit) {
  const auto refused = [&](const std::vector<std::string>& more, int code,
                           const std::string& message) {
    std::vector<std::string> arguments = start(out_);
    const auto given = std::ranges::find(arguments, more[0]);
    if (given != arguments.end() && more[0] != "--model-option")
      *(given + 1) = more[1];
    else
      arguments.insert(arguments.end(), more.begin(), more.end());
    const Ended ended = run(arguments);
    EXPECT_EQ(ended.exit_code, code) << ended.err;
    EXPECT_THAT(ended.err, HasSubstr(message));
    EXPECT_FALSE(std::filesystem::exists(out_));
  };
  refused({"--model-option", "haeds=2"}, 2,
          "gpt2-nano has no option 'haeds'; did you mean heads?; it has layers");
  refused({"--model-option", "heads=5"}, 1, "a width of 32 cannot be split into 5 heads");
  refused({"--model-option", "vocabulary=6"}, 2, "the data have 7 tokens");
  refused({"--sequence", "65"}, 1, "longer than the context of 64");
  refused({"--batch", "126"}, 2, "do not fill one batch of 126");
  std::filesystem::create_directory(folder_ / "one");
  std::filesystem::copy_file(data_ + "/train.bin", folder_ / "one/train.bin");
  std::vector<std::string> without = with(start(out_), "--val-split", "0");
  *std::ranges::find(without, data_) = folder_ / "one";
  EXPECT_THAT(run(without).err, HasSubstr("--val-split 0 leaves no tokens for validation"));
  refused({"--windows", "all"}, 2, "'all' is not one of shuffled, random and sequential");
  make_set(folder_ / "images");
  refused({"--data", folder_ / "images"}, 2, "gpt2-nano is a model of text");
  const std::vector<std::string> images = short_run(folder_ / "images", out_);
  for (const auto& [option, value, message] :
       {std::array{"--model-option", "heads=2", "mlp has no options"},
        std::array{"--sequence", "8", "--sequence is for models of text"}}) {
    const Ended ended = run(with(images, option, value));
    EXPECT_EQ(ended.exit_code, 2);
    EXPECT_THAT(ended.err, HasSubstr(message));
  }
  const Ended image = run(short_run(data_, out_));
  EXPECT_EQ(image.exit_code, 1);
  EXPECT_THAT(image.err, HasSubstr("holds tokens, not images"));
}

}  // namespace
}  // namespace warpstep::system_test
