// Ways in which data reach a run: tiers, transforms, broken samples, packed sets. Only the
// transforms change what a run learns.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fmt/format.h>

#include <csignal>

#include "engine/core/file.h"
#include "tests/system/program.h"
#include "tests/system/sets.h"

namespace warpstep::system_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr const char* augmented =
    "random-crop=8:pad=2,flip,contrast=0.2,random-mask=0.1:dilate,normalize,mixup=0.5,cutmix=1";

class Loading : public testing::Test {
 protected:
  void SetUp() override { make_set(data_); }

  Ended train(const std::string& data, const std::string& out,
              const std::vector<std::string>& more) const {
    std::vector<std::string> arguments = short_run(data, out);
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(arguments);
  }
  void expect_trained(const std::string& out, const std::vector<std::string>& more) const {
    const Ended ended = train(data_, out, more);
    ASSERT_EQ(ended.exit_code, 0) << ended.err;
  }

  const TemporaryFolder folder_;
  const std::string data_ = folder_ / "data", a_ = folder_ / "a", b_ = folder_ / "b";
};

TEST_F(Loading, LearnsTheSameInEveryTierAndWhoeverNormalises) {
  for (const char* transforms : {"none", augmented}) {
    SCOPED_TRACE(transforms);
    expect_trained(a_, {"--transforms", transforms, "--tier", "decoded", "--overwrite"});
    for (const std::vector<std::string>& way :
         {std::vector<std::string>{"--tier", "mapped"},
          {"--tier", "resident"},
          {"--tier", "auto", "--workers", "4", "--prefetch", "7"},
          {"--tier", "mapped", "--workers", "auto", "--memory", "1GiB"}}) {
      std::vector<std::string> more{"--transforms", transforms, "--overwrite"};
      more.insert(more.end(), way.begin(), way.end());
      expect_trained(b_, more);
      expect_equal_runs(a_, b_);
    }
  }
  const char* no_mix =
      "random-crop=8:pad=2,flip,randaugment,colour-jitter=0.4:0.4:0.4:0.1,random-mask=0.1";
  expect_trained(a_, {"--transforms", no_mix, "--overwrite"});
  expect_trained(b_,
                 {"--transforms", no_mix, "--normalize", "cpu", "--workers", "3", "--overwrite"});
  expect_equal_runs(a_, b_);
  EXPECT_GT(read_json(b_ + "/summary.json")["loading"]["stages"]["pixels_ns"], 0);
}

TEST_F(Loading, SaysWhereTheImagesAreAndWhatLoadingCost) {
  const Ended ended = train(data_, a_, {"--transforms", "flip"});
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_THAT(ended.err,
              AllOf(HasSubstr("data: PNG folder, mapped (its pixels fit into memory), flip"),
                    HasSubstr("at most"), HasSubstr("MiB (slots")));
  EXPECT_THAT(ended.out, AllOf(HasSubstr("data: 1 worker, trainer waits"), HasSubstr("workers: ")));
  const Json config = read_json(a_ + "/config.json");
  EXPECT_EQ(config["loader"]["tier"], "mapped");
  EXPECT_EQ(config["loader"]["transforms"], "flip");
  EXPECT_EQ(config["loader"]["eval_transforms"], "");
  const Json loading = read_json(a_ + "/summary.json")["loading"];
  EXPECT_EQ(loading["batches"], 12);
  EXPECT_GE(loading["samples"], 384);
  EXPECT_GT(loading["stages"]["decode_ns"], 0);
  EXPECT_FALSE(std::filesystem::exists(a_ + "/bad_samples.jsonl"));
}

TEST_F(Loading, ContinuesInMidEpochWithTheSameAugmentation) {
  const std::vector<std::string> more{"--transforms", augmented, "--checkpoint-every", "4"};
  expect_trained(a_, more);
  std::vector<std::string> first = more;
  first.insert(first.end(), {"--steps", "4"});
  expect_trained(b_, first);
  const Ended ended =
      run({"train", "--resume", b_, "--steps", "0", "--workers", "3", "--tier", "decoded"});
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_TRUE(tensors(checkpoints(a_).back()) == tensors(checkpoints(b_).back()));
  for (const auto& [option, value] : {std::pair{"--transforms", "flip"}, {"--shuffle", "none"}}) {
    std::filesystem::remove_all(b_);
    expect_trained(b_, first);
    const Ended refused = run({"train", "--resume", b_, "--steps", "0", option, value});
    EXPECT_EQ(refused.exit_code, 2);
    EXPECT_THAT(refused.err, AllOf(HasSubstr(option), HasSubstr("mid-epoch")));
  }
}

TEST_F(Loading, ContinuesWithFewerBatchesPerEpochWherePossible) {
  expect_trained(a_, {"--checkpoint-every", "4", "--keep-checkpoints", "0"});
  const std::string middle = a_ + "/checkpoint-00000004.safetensors";
  const Ended refused = run({"train", "--resume", middle, "--limit-batches", "4"});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err, AllOf(HasSubstr("--limit-batches 4"), HasSubstr("after 4 batches")));
  const Ended ended = run({"train", "--resume", middle, "--limit-batches", "5"});
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_EQ(read_json(a_ + "/summary.json")["steps"], 10);
}

TEST_F(Loading, ToleratesBrokenSamplesOnRequest) {
  put(data_ + "/train/" + file_name(5), std::string("not an image"));
  const std::vector<std::string> fixed{"--mean", "0.5", "0.5", "0.5", "--std", "0.2", "0.2", "0.2"};
  const Ended failed = train(data_, a_, fixed);
  EXPECT_EQ(failed.exit_code, 1);
  EXPECT_THAT(failed.err, AllOf(HasSubstr(file_name(5)), HasSubstr("epoch 1, step")));
  const Ended too_many = train(data_, a_, {"--data-errors", "skip", "--overwrite"});
  EXPECT_EQ(too_many.exit_code, 1);
  EXPECT_THAT(too_many.err,
              AllOf(HasSubstr("1 of 192 samples cannot be decoded"), HasSubstr("--max-bad")));
  for (const char* policy : {"skip", "mask"}) {
    for (const char* workers : {"1", "4"}) {
      const std::string& out = std::string(workers) == "1" ? a_ : b_;
      const Ended ended = train(
          data_, out,
          {"--data-errors", policy, "--max-bad", "0.01", "--overwrite", "--workers", workers});
      ASSERT_EQ(ended.exit_code, 0) << ended.err;
      EXPECT_THAT(ended.out,
                  HasSubstr("broken     2 rows of batches could not be decoded: " + out));
      std::ifstream list(out + "/bad_samples.jsonl");
      std::string line;
      for (int epoch = 1; epoch <= 2; ++epoch) {
        ASSERT_TRUE(std::getline(list, line));
        const Json bad = Json::parse(line);
        EXPECT_EQ(bad["split"], "train");
        EXPECT_EQ(bad["epoch"], epoch);
        EXPECT_THAT(bad["error"].get<std::string>(), HasSubstr(file_name(5)));
      }
      EXPECT_FALSE(std::getline(list, line));
    }
    expect_equal_runs(a_, b_);
  }
}

TEST_F(Loading, KnowsBrokenSamplesFromBeforeItStopped) {
  for (const int number : {5, 60, 130})
    put(data_ + "/train/" + file_name(number), std::string("not an image"));
  const std::vector<std::string> policy{"--data-errors", "mask", "--max-bad", "0.1"};
  const auto start = [&](const std::string& out, std::vector<std::string> more) {
    more.insert(more.end(), policy.begin(), policy.end());
    return train(data_, out, more);
  };
  ASSERT_EQ(start(a_, {}).exit_code, 0);
  ASSERT_EQ(start(b_, {"--steps", "9"}).exit_code, 0);
  ASSERT_EQ(run({"train", "--resume", b_, "--steps", "0"}).exit_code, 0);
  EXPECT_EQ(read_file(b_ + "/bad_samples.jsonl"), read_file(a_ + "/bad_samples.jsonl"));
  const Json alone = read_json(a_ + "/summary.json"), resumed = read_json(b_ + "/summary.json");
  EXPECT_EQ(alone["bad_rows"], 6) << "three in each of two epochs";
  EXPECT_EQ(resumed["bad_rows"], 6);
}

TEST_F(Loading, RefusesABrokenSampleInAResidentSet) {
  const std::string file = data_ + "/train/" + file_name(5);
  std::filesystem::resize_file(file, std::filesystem::file_size(file) - 20);
  const auto in_tier = [&](const std::string& tier) {
    return run(with(with(short_run(data_, a_), "--data-errors", "skip", "--max-bad", "0.1"),
                    "--steps", "1", "--tier", tier));
  };
  const Ended ended = in_tier("resident");
  EXPECT_EQ(ended.exit_code, 1);
  EXPECT_THAT(ended.err, AllOf(HasSubstr(file + ": "), HasSubstr("or use --tier decoded"),
                               HasSubstr("--data-errors skip cannot leave an image out")));
  EXPECT_EQ(in_tier("decoded").exit_code, 0);
}

TEST_F(Loading, SaysWhatAnEvaluationLeavesOut) {
  expect_trained(a_, {"--data-errors", "skip", "--max-bad", "0.1", "--steps", "1"});
  const Ended whole = run({"eval", a_, "--json"});
  EXPECT_EQ(Json::parse(whole.out)["bad_rows"], 0);
  EXPECT_THAT(whole.err, Not(HasSubstr("could not be decoded")));
  for (const int number : {5, 40, 41, 50, 60}) {
    const std::string file = data_ + "/test/" + file_name(number);
    std::filesystem::resize_file(file, std::filesystem::file_size(file) - 20);
  }
  for (const char* policy : {"skip", "mask"}) {
    const Ended ended = run({"eval", a_, "--json", "--data-errors", policy});
    ASSERT_EQ(ended.exit_code, 0) << ended.err;
    EXPECT_EQ(Json::parse(ended.out)["images"], 59);
    EXPECT_EQ(Json::parse(ended.out)["bad_rows"], 5);
    EXPECT_THAT(
        ended.err,
        AllOf(HasSubstr(file_name(5) + ": "), HasSubstr(file_name(41) + ": "),
              Not(HasSubstr(file_name(50))),
              HasSubstr(
                  "note: 5 of 64 images could not be decoded and are not counted in any figure; "
                  "the first 3 are above")));
  }
  const Ended part = run({"eval", a_, "--limit-batches", "1"});  // of 32
  EXPECT_THAT(
      part.err,
      HasSubstr("note: 1 of 32 images could not be decoded and is not counted in any figure\n"));
  const std::string hostile = folder_ / "\x1b[31m\n";
  std::filesystem::copy(data_, hostile, std::filesystem::copy_options::recursive);
  const Ended shown = run({"eval", a_, "--data", hostile, "--data-errors", "skip"});
  EXPECT_THAT(shown.err, HasSubstr("/?[31m?/test/" + file_name(5) + ": "));
  EXPECT_THAT(shown.err + shown.out, Not(HasSubstr("\x1b")));
}

TEST_F(Loading, ToleratesABrokenFirstSample) {
  for (const char* broken : {"", "not an image"}) {
    put(data_ + "/train/" + file_name(0), std::string(broken));
    const Ended failed = train(data_, a_, {"--overwrite"});
    EXPECT_EQ(failed.exit_code, 1);
    EXPECT_THAT(failed.err, HasSubstr(file_name(0)));
    const Ended ended =
        train(data_, a_, {"--data-errors", "skip", "--max-bad", "0.01", "--overwrite"});
    EXPECT_EQ(ended.exit_code, 0) << ended.err;
    EXPECT_THAT(read_file(a_ + "/bad_samples.jsonl"), HasSubstr(file_name(0)));
  }
}

TEST_F(Loading, NotesAMeanWithoutEffectAndAnEvaluationOfAPart) {
  const Ended ended = train(data_, a_,
                            {"--transforms", "flip,scale", "--mean", "0.5", "0.5", "0.5", "--std",
                             "0.2", "0.2", "0.2", "--limit-batches", "1"});
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_THAT(ended.err, HasSubstr("note: --mean and --std have no effect"));
  EXPECT_THAT(run({"eval", a_}).err,
              HasSubstr("note: 1 of 2 batches are evaluated, as in the run"));
  EXPECT_THAT(run({"eval", a_, "--limit-batches", "0"}).err, Not(HasSubstr("are evaluated")));
  const auto evaluated = [&](const char* batch, const std::string& note) {
    const Ended part = run({"eval", a_, "--batch", batch, "--json"});
    EXPECT_EQ(part.exit_code, 0) << part.err;
    EXPECT_THAT(part.err, HasSubstr("note: " + note + "\n"));
    return Json::parse(part.out)["images"].get<int>();
  };
  EXPECT_EQ(
      evaluated("8", "4 of 8 batches are evaluated, as in the run; --limit-batches 0 takes all"),
      32);
  EXPECT_EQ(evaluated("24",
                      "2 of 3 batches are evaluated, 48 images; the run evaluated 32; "
                      "--limit-batches 0 takes all"),
            48);
  EXPECT_EQ(evaluated("64", "1 of 1 batches are evaluated, 64 images; the run evaluated 32"), 64);
}

TEST_F(Loading, TakesPackedSetsForTheirFolder) {
  expect_trained(a_, {"--transforms", augmented});
  for (const std::vector<std::string>& how :
       {std::vector<std::string>{}, {"--decode"}, {"--to", "safetensors"}}) {
    const std::string packed = folder_ / "packed";
    std::filesystem::remove_all(packed);
    std::vector<std::string> pack{"data", "pack", data_, packed};
    pack.insert(pack.end(), how.begin(), how.end());
    const Ended made = run(pack);
    ASSERT_EQ(made.exit_code, 0) << made.err;
    for (const char* io : {"mmap", "pread"}) {
      const Ended ended =
          train(packed, b_, {"--transforms", augmented, "--overwrite", "--data-io", io});
      ASSERT_EQ(ended.exit_code, 0) << ended.err;
      EXPECT_TRUE(tensors(checkpoints(a_).back()) == tensors(checkpoints(b_).back()));
    }
  }
}

TEST_F(Loading, EvaluatesWithoutChance) {
  expect_trained(a_, {"--transforms", augmented});
  const Json test = read_json(a_ + "/summary.json")["test"];
  for (const char* tier : {"resident", "decoded"}) {
    const Ended ended = run({"eval", a_, "--json", "--tier", tier});
    ASSERT_EQ(ended.exit_code, 0) << ended.err;
    const Json result = Json::parse(ended.out);
    EXPECT_EQ(result["accuracy"], test["accuracy"]);
    EXPECT_EQ(result["loss"], test["loss"]);
  }
}

TEST_F(Loading, TrainsToynetFromJpegFilesAndFromATarOfThem) {
  const std::string photos = folder_ / "photos", tar = folder_ / "tar";
  const Ended made = run({"data", "make", photos, "--size", "300x400", "--format", "jpeg",
                          "--train", "8", "--test", "2"});
  ASSERT_EQ(made.exit_code, 0) << made.err;
  const Ended packed = run({"data", "pack", photos, tar});
  ASSERT_EQ(packed.exit_code, 0) << packed.err;
  EXPECT_THAT(packed.out, HasSubstr("10 JPEG files can be read in part"));
  for (const auto& [data, out] : {std::pair{photos, a_}, {tar, b_}}) {
    const Ended ended =
        run({"train", "toynet", "--data", data, "--out", out, "--device", "cpu", "--batch", "2",
             "--steps", "3", "--optimizer", "sgd", "--momentum", "0.9"});
    ASSERT_EQ(ended.exit_code, 0) << ended.err;
  }
  EXPECT_TRUE(tensors(checkpoints(a_).back()) == tensors(checkpoints(b_).back()));
  EXPECT_EQ(read_json(a_ + "/config.json")["loader"]["transforms"],
            "random-crop=256,random-mask=0.25:dilate,yuv,scale");
}

// train.csv and test.csv, a format of docs/cpp: three grays, one for each class, under noise.
void make_csv(const std::string& folder) {
  for (const auto& [split, images] : {std::pair{"train", 96}, {"test", 24}}) {
    std::string text = "label,pixels\n";
    for (int image = 0; image < images; ++image) {
      text += std::to_string(image % 3);
      for (int pixel = 0; pixel < 64; ++pixel)
        text += "," + std::to_string(60 * (image % 3) + (image * 7 + pixel * 13) % 50);
      text += "\n";
    }
    put(folder + "/" + split + ".csv", text);
  }
}

// A model, a format and a transform of one library: in a run, an evaluation from elsewhere, a
// resumed run, and for packing, which makes a set that the program reads without the library.
TEST_F(Loading, TrainsOnASetOfAPlugin) {
  const std::string csv = folder_ / "csv", packed = folder_ / "packed", own = module_path("own");
  make_csv(csv);
  EXPECT_THAT(run({"data", "info", csv}).err, HasSubstr("no data set found"));
  EXPECT_THAT(run({"data", "info", csv, "--plugin", own}).out,
              HasSubstr("train: CSV, 96 images of 8 x 8 x 1, 10 classes"));
  const std::vector<std::string> short_one{
      "train", "two-convolutions",  "--plugin", own, "--batch", "32", "--device",
      "cpu",   "--eval-transforms", "none"};
  const auto train = [&](const std::string& data, const std::string& out) {
    return run(with(short_one, "--data", data, "--transforms", "solarize=200", "--epochs", "2",
                    "--out", out));
  };
  const Ended trained = train(csv, a_);
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  EXPECT_EQ(read_json(a_ + "/config.json")["data"]["kind"], "CSV");
  const Ended evaluated = run({"eval", a_, "--json"});
  ASSERT_EQ(evaluated.exit_code, 0) << evaluated.err;
  const Ended resumed = run({"train", "--resume", a_, "--epochs", "4"});
  ASSERT_EQ(resumed.exit_code, 0) << resumed.err;

  const Ended made = run({"data", "pack", csv, packed, "--decode", "--plugin", own});
  ASSERT_EQ(made.exit_code, 0) << made.err;
  const Ended other = train(packed, b_);
  ASSERT_EQ(other.exit_code, 0) << other.err;
  EXPECT_EQ(read_json(b_ + "/summary.json")["test"]["loss"], Json::parse(evaluated.out)["loss"]);

  put(csv + "/test.csv", "label,pixels\n1,2,3,4,5\n1,2,x\n");
  EXPECT_THAT(train(csv, b_).err, HasSubstr("test.csv: line 3: not a label and pixels"));
  EXPECT_THAT(run({"train", "mlp", "--data", packed, "--transforms", "solarize=200"}).err,
              HasSubstr("solarize"));
}

TEST_F(Loading, RefusesAPluginThatIsNoWholeFile) {
  const std::string pipe = folder_ / "pipe", cut = folder_ / "cut.so";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  std::filesystem::copy_file(module_path("own"), cut);
  std::filesystem::resize_file(cut, std::filesystem::file_size(cut) / 2);
  const auto load = [](const std::string& file) {
    return run({"train", "two-convolutions", "--plugin", file}, {.seconds = 20});
  };
  const Ended piped = load(pipe), shortened = load(cut);
  EXPECT_EQ(piped.exit_code, 2);
  EXPECT_THAT(piped.err, HasSubstr(pipe + ": it is not a file\n"));
  EXPECT_EQ(shortened.exit_code, 2);
  EXPECT_THAT(shortened.err, HasSubstr(cut + ": it is cut short; "));
}

// Kept decoded, the training or the test images would need more than --memory.
TEST_F(Loading, DecodesEveryTimeWhereMemoryAllowsNoMore) {
  data::testing::put_png_split(folder_ / "large/train", 128, 2, {64, 64, 3});
  data::testing::put_png_split(folder_ / "large/test", 64, 2, {64, 64, 3});
  fs::create_directory(folder_ / "turned");
  fs::create_symlink("../large/test", folder_ / "turned/train");
  fs::create_symlink("../large/train", folder_ / "turned/test");
  const auto in_tier = [&](const std::string& tier, const std::string& memory = "4600KiB") {
    return train(
        folder_ / "large", a_,
        {"--memory", memory, "--workers", "1", "--prefetch", "2", "--overwrite", "--tier", tier});
  };
  const Ended mapped = in_tier("mapped");
  EXPECT_EQ(mapped.exit_code, 2);
  EXPECT_THAT(mapped.err, AllOf(HasSubstr("--tier mapped: 1.5 MiB of pixels and "),
                                HasSubstr(" MiB for loading do not fit into --memory 4600KiB: they "
                                          "need --memory 6MiB; use --tier decoded")));
  // What the advice of a report goes by.
  const auto expect_fits = [&](bool fits) {
    EXPECT_THAT(read_file(a_ + "/session.prof"),
                HasSubstr(fmt::format("\"fits_mapped\":{}", fits)));
  };
  EXPECT_EQ(in_tier("mapped", "6MiB").exit_code, 0);
  expect_fits(true);
  EXPECT_EQ(in_tier("decoded").exit_code, 0);
  expect_fits(false);
  EXPECT_EQ(train(folder_ / "turned", a_,
                  {"--memory", "4600KiB", "--workers", "1", "--prefetch", "2", "--overwrite",
                   "--tier", "decoded"})
                .exit_code,
            0);
  expect_fits(false);
  const Ended chosen = in_tier("auto");
  EXPECT_EQ(chosen.exit_code, 0);
  EXPECT_THAT(chosen.err, HasSubstr("decoded (its pixels do not fit into memory)"));
}

TEST_F(Loading, ScalesBeforeYuvAsAfterIt) {
  for (const char* normalize : {"device", "cpu"}) {
    expect_trained(a_, {"--transforms", "flip,yuv,scale", "--normalize", normalize, "--overwrite"});
    expect_trained(b_, {"--transforms", "flip,scale,yuv", "--normalize", normalize, "--overwrite"});
    expect_equal_runs(a_, b_);
  }
}

// Measured or given, they are of the channels that the run's own transforms make.
TEST_F(Loading, TheStatisticsOfARunAreOfItsChannels) {
  const auto expect_code = [](const std::vector<std::string>& command, int code,
                              const std::string& message = "") {
    const Ended ended = run(command);
    EXPECT_EQ(ended.exit_code, code) << ended.err;
    EXPECT_THAT(ended.err, HasSubstr(message));
  };
  const std::string of_rgb =
      "mean and standard deviation are measured on the images, not on the channels of yuv: give "
      "--mean and --std of those, or scale them: --transforms ...,yuv,scale";
  expect_trained(a_, {});
  expect_code({"train", "--resume", a_, "--epochs", "3", "--transforms", "yuv"}, 2, of_rgb);
  expect_code({"train", "--resume", a_, "--epochs", "3", "--eval-transforms", "yuv"}, 2, of_rgb);
  expect_code({"eval", a_, "--eval-transforms", "yuv"}, 2, of_rgb);
  expect_code({"eval", a_, "--transforms", "yuv"}, 2, of_rgb);
  expect_code({"predict", a_, data_ + "/test", "--eval-transforms", "yuv"}, 2, of_rgb);
  expect_code({"eval", a_, "--eval-transforms", "yuv,scale"}, 0);
  const std::vector<std::string> own{"--mean", "0.5", "0.5", "0.5", "--std", "0.2", "0.2", "0.2"};
  const auto with_own = [&](std::vector<std::string> command) {
    command.insert(command.end(), own.begin(), own.end());
    return command;
  };
  expect_code(with_own({"eval", a_, "--eval-transforms", "yuv"}), 0);
  expect_code(with_own({"train", "--resume", a_, "--epochs", "3", "--transforms", "yuv"}), 0);

  const std::string of_yuv =
      "mean and standard deviation of the run are those of the channels of "
      "yuv: give --mean and --std of the images";
  expect_code({"eval", a_}, 0);
  expect_code({"train", "--resume", a_, "--epochs", "4", "--transforms", "flip,yuv"}, 0);
  expect_code({"train", "--resume", a_, "--epochs", "5", "--transforms", "flip"}, 2, of_yuv);
  expect_code({"eval", a_, "--eval-transforms", "none"}, 2, of_yuv);
  expect_code(with_own({"eval", a_, "--eval-transforms", "none"}), 0);
}

TEST_F(Loading, RefusesWhatCannotBeMeant) {
  const auto refused = [&](const std::vector<std::string>& more) {
    const Ended ended = train(data_, a_, more);
    EXPECT_EQ(ended.exit_code, 2) << ended.err;
    EXPECT_FALSE(std::filesystem::exists(a_ + "/config.json"));
    return ended.err;
  };
  EXPECT_THAT(refused({"--transforms", "random-corp=8"}), HasSubstr("did you mean random-crop"));
  EXPECT_THAT(refused({"--transforms", "normalize,flip"}), HasSubstr("must come before"));
  EXPECT_THAT(refused({"--tier", "fast"}), HasSubstr("--tier"));
  EXPECT_THAT(refused({"--tier", "resident", "--transforms", "resize=8x8"}),
              AllOf(HasSubstr("resizes images"), HasSubstr("--tier auto")));
  EXPECT_THAT(refused({"--tier", "resident", "--transforms", "randaugment"}),
              AllOf(HasSubstr("randaugment"), HasSubstr("--tier auto")));
  EXPECT_THAT(refused({"--memory", "10KiB"}), AllOf(HasSubstr("--memory"), HasSubstr("slots")));
  EXPECT_THAT(refused({"--memory", "lots"}), HasSubstr("for example 512MiB"));
  EXPECT_THAT(refused({"--shuffle", "window:5"}), HasSubstr("of at least 32"));
  EXPECT_THAT(refused({"--normalize", "cpu", "--transforms", "mixup=1"}),
              HasSubstr("--normalize device"));
  EXPECT_THAT(refused({"--workers", "many"}), HasSubstr("--workers"));
  EXPECT_THAT(refused({"--transforms", "yuv"}), AllOf(HasSubstr("--mean"), HasSubstr("yuv,scale")));
}

TEST_F(Loading, RefusesFloatsForADeviceThatComputesInDouble) {
  const std::string cpu = "cpu";
  const auto refused = [](const std::vector<std::string>& arguments) {
    const Ended ended = run(arguments);
    EXPECT_EQ(ended.exit_code, 2) << ended.err;
    EXPECT_THAT(ended.err, AllOf(HasSubstr("--device ref"), HasSubstr("use --normalize device")));
  };
  refused({"train", "mlp", "--data", data_, "--out", a_, "--device", "ref", "--normalize", cpu});
  EXPECT_FALSE(std::filesystem::exists(a_));
  expect_trained(b_, {"--normalize", cpu});
  refused({"eval", b_, "--device", "ref"});
  EXPECT_EQ(run({"eval", b_, "--device", "ref", "--normalize", "device"}).exit_code, 0);
}

}  // namespace
}  // namespace warpstep::system_test
