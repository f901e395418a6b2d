// Weights from other programs and for them: --weights, --logits and `warpstep weights`.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "engine/core/text.h"
#include "engine/files/safetensors_values.h"
#include "tests/system/program.h"
#include "tests/system/sets.h"

namespace warpstep::system_test {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

std::vector<float> values(const std::string& path, const std::string& name) {
  const SafetensorsFile file(path);
  return read_values(file, file.at(name));
}

// A run that changes nothing.
std::vector<std::string> still(std::vector<std::string> arguments) {
  std::ranges::replace(arguments, "1e-3", "0");
  return arguments;
}

class Weights : public testing::Test {
 protected:
  void SetUp() override {
    make_set(data_);
    const Ended ended = run(short_run(data_, run_));
    ASSERT_EQ(ended.exit_code, 0) << ended.err;
    checkpoint_ = checkpoints(run_).back();
    const Ended converted = run({"weights", "convert", checkpoint_, weights_, "--drop-optimizer"});
    ASSERT_EQ(converted.exit_code, 0) << converted.err;
    EXPECT_THAT(converted.out, AllOf(HasSubstr(weights_ + ": 6 tensors, "),
                                     HasSubstr("12 of the optimiser left out")));
  }
  std::vector<std::string> train(const std::string& out) const {
    return with(short_run(data_, out), "--weights", weights_);
  }
  // Of a run, with its own means.
  std::vector<std::string> eval_model() const {
    std::vector<std::string> arguments{"eval", "mlp", "--weights", weights_, "--data", data_};
    const Json options = read_json(run_ + "/config.json").at("options");
    for (const std::string key : {"mean", "std"}) {
      arguments.push_back("--" + key);
      for (const Json& value : options.at(key)) arguments.push_back(value.dump());
    }
    return arguments;
  }
  void expect_refused(const std::vector<std::string>& arguments, int exit_code,
                      const testing::Matcher<const std::string&>& message) const {
    const Ended ended = run(arguments);
    EXPECT_EQ(ended.exit_code, exit_code) << ended.err;
    EXPECT_THAT(ended.err, message);
    EXPECT_EQ(ended.out, "");
    EXPECT_FALSE(fs::exists(folder_ / "new"));
  }

  const TemporaryFolder folder_;
  const std::string data_ = folder_ / "data", run_ = folder_ / "run";
  const std::string weights_ = folder_ / "weights.safetensors", logits_ = folder_ / "l.safetensors";
  std::string checkpoint_;
};

TEST_F(Weights, StartARunThatBeginsWhereTheyEnded) {
  const Ended ended = run(still(train(folder_ / "new")));
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_THAT(ended.err, AllOf(HasSubstr(weights_ + ": 6 of the model's 6 tensors loaded"),
                               HasSubstr("as loaded  validation  loss")));
  const Tensors before = tensors(checkpoint_);
  for (const auto& [name, bytes] : tensors(checkpoints(folder_ / "new").back()))
    if (!name.starts_with("optimizer.")) {
      EXPECT_EQ(bytes, before.at(name)) << name;
    }
  const Json config = read_json(folder_ / "new/config.json");
  EXPECT_EQ(config["weights"]["file"], weights_);
  EXPECT_EQ(config["weights"]["loaded"], 6);
  EXPECT_FALSE(read_json(run_ + "/config.json").contains("weights"));
  // A resumed run has its own weights, though it began with others.
  fs::remove(weights_);
  EXPECT_EQ(run({"train", "--resume", folder_ / "new", "--epochs", "3"}).exit_code, 0);
  EXPECT_EQ(read_json(folder_ / "new/config.json")["weights"], config["weights"]);
}

TEST_F(Weights, DecideWhetherARunBeginsWithAnEvaluation) {
  const auto kinds_of = [&](std::vector<std::string> arguments) {
    const Ended ended = run(arguments);
    EXPECT_EQ(ended.exit_code, 0) << ended.err;
    const std::string first = kinds(metrics(folder_ / "new")).front();
    fs::remove_all(folder_ / "new");
    return first +
           (ended.err.find("untrained  validation") != std::string::npos ? " untrained" : "");
  };
  const std::vector<std::string> fresh = short_run(data_, folder_ / "new");
  EXPECT_EQ(kinds_of(fresh), "step");
  EXPECT_EQ(kinds_of(with(fresh, "--eval-first", "on")), "evaluation untrained");
  EXPECT_EQ(kinds_of(train(folder_ / "new")), "evaluation");
  EXPECT_EQ(kinds_of(with(train(folder_ / "new"), "--eval-first", "off")), "step");
}

TEST_F(Weights, AreTheAverageOfARunThatKeptOne) {
  const std::string out = folder_ / "its average", file = folder_ / "average.safetensors";
  ASSERT_EQ(run(with(short_run(data_, out), "--ema", "0.5")).exit_code, 0);
  const std::string saved = checkpoints(out).back();
  Ended ended = run({"weights", "convert", saved, file, "--drop-optimizer"});
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_THAT(ended.out, HasSubstr("12 of the optimiser left out, of the average of the weights"));
  EXPECT_EQ(values(file, "fc1.weight"), values(saved, "ema.fc1.weight"));
  ended = run({"weights", "convert", saved, file, "--drop-optimizer", "--no-ema"});
  EXPECT_THAT(ended.out, HasSubstr("of the weights without their average"));
  EXPECT_EQ(values(file, "fc1.weight"), values(saved, "fc1.weight"));
  EXPECT_EQ(run({"weights", "convert", saved, file, "--no-ema"}).exit_code, 2);
  ended = run(with(short_run(data_, folder_ / "new"), "--weights", saved));
  EXPECT_THAT(ended.err, AllOf(HasSubstr("these are the weights themselves, not their average"),
                               HasSubstr("weights convert " + shell_word(saved) + " OUT")));
}

TEST_F(Weights, AreNotReplacedByOtherTensors) {
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"eval", run_, "--logits", checkpoint_},
        {"weights", "convert", weights_, checkpoint_}}) {
    const Ended ended = run(arguments);
    EXPECT_EQ(ended.exit_code, 2);
    EXPECT_THAT(ended.err, HasSubstr(checkpoint_ + ": is a checkpoint of a run"));
  }
  EXPECT_EQ(run({"eval", run_}).exit_code, 0);
}

TEST_F(Weights, OfOtherImagesNameTheirChannelsOrSize) {
  const std::string gray = folder_ / "gray", large = folder_ / "large";
  for (const char* split : {"/train", "/test"}) {
    data::testing::put_png_split(gray + split, 66, set_classes, {8, 8, 1});
    data::testing::put_png_split(large + split, 66, set_classes, {16, 16, 3});
  }
  expect_refused(with(short_run(gray, folder_ / "new"), "--weights", weights_), 1,
                 AllOf(HasSubstr("fc1.weight is F32 [512,192] in the file, [512,64] in the model"),
                       HasSubstr("the file is of a model for RGB images, and the images here are "
                                 "gray; convert them, for example with: mogrify -define")));
  expect_refused({"eval", run_, "--data", gray}, 1,
                 HasSubstr("gray/test: the run was trained on RGB images, and these are gray; "
                           "convert them, for example with: mogrify -define"));
  ASSERT_EQ(run({"data", "pack", gray, folder_ / "packed"}).exit_code, 0);
  expect_refused(
      {"eval", run_, "--data", folder_ / "packed"}, 1,
      HasSubstr("the run was trained on RGB images, and these are gray; convert them\n"));
  expect_refused({"eval", run_, "--data", large}, 1,
                 AllOf(HasSubstr("the run was trained on images of 8x8x3"),
                       HasSubstr("scale them with --eval-transforms resize=8x8")));
  // Weights without their run, and a run whose test images have another size.
  const std::string weights = checkpoints(run_).back().string();
  const Ended bare = run({"eval", "mlp", "--weights", weights, "--data", large, "--mean",
                          "0.5,0.5,0.5", "--std", "0.25,0.25,0.25"});
  EXPECT_EQ(bare.exit_code, 1);
  EXPECT_THAT(bare.err, AllOf(HasSubstr("the data: images of 16x16x3 in 3 classes"),
                              HasSubstr("scale the images with --eval-transforms resize=")));
  for (const char* average : {"0", "0.9"}) {
    const Ended uneven =
        run({"train", "mlp", "--data", data_, "--out", folder_ / "uneven", "--device", "cpu",
             "--batch", "32", "--transforms", "random-crop=6,normalize", "--eval-transforms",
             "normalize", "--ema", average});
    EXPECT_EQ(uneven.exit_code, 2);
    EXPECT_THAT(uneven.err, HasSubstr("training images are 6x6x3 for the model and test images "
                                      "8x8x3, but mlp has weights for one size only; bring test "
                                      "images to the same: --eval-transforms resize=6x6"));
  }
  const Ended scaled = run({"eval", run_, "--data", large, "--eval-transforms", "resize=8x8"});
  EXPECT_EQ(scaled.exit_code, 0) << scaled.err;
}

TEST_F(Weights, OfAnotherSizeNameTheTransformThatMakesIt) {
  const std::string image = data_ + "/test/" + file_name(0);
  const auto has = [](const std::string& given, const std::string& size) {
    return AllOf(HasSubstr("--eval-transforms " + given + ": " + size +
                           ", but the model was trained on images of 8x8x3 and has other weights "
                           "for other sizes; scale them to that size, --eval-transforms "
                           "resize=8x8, or leave out --eval-transforms"),
                 Not(HasSubstr("another model")));
  };
  for (const auto& command : {std::vector<std::string>{"eval", run_}, {"predict", run_, image}}) {
    expect_refused(with(command, "--eval-transforms", "resize=12,normalize"), 2,
                   has("resize=12,normalize", "resize=12 makes images of 12x12x3"));
    expect_refused(
        with(command, "--eval-transforms", "resize=9,centre-crop=4x6,normalize"), 2,
        has("resize=9,centre-crop=4x6,normalize", "centre-crop=4x6 makes images of 4x6x3"));
    EXPECT_EQ(run(with(command, "--eval-transforms", "resize=9,centre-crop=8,normalize")).exit_code,
              0);
  }
  expect_refused(with(eval_model(), "--eval-transforms", "resize=12"), 1,
                 HasSubstr("images of 12x12x3 (by --eval-transforms resize=12) in 3 classes"));
  // A run on crops, whose model has never seen whole images.
  const std::string cropped = folder_ / "cropped";
  ASSERT_EQ(run(with(short_run(data_, cropped), "--transforms", "random-crop=6")).exit_code, 0);
  expect_refused({"eval", cropped, "--eval-transforms", "none"}, 2,
                 AllOf(HasSubstr("--eval-transforms none: images stay 8x8x3, but the model was "
                                 "trained on images of 6x6x3"),
                       HasSubstr("--eval-transforms resize=6x6")));
}

TEST_F(Weights, OfAnotherHeadLeaveItFresh) {
  const std::string other = folder_ / "other.safetensors";
  ASSERT_EQ(run({"weights", "convert", weights_, other, "--rename", "fc3=head"}).exit_code, 0);
  const std::vector<std::string> start =
      still(with(short_run(data_, folder_ / "new"), "--weights", other));
  expect_refused(start, 1,
                 AllOf(HasSubstr(other + ": weights of another model: 4 of its 6 tensors fit"),
                       HasSubstr("2 missing in the file: fc3.weight, fc3.bias"),
                       HasSubstr("2 not in the model: "), HasSubstr("--allow-missing loads")));
  const Ended ended = run(with(start, "--allow-missing"));
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_THAT(ended.err, AllOf(HasSubstr("4 of the model's 6 tensors loaded"),
                               HasSubstr("left as initialised: fc3.weight, fc3.bias"),
                               HasSubstr("only in the file: ")));
  ASSERT_EQ(run(still(short_run(data_, folder_ / "fresh"))).exit_code, 0);
  const Tensors found = tensors(checkpoints(folder_ / "new").back());
  const Tensors fresh = tensors(checkpoints(folder_ / "fresh").back());
  EXPECT_EQ(found.at("fc1.weight"), tensors(checkpoint_).at("fc1.weight"));
  EXPECT_EQ(found.at("fc3.weight"), fresh.at("fc3.weight"));
}

TEST_F(Weights, AreEvaluatedWithARunOrAModelsName) {
  const Json own = Json::parse(run({"eval", run_, "--json"}).out);
  const Ended by_run = run({"eval", run_, "--weights", weights_, "--json"});
  ASSERT_EQ(by_run.exit_code, 0) << by_run.err;
  EXPECT_EQ(Json::parse(by_run.out)["weights"], weights_);
  EXPECT_EQ(Json::parse(by_run.out)["loss"], own["loss"]);
  const Ended by_name = run(with(eval_model(), "--json", "--batch", "32"));
  ASSERT_EQ(by_name.exit_code, 0) << by_name.err;
  EXPECT_EQ(Json::parse(by_name.out)["correct"], own["correct"]);
}

// Logits by row, whatever the batch; cross-entropy and accuracy follow from them.
TEST_F(Weights, LogitsAreThoseOfTheScore) {
  std::vector<float> first;
  for (const char* batch : {"32", "7"}) {
    const Ended ended = run({"eval", run_, "--batch", batch, "--logits", logits_, "--json"});
    ASSERT_EQ(ended.exit_code, 0) << ended.err;
    const Json score = Json::parse(ended.out);
    const SafetensorsFile file(logits_);
    ASSERT_EQ(file.at("logits").shape, (std::vector<std::uint64_t>{64, set_classes}));
    ASSERT_EQ(file.at("label").type, StoredType::i64);
    EXPECT_EQ(file.metadata().at("classes"), R"(["0","1","2"])");
    const std::vector<float> logits = values(logits_, "logits"), label = values(logits_, "label");
    double loss = 0;
    int correct = 0;
    for (std::size_t i = 0; i < 64; ++i) {
      const float* row = &logits[i * set_classes];
      double sum = 0;
      for (int c = 0; c < set_classes; ++c) sum += std::exp(static_cast<double>(row[c]));
      const auto at = static_cast<std::ptrdiff_t>(label[i]);
      loss += std::log(sum) - static_cast<double>(row[at]);
      correct += std::max_element(row, row + set_classes) - row == at ? 1 : 0;
    }
    EXPECT_NEAR(score["loss"].get<double>(), loss / 64, 1e-5);
    EXPECT_EQ(score["correct"], correct);
    if (first.empty()) first = logits;
    for (std::size_t i = 0; i < first.size(); ++i) ASSERT_NEAR(logits[i], first[i], 1e-4);
  }
}

TEST_F(Weights, InfoShowsWhatIsThere) {
  const Ended table = run({"weights", "info", checkpoint_});
  ASSERT_EQ(table.exit_code, 0) << table.err;
  EXPECT_THAT(table.out,
              AllOf(HasSubstr("fc1.weight"), HasSubstr("optimizer.exp_avg.fc1.weight"),
                    HasSubstr("18 tensors (18 F32), "), HasSubstr("0 NaN, 0 infinite"),
                    HasSubstr("warpstep.model = mlp"), HasSubstr("checksums of 18 tensors")));
  EXPECT_THAT(run({"weights", "info", run_}).out, HasSubstr("warpstep.model = mlp"));
  const Json json = Json::parse(run({"weights", "info", weights_, "--json"}).out);
  EXPECT_EQ(json["tensors"].size(), 6U);
  EXPECT_EQ(json["metadata"], Json({{"format", "pt"}, {"warpstep.model", "mlp"}}));
  const Json& tensor = json["tensors"][0];
  const std::vector<float> all = values(weights_, tensor["name"].get<std::string>());
  EXPECT_EQ(tensor["elements"], all.size());
  EXPECT_EQ(tensor["min"].get<float>(), *std::min_element(all.begin(), all.end()));
  EXPECT_EQ(tensor["max"].get<float>(), *std::max_element(all.begin(), all.end()));

  const std::vector<float> odd{1, std::nanf(""), INFINITY, 3};
  write_safetensors(logits_, std::vector<TensorToStore>{
                                 {"a", StoredType::f32, {4}, std::as_bytes(std::span(odd))}});
  EXPECT_THAT(run({"weights", "info", logits_}).out, HasSubstr("1 NaN, 1 infinite"));
}

TEST_F(Weights, ConvertedOnesLoad) {
  const std::string half = folder_ / "half.safetensors";
  ASSERT_EQ(run({"weights", "convert", weights_, half, "--dtype", "bf16"}).exit_code, 0);
  EXPECT_LT(fs::file_size(half), fs::file_size(weights_) * 6 / 10);
  const Ended ended = run({"eval", run_, "--weights", half});
  EXPECT_EQ(ended.exit_code, 0);
  EXPECT_THAT(ended.err, HasSubstr("converted 6 tensors of BF16 to F32"));
  EXPECT_THAT(run({"train", "--resume", half}).err, HasSubstr("not a checkpoint of Warpstep"));
}

TEST_F(Weights, AFullDiskLeavesTheOldFile) {
  const std::string out = folder_ / "out.safetensors";
  put(out, std::string("old"));
  const Ended ended = run({"weights", "convert", weights_, out}, {.max_file_bytes = 65536});
  EXPECT_NE(ended.exit_code, 0);
  EXPECT_EQ(fs::file_size(out), 3U);
}

TEST_F(Weights, RefusesWhatCannotBeMeant) {
  const std::string out = folder_ / "out.safetensors";
  expect_refused({"train", "--resume", run_, "--weights", weights_}, 2,
                 HasSubstr("--weights does not go with --resume"));
  expect_refused(with(short_run(data_, folder_ / "new"), "--allow-missing"), 2,
                 HasSubstr("--allow-missing goes with --weights"));
  expect_refused(with(short_run(data_, folder_ / "new"), "--weights", folder_ / "no"), 1,
                 HasSubstr("/no: there is no such file"));
  expect_refused(with(short_run(data_, folder_ / "new"), "--weights", run_), 1,
                 HasSubstr(run_ + ": is a directory; give a file of it: --weights " + checkpoint_));
  expect_refused({"eval", "mlp", "--weights", folder_ / "no"}, 1, HasSubstr("no such file"));
  expect_refused({"eval", "mpl", "--weights", weights_, "--data", data_}, 2,
                 HasSubstr("did you mean mlp?"));
  expect_refused({"eval", "mlp", "--weights", weights_}, 2, HasSubstr("which data?"));
  expect_refused({"eval", "mlp", "--weights", weights_, "--data", data_}, 2,
                 HasSubstr("that these weights were trained with"));
  expect_refused({"eval", run_, "--logits", folder_ / "out.npy"}, 2,
                 HasSubstr("name it X.safetensors"));
  expect_refused({"eval", run_, "--logits", logits_, "--data-errors", "mask"}, 2,
                 HasSubstr("add --data-errors fail"));
  expect_refused({"weights", "export", run_, folder_ / "export"}, 2,
                 HasSubstr("transformers has no equivalent of mlp; for PyTorch: warpstep weights"));
  expect_refused({"weights", "convert", weights_, weights_}, 2, HasSubstr("is the input file"));
  expect_refused({"weights", "convert", weights_, out, "--rename", "fc3"}, 2,
                 HasSubstr("--rename fc3: is not OLD=NEW"));
  expect_refused({"weights", "convert", weights_, out, "--dtype", "f8"}, 2, HasSubstr("--dtype"));
  expect_refused({"weights", "info", data_}, 1, HasSubstr(data_ + ": is not a run directory"));
  put(folder_ / "model.pt", std::string("PK\3\4\0\0\x08\x08\0\0", 10) + std::string(90, 'x'));
  for (const char* command : {"info", "convert"})
    expect_refused(with({"weights", command, folder_ / "model.pt"},
                        command[0] == 'c' ? out : std::string("--json")),
                   1, AllOf(HasSubstr("zip of pickles"), HasSubstr("python3 -c 'import torch")));
  EXPECT_FALSE(fs::exists(out));
}

}  // namespace
}  // namespace warpstep::system_test
