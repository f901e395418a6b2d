// Mistakes on the command line: one message that names the mistake and the fix, the exit code, and
// no files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "engine/core/text.h"
#include "tests/system/program.h"
#include "tests/system/sets.h"

namespace warpstep::system_test {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

class Refuse : public testing::Test {
 protected:
  void SetUp() override { make_set(data_); }

  // Before anything was computed: without a run directory.
  void expect_refused(const std::vector<std::string>& arguments, int exit_code,
                      const testing::Matcher<const std::string&>& message) {
    const Ended ended = run(arguments);
    EXPECT_EQ(ended.exit_code, exit_code);
    EXPECT_THAT(ended.err, message);
    EXPECT_EQ(ended.out, "");
    EXPECT_LE(std::count(ended.err.begin(), ended.err.end(), '\n'), exit_code == 2 ? 2 : 1)
        << "one line, and where to read on: " << ended.err;
    EXPECT_FALSE(fs::exists(out_)) << ended.err;
  }
  std::vector<std::string> train(const std::vector<std::string>& more) const {
    std::vector<std::string> arguments{"train", "mlp", "--data", data_, "--out", out_};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }

  const TemporaryFolder folder_;
  const std::string data_ = folder_ / "data";
  const std::string out_ = folder_ / "run";
};

TEST_F(Refuse, NamesThatDoNotExist) {
  expect_refused({"trian"}, 2, HasSubstr("unknown command trian; did you mean train?"));
  expect_refused(train({"--epoch", "2"}), 2,
                 HasSubstr("unknown option --epoch; did you mean --epochs?"));
  expect_refused({"train", "cifar10cn", "--data", data_, "--out", out_}, 2,
                 AllOf(HasSubstr("'cifar10cn'"), HasSubstr("did you mean cifar10cnn?")));
  expect_refused({"train", "--data", data_}, 2, HasSubstr("which model? For example: "));
  expect_refused({"train", "mlp"}, 2, AllOf(HasSubstr("--data"), HasSubstr("warpstep data make")));
  expect_refused(train({"--no-fuse", "conv"}), 2,
                 AllOf(HasSubstr("'conv'"), HasSubstr("conv+relu")));
  expect_refused(train({"--optimizer", "adamx"}), 2,
                 HasSubstr("--optimizer: 'adamx' is not one of sgd, adam, adamw, lars, rmsprop; "
                           "did you mean adam?"));
  expect_refused(
      {"train", "mlp", data_}, 2,
      HasSubstr("unexpected argument " + data_ + "; did you mean --data " + data_ + "?"));
  const std::string odd = folder_ / "it's odd", file = odd + "/checkpoint-00000001.safetensors";
  std::filesystem::create_directory(odd);
  for (const std::string& path : {odd + "/config.json", file})
    std::ofstream(path) << R"({"options":{}})";
  expect_refused({"train", "mlp", odd}, 2,
                 HasSubstr("did you mean --data " + shell_word(odd) + "?"));
  expect_refused({"train", "mlp", "--data", data_, "--out", odd}, 2,
                 HasSubstr("continue it with --resume " + shell_word(odd) + ", "));
  expect_refused(train({"--weights", odd}), 1,
                 HasSubstr("a file of it: --weights " + shell_word(file)));
  expect_refused(train({"--batch", "1e2"}), 2,
                 HasSubstr("'1e2' is not written as a whole number from 1 to 1048576"));
  expect_refused(train({"--learning-rate", "1"}), 2, HasSubstr("did you mean --lr?"));
  const Ended onto_data = run({"train", "mlp", "--data", data_, "--out", data_, "--overwrite"});
  EXPECT_THAT(onto_data.err, HasSubstr("is the folder of the data; choose another"));
  const std::string among = data_ + "/train/run";
  const Ended among_images = run({"train", "mlp", "--data", data_, "--out", among});
  EXPECT_EQ(among_images.exit_code, 2);
  EXPECT_THAT(among_images.err, HasSubstr("--out " + among + ": is inside " + data_ + "/train"));
  EXPECT_FALSE(fs::exists(among));
  const Ended relative =
      run({"train", "mlp", "--data", data_, "--out", "run"}, {.folder = data_ + "/train"});
  EXPECT_EQ(relative.exit_code, 2);
  EXPECT_THAT(relative.err, HasSubstr("--out run: is inside " + data_ + "/train"));
  EXPECT_FALSE(fs::exists(among));
  expect_refused(train({"--precision", "fp64"}), 2,
                 HasSubstr("'fp64'; there are fp32, tf32, bf16 and fp16"));
  expect_refused(train({"--device", "gpu"}), 2,
                 HasSubstr("'gpu'; use auto, cpu, cuda, cuda:N or ref"));
  put(folder_ / "run.toml", std::string("epoch = 3\n"));
  expect_refused(train({"--config", folder_ / "run.toml"}), 2,
                 HasSubstr("run.toml: line 1: unknown key epoch; did you mean epochs?"));
}

// Without --out, the run directory is in the current folder.
TEST_F(Refuse, LeavesAFolderOfImagesAsItIs) {
  const std::string unsplit = data_ + "/train";
  const auto listed = [&] {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(unsplit))
      names.push_back(entry.path().string());
    std::ranges::sort(names);
    return names;
  };
  const std::vector<std::string> before = listed();
  const auto message = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments{"train", "mlp", "--data", "."};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Ended ended = run(arguments, {.folder = unsplit});
    EXPECT_NE(ended.exit_code, 0);
    EXPECT_EQ(listed(), before) << ended.err;
    return ended.err;
  };
  EXPECT_THAT(message({}), HasSubstr("--val-split 0.1"));
  EXPECT_THAT(message({"--val-split", "0.2", "--batch", "8"}),
              HasSubstr("--out runs: is inside ., whose files are the data"));
  EXPECT_THAT(message({"--val-split", "0.2", "--batch", "8", "--repeat", "2"}),
              HasSubstr("--out runs: is inside ., whose files are the data"));
}

TEST_F(Refuse, ValuesThatCannotBeMeant) {
  struct Case {
    std::vector<std::string> more;
    std::string message;
  };
  for (const Case& c : std::vector<Case>{
           {{"--threads", "-1"}, "--threads: "},
           {{"--threads", "many"}, "--threads: "},
           {{"--pin-cpus", "3-1"},
            "--pin-cpus: '3-1' is not a list of CPUs: '3-1' ends before it begins"},
           {{"--pin-cpus", "8191"},
            "--pin-cpus 8191: this process may not run on CPU 8191, only on"},
           {{"--pin-cpus", "auto", "--threads", "4000"}, "4000 threads do not fit on CPU"},
           {{"--batch", "0"}, "--batch: '0' is not a whole number from 1 to 1048576"},
           {{"--batch", "193"}, "192 samples do not fill one batch of 193; use a smaller batch"},
           {{"--epochs", "-1"}, "--epochs: '-1' is not a whole number from 0 to"},
           {{"--steps", "1.5"}, "--steps: '1.5' is not a whole number from 0 to"},
           {{"--seed", "-1"}, "--seed: '-1' is not"},
           {{"--keep-checkpoints", "-1"}, "--keep-checkpoints: '-1' is not"},
           {{"--log-every", "0"}, "--log-every: '0' is not a whole number from 1 to"},
           {{"--epochs", "0"}, "the run has no end: give --epochs N or --steps N"},
           {{"--allow-changed-data"}, "--allow-changed-data goes with --resume"},
           {{"--lr", "-1"}, "--lr: '-1' is not a number of at least 0"},
           {{"--lr", "nan"}, "--lr: 'nan' is not a number of at least 0"},
           {{"--epsilon", "1e-39"}, "--epsilon: '1e-39' is not a number from 1e-30 to 1"},
           {{"--momentum", "0.9"}, "--momentum goes with --optimizer sgd, lars or rmsprop, and"},
           {{"--warmup-steps", "99", "--steps", "8"},
            "--warmup-steps 99 takes the whole run of 8 steps"},
           {{"--mean", "0.5", "0.5", "0.5"}, "--mean without --std: --mean and --std are given"},
           {{"--std", "0.5", "0.5", "0.5"}, "--std without --mean: --mean and --std are given"},
           {{"--std", "0"}, "--std: '0' is not a number above 0"},
           {{"--mean", "127", "127", "127"}, "--mean: '127' is above 1; give that of x/255: 0.498"},
           {{"--mean", "0.5,0.5", "--std", "0.5"},
            "the images have 3 channels, but --mean has 2 and --std 1 values; give one for each"}})
    expect_refused(train(c.more), 2, HasSubstr(c.message));
}

// --mean takes up to four values, and so the word behind three.
TEST_F(Refuse, AModelBehindAnOptionOfSeveralValues) {
  for (const std::vector<std::string>& mean :
       {std::vector<std::string>{"0.5", "0.5", "0.5"}, {"0.5,0.5,0.5"}}) {
    std::vector<std::string> arguments{"train", "--data", data_, "--mean"};
    arguments.insert(arguments.end(), mean.begin(), mean.end());
    arguments.push_back("mlp");
    expect_refused(arguments, 2,
                   HasSubstr("--mean: 'mlp' is not a number; if it is the model, write it before "
                             "--mean: train mlp --mean ..."));
  }
}

// What a script gives where a variable is unset, which would switch the option off.
TEST_F(Refuse, EmptyFilesAndFolders) {
  for (const char* option : {"--resume", "--weights", "--plugin", "--out", "--config"})
    expect_refused({"train", "mlp", "--data", data_, option, ""}, 2,
                   HasSubstr(std::string(option) + ": is empty; is a variable unset?"));
  expect_refused({"eval", out_, "--logits", ""}, 2, HasSubstr("--logits: is empty"));
  expect_refused({"export", ""}, 2, HasSubstr("is empty"));
}

TEST_F(Refuse, DevicesAndPrecisionsThatAreNotThere) {
  expect_refused(train({"--device", "cuda"}), 1, HasSubstr("driver"));
  expect_refused(
      train({"--device", "cpu", "--precision", "fp16"}), 1,
      HasSubstr("the CPU backend computes in fp32 and, with AVX512_BF16 or AMX, in bf16; "
                "use --precision fp32 or bf16"));
  expect_refused(train({"--device", "cpu", "--precision", "tf32"}), 1,
                 HasSubstr("cpu: tf32 is a format of GPUs; use --precision fp32"));
}

TEST_F(Refuse, PlacesThatCannotBeWritten) {
  const std::string file = folder_ / "file";
  put(file, std::string("x"));
  for (const std::string& out : {file, file + "/run", std::string("/proc/warpstep-run")}) {
    const Ended ended = run(short_run(data_, out));
    EXPECT_EQ(ended.exit_code, 1);
    EXPECT_THAT(ended.err, AllOf(HasSubstr("--out " + out + ": cannot make this directory"),
                                 HasSubstr("choose another --out")));
  }
  put(out_ + "/notes", std::string("mine"));
  const Ended ended = run(short_run(data_, out_));
  EXPECT_EQ(ended.exit_code, 2);
  EXPECT_THAT(ended.err,
              AllOf(HasSubstr("--out " + out_ + " is not empty and holds no run (notes)"),
                    HasSubstr("--overwrite")));
  EXPECT_EQ(run(with(short_run(data_, out_), "--overwrite")).exit_code, 0);
  EXPECT_TRUE(fs::exists(out_ + "/notes")) << "what is not a run's stays";
  EXPECT_EQ(run(with(short_run(data_, out_), "--overwrite")).exit_code, 0);
}

TEST_F(Refuse, RunsThatEvalCannotRead) {
  expect_refused({"eval", out_}, 1,
                 HasSubstr(out_ + ": there is no such run directory or checkpoint"));
  fs::create_directory(out_ + "-1");
  expect_refused({"eval", out_ + "-l"}, 1, HasSubstr("; did you mean " + out_ + "-1?"));
  expect_refused({"eval", data_}, 1,
                 HasSubstr(data_ + ": is not a run directory: it has no checkpoint"));
  expect_refused({"eval", out_, "--split", "valid"}, 2,
                 HasSubstr("'valid' is not one of test, val, train"));
}

TEST_F(Refuse, ToSaveWeightsThatDiverged) {
  const std::string out = folder_ / "its run";
  const Ended ended =
      run(with(short_run(data_, out), "--optimizer", "sgd", "--lr-schedule", "step",
               "--lr-step-epochs", "1", "--lr-gamma", "1e30", "--checkpoint-every", "2"));
  EXPECT_EQ(ended.exit_code, 1);
  EXPECT_THAT(ended.err, AllOf(HasSubstr("the loss is"), HasSubstr("(epoch 2, step "),
                               HasSubstr("training diverged: use a lower --lr")));
  EXPECT_GT(ended.err.find("profile: a partial profile was saved"), ended.err.find("diverged"))
      << "the reason comes first: " << ended.err;
  EXPECT_THAT(ended.err, HasSubstr("view it with: warpstep report " + shell_word(out) + "\n"));
  EXPECT_EQ(ended.out, "");
  const Json summary = read_json(out + "/summary.json");
  EXPECT_EQ(summary["outcome"], "diverged");
  EXPECT_THAT(summary["error"].get<std::string>(), HasSubstr("the loss is"));
  EXPECT_THAT(run({"runs", out}).out, HasSubstr("diverged"));
  ASSERT_FALSE(checkpoints(out).empty());
  for (const Json& line : metrics(out)) EXPECT_TRUE(line.at("loss").is_number()) << line;
  EXPECT_EQ(run({"eval", checkpoints(out).front()}).exit_code, 0);
}

TEST_F(Refuse, ToSaveWeightsWhoseEvaluationDiverged) {
  const Ended ended = run({"train", "mlp", "--data", data_, "--out", out_, "--optimizer", "sgd",
                           "--lr", "1e38", "--steps", "1", "--threads", "1"});
  EXPECT_EQ(ended.exit_code, 1);
  EXPECT_THAT(ended.err, HasSubstr("the validation loss is"));
  EXPECT_THAT(ended.err, HasSubstr("These weights were not saved"));
  EXPECT_TRUE(checkpoints(out_).empty());
}

TEST_F(Refuse, ToContinueWhenTheDiskIsFull) {
  Setting full;
  full.max_file_bytes = 1'000'000;  // a checkpoint has 4.6 MB
  const Ended ended = run(short_run(data_, out_), full);
  EXPECT_EQ(ended.exit_code, 1);
  EXPECT_THAT(ended.err, AllOf(HasSubstr(out_ + "/checkpoint-00000006.safetensors: cannot write"),
                               HasSubstr("no partial file is left")));
  EXPECT_EQ(std::distance(fs::directory_iterator(out_), {}), 3)
      << "config.json, metrics.jsonl, session.prof";

  full.max_file_bytes = 4000;  // config.json has 3.1 kB; a line of a step 200 bytes
  fs::remove_all(out_);
  const Ended early = run(train({"--batch", "8", "--log-every", "1", "--threads", "1"}), full);
  EXPECT_EQ(early.exit_code, 1);
  EXPECT_THAT(early.err, HasSubstr(out_ + "/metrics.jsonl: cannot write: File too large"));
  EXPECT_TRUE(checkpoints(out_).empty());
}

}  // namespace
}  // namespace warpstep::system_test
