// A run from its data set to its files: their names and content, and that its numbers repeat.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/core/cpu_isa.h"
#include "tests/system/program.h"
#include "tests/system/sets.h"

namespace warpstep::system_test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::Not;

std::vector<std::string> kinds(const std::vector<Json>& lines) {
  std::vector<std::string> kinds;
  for (const Json& line : lines) kinds.push_back(line.at("kind").get<std::string>());
  return kinds;
}

// Where the CPU has bf16; where it has not, refuse_options_test and model_test hold the message.
TEST(Train, InBf16OnTheCpu) {
  if (bf16_isa() == Bf16Isa::none) GTEST_SKIP() << "no bf16 in " << cpu_isa_text();
  const TemporaryFolder folder;
  const std::string data = folder / "data", out = folder / "runs/x";
  const Ended made = run({"data", "make", data, "--train", "384", "--test", "128"});
  ASSERT_EQ(made.exit_code, 0) << made.err;
  const std::vector<std::string> command{
      "train",    "cifar10cnn", "--data", data,   "--device", "cpu", "--precision", "bf16",
      "--epochs", "3",          "--lr",   "1e-3", "--batch",  "64",  "--out",       out};
  const Ended ended = run(command);
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  const Json summary = read_json(out + "/summary.json");
  EXPECT_EQ(summary["steps"], 18);
  std::vector<double> losses;
  for (const Json& line : metrics(out))
    if (line["kind"] == "epoch") losses.push_back(line["loss"].get<double>());
  ASSERT_EQ(losses.size(), 3U);
  EXPECT_LT(losses[2], losses[0]);
  const Ended again = run({"train", "--resume", out, "--epochs", "4", "--precision", "fp32"});
  EXPECT_EQ(again.exit_code, 0) << again.err;
  EXPECT_THAT(again.err, HasSubstr("the run was in bf16 so far"));
}

TEST(Train, WritesARunThatEvalReproduces) {
  const TemporaryFolder folder;
  const std::string data = folder / "data", out = folder / "runs/x";
  const Ended made = run({"data", "make", data, "--train", "384", "--test", "128"});
  ASSERT_EQ(made.exit_code, 0) << made.err;
  const Ended ended = run({"train", "cifar10cnn", "--data", data, "--epochs", "2", "--lr", "1e-4",
                           "--batch", "64", "--log-every", "1", "--out", out});
  ASSERT_EQ(ended.exit_code, 0) << ended.err;

  for (const char* file : {"config.json", "metrics.jsonl", "summary.json", "curves.png"})
    EXPECT_TRUE(fs::is_regular_file(out + "/" + file)) << file;
  EXPECT_EQ(checkpoints(out).back().filename(), "checkpoint-00000012.safetensors");

  const Json config = read_json(out + "/config.json");
  EXPECT_EQ(config["options"]["model"], "cifar10cnn");
  EXPECT_EQ(config["options"]["lr"], 1e-4);
  EXPECT_EQ(config["options"]["mean"].size(), 3U);
  EXPECT_EQ(config["data"]["images"], 384);
  EXPECT_EQ(config["data"]["test_images"], 128);

  const std::vector<std::string> epoch{"step", "step", "step",  "step",
                                       "step", "step", "epoch", "evaluation"};
  std::vector<std::string> expected;
  for (int i = 0; i < 2; ++i) expected.insert(expected.end(), epoch.begin(), epoch.end());
  const std::vector<Json> lines = metrics(out);
  EXPECT_EQ(kinds(lines), expected);
  EXPECT_EQ(lines[6]["images"], 384);
  EXPECT_EQ(lines[7]["epoch"], 1);
  EXPECT_EQ(lines[7]["images"], 128);

  const Json summary = read_json(out + "/summary.json");
  EXPECT_EQ(summary["outcome"], "finished");
  EXPECT_EQ(summary["epochs"], 2);
  EXPECT_EQ(summary["steps"], 12);
  EXPECT_EQ(summary["test"]["images"], 128);
  EXPECT_GT(summary["images_per_second"], 0);
  const Json& share = summary["step_time_share"];
  double sum = 0;
  for (const auto& [part, value] : share.items()) sum += value.get<double>();
  EXPECT_NEAR(sum, 1, 1e-9);

  for (const char* part : {"accuracy ", "images/s", "waiting for data", "kernels", "CPU"})
    EXPECT_THAT(ended.out, HasSubstr(part));
  for (const char* file : {"summary.json", "curves.png", "metrics.jsonl"})
    EXPECT_THAT(ended.out, HasSubstr(out + "/" + file));
  EXPECT_THAT(ended.out, HasSubstr(checkpoints(out).back().string()));
  // Messages go to standard error.
  EXPECT_THAT(ended.out, Not(HasSubstr("validation")));
  EXPECT_THAT(ended.err, HasSubstr("epoch 2/2  validation  loss"));
  EXPECT_THAT(ended.err, HasSubstr("device: cpu"));
  EXPECT_THAT(ended.err, HasSubstr("not CUDA: "));  // auto reports its choice and the reason

  const Ended evaluated = run({"eval", out, "--json"});
  ASSERT_EQ(evaluated.exit_code, 0) << evaluated.err;
  const Json result = Json::parse(evaluated.out);
  EXPECT_EQ(result["accuracy"], summary["test"]["accuracy"]);
  EXPECT_EQ(result["loss"], summary["test"]["loss"]);
  EXPECT_EQ(result["images"], 128);
  EXPECT_THAT(run({"eval", out}).out, HasSubstr("of 128), loss "));
}

TEST(Train, SaysHowLittleOfAnImageItsModelsCropsUse) {
  const TemporaryFolder folder;
  for (const char* split : {"/data/train", "/data/test"})
    data::testing::put_png_split(folder.path() + split, 4, 2, {120, 160, 3});
  const std::vector<std::string> arguments{"train",    "airbench", "--data",  folder / "data",
                                           "--device", "cpu",      "--batch", "2",
                                           "--steps",  "1",        "--out",   folder / "run"};
  EXPECT_THAT(run(arguments).err, HasSubstr("airbench uses 5.3 % of an image of 160 x 120 pixels"));
  EXPECT_THAT(run(with(arguments, "--overwrite", "--transforms", "resize=32,random-crop=32")).err,
              Not(HasSubstr("of an image of")));
}

TEST(Train, LearnsAndRepeatsBitForBitAtAnyWorkerCount) {
  const TemporaryFolder folder;
  make_set(folder / "data");
  const auto train = [&](const std::string& name, const std::string& workers,
                         const std::string& prefetch, const std::string& seed) {
    const Ended ended = run(with(short_run(folder / "data", folder / name, "cifar10cnn"),
                                 "--workers", workers, "--prefetch", prefetch, "--seed", seed));
    EXPECT_EQ(ended.exit_code, 0) << ended.err;
  };
  train("first", "1", "2", "5");
  const Json summary = read_json(folder / "first/summary.json");
  EXPECT_GT(summary["test"]["accuracy"], 0.9) << "three plain colours are easy";
  train("one", "1", "5", "5");
  train("two", "2", "2", "5");
  train("four", "4", "5", "5");
  for (const char* other : {"one", "two", "four"})
    expect_equal_runs(folder / "first", folder / other);
  train("seed", "1", "2", "6");
  EXPECT_NE(timeless_metrics(folder / "first"), timeless_metrics(folder / "seed"));
  EXPECT_NE(tensors(checkpoints(folder / "first").back()),
            tensors(checkpoints(folder / "seed").back()));
}

TEST(Train, LabelsMayBeAPickleATableOrFolders) {
  const TemporaryFolder folder;
  make_set(folder / "pickle");
  for (const std::string split : {"/train/", "/test/"}) {
    std::string table = "name,label\n";
    const int files = split == "/train/" ? 192 : 64;
    for (int i = 0; i < files; ++i) {
      const std::string label = std::to_string(i * set_classes / files);
      const fs::path from = (folder / "pickle") + split + file_name(i);
      for (const std::string& to :
           {(folder / "table") + split, (folder / "folders") + split + label})
        fs::create_directories(to);
      fs::copy_file(from, (folder / "table") + split + file_name(i));
      fs::copy_file(from, (folder / "folders") + split + label + "/" + file_name(i));
      table += file_name(i) + "," + label + "\n";
    }
    put((folder / "table") + split + "labels.csv", table);
  }
  for (const std::string kind : {"pickle", "table", "folders"}) {
    const Ended ended = run(short_run(folder / kind, folder / ("run-" + kind)));
    ASSERT_EQ(ended.exit_code, 0) << kind << ended.err;
  }
  expect_equal_runs(folder / "run-pickle", folder / "run-table");
  expect_equal_runs(folder / "run-pickle", folder / "run-folders");
}

TEST(Train, StepsAloneIsTheWholeLength) {
  const TemporaryFolder folder;
  make_set(folder / "data");
  const std::string out = folder / "run";
  const Ended ended = run({"train", "mlp", "--data", folder / "data", "--batch", "32", "--steps",
                           "8", "--threads", "1", "--out", out});
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  const Json summary = read_json(out + "/summary.json");
  EXPECT_EQ(summary["steps"], 8);
  EXPECT_EQ(metrics(out).back()["kind"], "evaluation");
  EXPECT_EQ(metrics(out).back()["step"], 8);
}

TEST(Train, AnEpochThatALimitShortensCountsForTheSchedule) {
  const TemporaryFolder folder;
  make_set(folder / "data");
  const std::string out = folder / "run";
  ASSERT_EQ(run(with(short_run(folder / "data", out), "--limit-batches", "2", "--lr-schedule",
                     "step", "--lr-step-epochs", "1"))
                .exit_code,
            0);
  std::vector<double> rates;
  for (const Json& line : metrics(out))
    if (line["kind"] == "step") rates.push_back(line["learning_rate"]);
  EXPECT_THAT(rates, testing::Pointwise(testing::FloatEq(), {1e-3F, 1e-3F, 1e-4F, 1e-4F}));
}

TEST(Train, OptionsMayComeFromAFile) {
  const TemporaryFolder folder;
  make_set(folder / "data");
  put(folder / "run.toml", "model = \"mlp\"\nepochs = 3\nbatch = 64\nthreads = 1\nlr = 0.01\n");
  const std::string out = folder / "run";
  const Ended ended = run({"train", "--config", folder / "run.toml", "--epochs", "1", "--data",
                           folder / "data", "--out", out});
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  const Json options = read_json(out + "/config.json")["options"];
  EXPECT_EQ(options["lr"], 0.01);
  EXPECT_EQ(options["batch"], 64);
  EXPECT_EQ(options["epochs"], 1) << "the command line wins";
}

// Where they run changes no bit, and the run says where that was.
TEST(Train, WithPinnedThreadsGivesTheSameBits) {
  const TemporaryFolder folder;
  make_set(folder / "data");
  const auto train = [&](const std::string& name, const std::string& cpus) {
    const Ended ended = run(with(short_run(folder / "data", folder / name), "--pin-cpus", cpus));
    EXPECT_EQ(ended.exit_code, 0) << ended.err;
    return ended;
  };
  EXPECT_THAT(train("free", "none").err, Not(HasSubstr("pinned:")));
  const Ended pinned = train("pinned", "auto");
  EXPECT_THAT(pinned.err, HasSubstr("pinned: 1 thread on CPU "));
  EXPECT_EQ(tensors(checkpoints(folder / "free").back()),
            tensors(checkpoints(folder / "pinned").back()));
  const Json summary = read_json(folder / "pinned/summary.json");
  const Json config = read_json(folder / "pinned/config.json");
  EXPECT_EQ(config["pinned"], summary["machine"]["pinned"]);
  EXPECT_EQ(config["device"]["threads"], 1);
  EXPECT_THAT(pinned.err, HasSubstr("on CPU " + config["pinned"]["team"].get<std::string>()));
  EXPECT_EQ(read_json(folder / "free/config.json")["pinned"]["team"], "none");
  // The whole affinity, although the thread that wrote this was pinned already.
  EXPECT_EQ(summary["machine"]["affinity"],
            read_json(folder / "free/summary.json")["machine"]["affinity"]);
  const Json& compute = summary["compute"];
  EXPECT_GT(compute["mfu"], 0);
  EXPECT_NEAR(compute["mfu"].get<double>(),
              compute["model_tflops_per_second"].get<double>() /
                  compute["peak_tflops_per_second"].get<double>(),
              1e-9);
  EXPECT_THAT(pinned.out, HasSubstr("of the peak of"));
}

// File names are bytes; JSON, pictures and safetensors are UTF-8.
TEST(Train, AcceptsNamesThatAreNoUtf8) {
  const TemporaryFolder folder;
  const std::string data = folder / "data \xff", out = folder / "run\xfe";
  for (const char* split : {"/train", "/test"})
    for (const char* name : {"/caf\xe9", "/dog"})
      for (int i = 0; i < 4; ++i)
        put(data + split + name + "/\xe9 " + std::to_string(i) + ".png",
            data::testing::some_png({8, 8, 3}, static_cast<std::uint32_t>(i)));
  const Ended ended = run({"train", "mlp", "--data", data, "--batch", "4", "--epochs", "1",
                           "--profile", "spans", "--out", out});
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_TRUE(fs::exists(out + "/curves.png"));
  EXPECT_EQ(read_json(out + "/config.json")["data"]["classes"], Json({"caf\ufffd", "dog"}));
  EXPECT_EQ(run({"report", out}).exit_code, 0);
  EXPECT_EQ(Json::parse(run({"data", "info", data, "--json"}).out)["train"]["classes"].size(), 2U);
  const std::string logits = folder / "logits.safetensors";
  const Ended measured =
      run({"eval", out, "--data", data, "--json", "--confusion", "--logits", logits});
  EXPECT_EQ(measured.exit_code, 0) << measured.err;
  EXPECT_EQ(Json::parse(measured.out)["images"], 8);
  EXPECT_THAT(run({"eval", out}).err, HasSubstr("name their place now: --data FOLDER"));
  const Ended resumed = run({"train", "--resume", out, "--data", data, "--epochs", "2"});
  EXPECT_EQ(resumed.exit_code, 0) << resumed.err;
}

}  // namespace
}  // namespace warpstep::system_test
