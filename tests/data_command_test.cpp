// `warpstep data` as a user runs it: exit codes, what goes to stdout and what to stderr.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "data/decode/jpeg.h"
#include "tests/build_tree.h"
#include "tests/data_exif.h"
#include "tests/data_testing.h"
#include "tests/npy_file.h"

namespace warpstep::data {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using testing::put;
using testing::put_png_split;
using testing::TemporaryFolder;
using testing::write_npy;

struct Result {
  int code = -1;
  std::string out;
  std::string err;
};

class DataCommand : public ::testing::Test {
 protected:
  Result run(const std::string& arguments) {
    const std::string command =
        fmt::format("{}/bin/warpstep data {} >{}/out 2>{}/err", testing_support::binary_dir(),
                    arguments, folder_.path(), folder_.path());
    const int status = std::system(command.c_str());
    return {WEXITSTATUS(status), text("out"), text("err")};
  }
  std::string text(const std::string& name) {
    std::vector<std::uint8_t> bytes;
    read_into(bytes, folder_ / name);
    return {bytes.begin(), bytes.end()};
  }
  TemporaryFolder folder_;
};

TEST_F(DataCommand, MakesASetAndDescribesIt) {
  const std::string set = folder_ / "set";
  const Result made = run("make " + set + " --train 30 --test 20 --seed 5");
  EXPECT_EQ(made.code, 0);
  EXPECT_EQ(made.out, set + ": 30 train and 20 test images\n");
  EXPECT_THAT(made.err, IsEmpty());
  EXPECT_THAT(run("make " + set + " --train 30 --test 20 --seed 5").out,
              HasSubstr("(already there)"));
  const Result info = run("info " + set + " --json");
  EXPECT_EQ(info.code, 0);
  const auto json = nlohmann::json::parse(info.out);
  EXPECT_EQ(json["train"]["samples"], 30);
  EXPECT_EQ(json["train"]["image_shape"], nlohmann::json({32, 32, 3}));
  EXPECT_EQ(json["train"]["classes"]["7"], 3);
  EXPECT_EQ(json["train"]["mean"].size(), 3U);
  EXPECT_EQ(json["test"]["samples"], 20);
  EXPECT_EQ(json["test"]["fingerprint"].get<std::string>().size(), 16U);
  EXPECT_THAT(run("info " + set).out,
              AllOf(HasSubstr("train: PNG folder, 30 images of 32 x 32 x 3, 10 classes"),
                    HasSubstr("test: PNG folder, 20 images")));
}

TEST_F(DataCommand, VerifiesAndListsEveryBrokenFile) {
  put_png_split(folder_ / "set/train", 6, 2);
  EXPECT_EQ(run("verify " + (folder_ / "set")).out,
            (folder_ / "set") + ": 6 of 6 samples are good\n");
  put(folder_ / "set/train/2.png", std::string("not a PNG"));
  put(folder_ / "set/train/4.png", testing::some_png({9, 9, 3}));  // another size is no fault
  const Result bad = run("verify " + (folder_ / "set"));
  EXPECT_EQ(bad.code, 1);
  EXPECT_THAT(bad.out,
              AllOf(HasSubstr("train/2.png: is not a PNG"), HasSubstr("5 of 6 samples are good")));
}

TEST_F(DataCommand, PrintsNoControlCharactersOfNames) {
  const std::string tree = folder_ / "tree";
  std::vector<std::uint8_t> bytes = testing::some_png({9, 9, 3});
  put(tree + "/train/a/1.png", bytes);
  bytes.resize(bytes.size() - 20);
  put(tree + "/train/a/\x1b[31m\n.png", bytes);
  const Result bad = run("verify " + tree);
  EXPECT_EQ(bad.code, 1);
  EXPECT_THAT(bad.out, AllOf(HasSubstr("train/a/?[31m?.png: "), Not(HasSubstr("\x1b"))));
}

TEST_F(DataCommand, DescribesImagesOfDifferentSizes) {
  put(folder_ / "set/train/a/1.png", testing::some_png({4, 5, 3}));
  put(folder_ / "set/train/a/2.png", testing::some_png({9, 3, 3}));
  EXPECT_THAT(run("info " + (folder_ / "set")).out,
              AllOf(HasSubstr("2 images of 4-9 x 3-5 x 3, 1 class"), HasSubstr("(of 2 images")));
  const auto json = nlohmann::json::parse(run("info --json " + (folder_ / "set")).out);
  EXPECT_EQ(json["train"]["heights"], nlohmann::json({4, 9}));
  EXPECT_EQ(json["train"]["widths"], nlohmann::json({3, 5}));
}

TEST_F(DataCommand, CountsImagesThatExifSaysToTurn) {
  const Shape shape{8, 12, 3};
  const auto jpeg = encode_jpeg(shape, testing::some_pixels(shape, 1), 90);
  put(folder_ / "set/train/a/1.jpg", jpeg);
  EXPECT_THAT(run("info " + (folder_ / "set")).out, Not(HasSubstr("EXIF")));
  put(folder_ / "set/train/a/2.jpg", testing::with_segment(jpeg, testing::exif_segment(6, true)));
  EXPECT_THAT(run("info " + (folder_ / "set")).out,
              HasSubstr("1 of these are JPEG files with an EXIF orientation other than normal"));
  const auto json = nlohmann::json::parse(run("info --json " + (folder_ / "set")).out);
  EXPECT_EQ(json["train"]["with_orientation"], 1);
}

TEST_F(DataCommand, PacksAndFindsWhatWasDamagedSince) {
  put_png_split(folder_ / "set/train", 6, 2);
  const std::string tar = folder_ / "tar";
  const Result packed = run("pack " + (folder_ / "set") + " " + tar + " --workers 3");
  EXPECT_EQ(packed.code, 0);
  EXPECT_THAT(packed.out, HasSubstr("/tar: 6 samples, "));
  EXPECT_THAT(packed.err, IsEmpty());
  EXPECT_THAT(run("info " + tar).out, HasSubstr("train: tar shards, 6 images of 4 x 5 x 3"));
  EXPECT_EQ(run("verify " + tar).out, tar + ": 6 of 6 samples are good\n");
  const std::string decoded = folder_ / "decoded";
  EXPECT_EQ(run("pack --decode " + tar + " " + decoded).code, 0);
  std::vector<std::uint8_t> bytes;
  read_into(bytes, decoded + "/train.safetensors");
  bytes.back() ^= 1;  // a pixel of the last image: only a checksum can tell
  put(decoded + "/train.safetensors", bytes);
  const Result damaged = run("verify " + decoded);
  EXPECT_EQ(damaged.code, 1);
  EXPECT_THAT(damaged.out, AllOf(HasSubstr("train.safetensors[5]: has the CRC32C"),
                                 HasSubstr("5 of 6 samples are good")));
}

TEST_F(DataCommand, RefusesToPackWhatCannotBeMeant) {
  put_png_split(folder_ / "set/train", 2, 2);
  const std::string from = "pack " + (folder_ / "set") + " ";
  EXPECT_EQ(run(from + (folder_ / "out") + " --decode --to tar").code, 2);
  EXPECT_EQ(run(from + (folder_ / "out") + " --to zip").code, 2);
  const Result taken = run(from + (folder_ / "set"));
  EXPECT_EQ(taken.code, 1);
  EXPECT_THAT(taken.err, HasSubstr("/set: exists and is not an empty folder"));
}

TEST_F(DataCommand, DescribesTokens) {
  const std::vector<std::uint16_t> tokens{1, 2, 3};
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(tokens.data());
  write_npy(folder_ / "train-tokens.npy", StoredType::u16, std::vector<std::uint64_t>{3},
            {bytes, 6});
  EXPECT_THAT(run("info " + folder_.path()).out,
              AllOf(HasSubstr("train: 3 tokens of U16, npy, ids up to 3\n"),
                    HasSubstr("vocabulary: 4 (by the largest id)\n")));
  const auto json = nlohmann::json::parse(
      run("info --json --val-split 0.4 " + (folder_ / "train-tokens.npy")).out);
  EXPECT_EQ(json["train"]["tokens"], 2);
  EXPECT_EQ(json["val"]["largest"], 3);
  EXPECT_EQ(json["vocabulary"], 4);
  put(folder_ / "raw/train.bin", std::vector<std::uint8_t>{1, 0, 2, 0});
  EXPECT_THAT(run("info " + (folder_ / "raw")).err, HasSubstr("train.bin: has no header; read as"));
}

TEST_F(DataCommand, TurnsTextIntoTokens) {
  const std::string all = "to be, or not to be: that is the question\n";
  put(folder_ / "a.txt", all);
  put(folder_ / "b.txt", all);
  const std::string texts = (folder_ / "a.txt") + " " + (folder_ / "b.txt") + " ";
  const Result made = run("tokenize " + texts + (folder_ / "char") + " --tokenizer char");
  EXPECT_EQ(made.code, 0);
  EXPECT_THAT(made.err, IsEmpty());
  EXPECT_THAT(made.out, AllOf(HasSubstr("/char: tokenizer char, vocabulary 16\n"),
                              HasSubstr("  train: 75 tokens, 1.000 per byte of 75 bytes\n"),
                              HasSubstr("  val: 9 tokens, 1.000 per byte of 9 bytes\n")));
  EXPECT_THAT(run("info " + (folder_ / "char")).out,
              AllOf(HasSubstr("train: 75 tokens of U16, safetensors, ids up to 15\n"),
                    HasSubstr("val: 9 tokens of U16"), HasSubstr("vocabulary: 16 (by "),
                    HasSubstr("tokenizer: char\n")));
  const Result trained = run("tokenize " + (folder_ / "a.txt") + " " + (folder_ / "bpe") +
                             " --tokenizer bpe --vocab-size 260 --format llmc --end-of-text");
  EXPECT_THAT(trained.out, HasSubstr("tokenizer bpe, vocabulary 260"));
  EXPECT_THAT(trained.err, Not(HasSubstr("note")));
  const Result small = run("tokenize " + (folder_ / "a.txt") + " " + (folder_ / "small") +
                           " --tokenizer bpe --vocab-size 1000");
  EXPECT_EQ(small.code, 0);
  EXPECT_THAT(small.err, AllOf(HasSubstr("note: the vocabulary has 2"),
                               HasSubstr("fewer than --vocab-size 1000: in the text that merges")));
  EXPECT_THAT(trained.err, IsEmpty());
  EXPECT_THAT(
      run("tokenize " + texts + (folder_ / "byte") + " --tokenizer byte --vocab-size 300").err,
      HasSubstr("note: --vocab-size has no effect"));
  EXPECT_THAT(run("info " + (folder_ / "bpe")).out, HasSubstr("of U16, llm.c, ids up to "));
  EXPECT_EQ(run("verify " + (folder_ / "char")).out,
            (folder_ / "char") + ": 84 tokens, all ids are below 16\n");
  put(folder_ / "wrong/train.bin", std::vector<std::uint8_t>{3, 0, 16, 0});
  std::filesystem::copy(folder_ / "char/tokenizer.json", folder_ / "wrong/tokenizer.json");
  const Result wrong = run("verify " + (folder_ / "wrong"));
  EXPECT_EQ(wrong.code, 1);
  EXPECT_THAT(wrong.out, HasSubstr("/train.bin: byte 2: token 1 is 16, but ids must be below 16"));
  EXPECT_THAT(run("info " + (folder_ / "wrong")).err,
              HasSubstr("/train.bin: has ids that are not in the vocabulary"));
  const Result again = run("tokenize " + texts + (folder_ / "char") + " --tokenizer char");
  EXPECT_EQ(again.code, 1);
  EXPECT_THAT(again.err, HasSubstr("/char: exists and is not an empty folder"));
  const Result merges = run("tokenize " + texts + (folder_ / "gpt2"));
  EXPECT_EQ(merges.code, 2);
  EXPECT_THAT(merges.err, HasSubstr("vocab.bpe (456 KB)"));
  EXPECT_EQ(run("tokenize " + (folder_ / "a.txt")).code, 2);
  EXPECT_EQ(run("tokenize " + texts + (folder_ / "x") + " --vocab-size 256").code, 2);
}

TEST_F(DataCommand, FailsWithOneMessage) {
  const Result missing = run("info " + (folder_ / "none"));
  EXPECT_EQ(missing.code, 1);
  EXPECT_THAT(missing.out, IsEmpty());
  EXPECT_THAT(missing.err, HasSubstr("/none: there is no such folder"));
  EXPECT_EQ(run("make").code, 2);
  EXPECT_EQ(run("make " + (folder_ / "x") + " --train 0").code, 2);
  EXPECT_EQ(run("").code, 2);
  put(folder_ / "file", std::string("x"));
  EXPECT_EQ(run("make " + (folder_ / "file")).code, 1);
}

}  // namespace
}  // namespace warpstep::data
