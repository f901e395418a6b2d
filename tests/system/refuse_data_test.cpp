// Broken data sets, and the error of a run: it names the file and the remedy, and skips nothing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <iterator>

#include "tests/system/program.h"
#include "tests/system/sets.h"

namespace warpstep::system_test {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

using Bytes = std::vector<std::uint8_t>;

Bytes read_bytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// A PNG whose header has another bit depth and colour type; its checksum is valid.
Bytes png_of_kind(std::uint8_t depth, std::uint8_t colour) {
  Bytes file = data::testing::some_png({8, 8, 3});
  file[24] = depth;
  file[25] = colour;
  const auto sum = static_cast<std::uint32_t>(::crc32(0, file.data() + 12, 17));
  for (unsigned i = 0; i < 4; ++i) file[29 + i] = static_cast<std::uint8_t>(sum >> (24 - 8 * i));
  return file;
}

class BadData : public testing::Test {
 protected:
  void SetUp() override { make_set(data_); }

  // Refused at once, with exit code 1 and one line; restores the set.
  void expect_refused(const std::vector<std::string>& parts) {
    const Ended ended = run(short_run(data_, out_));
    EXPECT_EQ(ended.exit_code, 1);
    for (const std::string& part : parts) EXPECT_THAT(ended.err, HasSubstr(part));
    EXPECT_EQ(std::count(ended.err.begin(), ended.err.end(), '\n'), 1) << ended.err;
    EXPECT_EQ(ended.out, "");
    EXPECT_FALSE(fs::exists(out_));
    fs::remove_all(data_);
    make_set(data_);
  }

  const TemporaryFolder folder_;
  const std::string data_ = folder_ / "data";
  const std::string out_ = folder_ / "run";
  const std::string train_ = data_ + "/train";
  const std::string some_file_ = train_ + "/" + file_name(100);
};

// Found only when its batch is read, because nothing reads all images before.
TEST_F(BadData, SavesTheStepsBeforeABrokenImage) {
  fs::resize_file(some_file_, fs::file_size(some_file_) / 2);
  const auto command = with(short_run(data_, out_), "--tier", "decoded", "--mean", "0.5,0.5,0.5",
                            "--std", "0.25,0.25,0.25");
  const Ended ended = run(command);
  EXPECT_EQ(ended.exit_code, 1);
  EXPECT_THAT(ended.err, AllOf(HasSubstr(file_name(100)), HasSubstr("is truncated"),
                               HasSubstr("continue with: warpstep train --resume " + out_)));
  ASSERT_EQ(checkpoints(out_).size(), 1U);
  const Json summary = read_json(out_ + "/summary.json");
  EXPECT_EQ(summary["outcome"], "broken data");
  EXPECT_THAT(checkpoints(out_).front().string(),
              HasSubstr(std::to_string(summary["steps"].get<int>())));
}

// An evaluation reads it after the first epoch; its header is read before the first step.
TEST_F(BadData, TestImagesThatAreTooSmallForTheCrop) {
  const std::string small = data_ + "/test/" + file_name(41);
  put(small, data::testing::some_png({6, 5, 3}));
  const auto command =
      with(short_run(data_, out_), "--transforms", "random-resized-crop=8,normalize",
           "--eval-transforms", "centre-crop=8,normalize");
  const Ended ended = run(command);
  EXPECT_EQ(ended.exit_code, 1);
  EXPECT_THAT(ended.err, AllOf(HasSubstr(small), HasSubstr("5 x 6"), HasSubstr("centre-crop=8")));
  EXPECT_FALSE(fs::exists(out_));
  EXPECT_EQ(run(with(command, "--data-errors", "mask", "--max-bad", "0.1")).exit_code, 0)
      << "it is left out";
  fs::remove_all(out_);
  const Ended uneven = run(with(short_run(data_, out_), "--tier", "decoded"));
  EXPECT_EQ(uneven.exit_code, 1);
  EXPECT_THAT(uneven.err, AllOf(HasSubstr(small), HasSubstr("--eval-transforms resize=8x8")));
  EXPECT_FALSE(fs::exists(out_));
  fs::resize_file(small, 20);
  EXPECT_THAT(run(command).err, AllOf(HasSubstr(small), HasSubstr("truncated")));
  EXPECT_FALSE(fs::exists(out_));
}

TEST_F(BadData, FoldersThatAreMissingOrEmpty) {
  fs::remove_all(data_);
  expect_refused({data_ + ": there is no such folder"});
  const std::string near = data_ + "s";  // what a typo would have left out
  fs::create_directories(near);
  fs::create_directories(data_ + "-of-others");  // further from it, and before it by name
  fs::remove_all(data_);
  expect_refused({data_ + ": there is no such folder; did you mean " + near + "?"});
  fs::remove_all(near);
  fs::remove_all(data_);
  fs::create_directories(data_);
  expect_refused({data_ + ": no data set found; looked for folders train/", "found nothing"});
  fs::remove_all(train_);
  fs::create_directories(train_);
  expect_refused({train_ + ": is empty; expected PNG or JPEG files with labels.pkl"});
  fs::remove_all(data_ + "/test");
  expect_refused({data_ + "/test: there is no such folder", "--val-split 0.1"});
}

TEST_F(BadData, Pictures) {
  struct Case {
    Bytes file;
    std::vector<std::string> parts;
  };
  for (const auto& [file, parts] :
       std::vector<Case>{{data::testing::some_png({9, 8, 3}),
                          {"is 8 x 9 pixels", "8 x 8", "--transforms random-resized-crop=32"}},
                         {png_of_kind(16, 2), {"broken PNG"}},  // pixels of 8 bits declared as 16
                         {png_of_kind(8, 3), {"PNG"}},          // no palette
                         {{'G', 'I', 'F', '8', '9', 'a'}, {"PNG"}},
                         {{}, {"PNG"}}}) {
    put(some_file_, file);
    std::vector<std::string> all = parts;
    all.push_back(some_file_ + ": ");
    expect_refused(all);
  }
}

TEST_F(BadData, Labels) {
  const std::string table = train_ + "/labels.csv";
  const auto lines = [](int from, int to) {
    std::string text;
    for (int i = from; i < to; ++i) text += file_name(i) + "," + std::to_string(i % 3) + "\n";
    return text;
  };
  const auto put_table = [&](const std::string& text) {
    fs::remove(train_ + "/labels.pkl");
    put(table, text);
  };
  put_table(lines(0, 190));
  expect_refused(
      {table + ": 2 files of the folder have no label: 0190.png, 0191.png", "add labels"});
  put_table(lines(0, 193));
  expect_refused({table + ": 1 label has no file: 0192.png", "remove the labels"});
  put_table(lines(0, 192) + "0007.png,1\n");
  expect_refused({table + ": the name '0007.png' occurs twice"});
  put_table(lines(1, 192) + "0000.png,-1\n");
  expect_refused({table + ": '0000.png' has label -1"});
  put(train_ + "/notes.gif", std::string("x"));
  expect_refused({train_ + "/notes.gif: is not a .png, .jpg or .jpeg file"});
  put(data_ + "/test/labels.csv", lines(0, 63) + "0063.png,3\n");
  fs::remove(data_ + "/test/labels.pkl");
  expect_refused({data_ + "/test/labels.csv: '0063.png' has label 3", "3 classes: 0 to 2"});
  // cos system: a hostile pickle in Python's protocol 0
  put(train_ + "/labels.pkl", std::string("cos\nsystem\n(S'touch x'\ntR."));
  expect_refused({train_ + "/labels.pkl: ", "GLOBAL"});
  put(train_ + "/labels.pkl", std::string("\x80\x02}(U\x01xR.", 8));
  expect_refused({train_ + "/labels.pkl: ", "REDUCE"});
}

TEST_F(BadData, APictureFoundInMidTraining) {
  const Bytes whole = read_bytes(some_file_);
  const auto arguments = with(short_run(data_, out_), "--checkpoint-every", "1", "--mean", "0.5",
                              "0.5", "0.5", "--std", "0.25", "0.25", "0.25");
  auto alone = arguments;
  *std::find(alone.begin(), alone.end(), out_) = folder_ / "alone";
  ASSERT_EQ(run(alone).exit_code, 0);

  put(some_file_,
      Bytes(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(whole.size() / 2)));
  const Ended ended = run(arguments);
  EXPECT_EQ(ended.exit_code, 1);
  EXPECT_THAT(ended.err, AllOf(HasSubstr(some_file_ + ": "), HasSubstr("copy the file again"),
                               HasSubstr("epoch "), HasSubstr(", step ")));
  EXPECT_EQ(ended.out, "");
  ASSERT_FALSE(checkpoints(out_).empty()) << "the seed has this file in the first batch";
  EXPECT_LT(checkpoints(out_).back().filename(), "checkpoint-00000006.safetensors");

  put(some_file_, whole);  // the message's advice
  EXPECT_THAT(run({"train", "--resume", out_}).err, HasSubstr("--allow-changed-data"));
  const Ended resumed = run({"train", "--resume", out_, "--allow-changed-data"});
  ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
  expect_equal_runs(folder_ / "alone", out_);
}

void put_word(Bytes& bytes, std::uint32_t word) {
  for (int shift = 24; shift >= 0; shift -= 8)
    bytes.push_back(static_cast<std::uint8_t>(word >> shift));
}

// Both IDX files of a split; the bright third of an image is its class.
void put_idx(const std::string& folder, const std::string& stem, std::uint32_t count,
             const std::function<void(const std::string&, const Bytes&)>& write) {
  Bytes images, labels;
  for (const std::uint32_t word : {0x803U, count, 12U, 12U}) put_word(images, word);
  for (const std::uint32_t word : {0x801U, count}) put_word(labels, word);
  for (std::uint32_t i = 0; i < count; ++i) {
    for (const std::uint8_t pixel : data::testing::some_pixels({12, 12, 1}, i * 31))
      images.push_back(pixel / 2);
    for (std::uint32_t p = 0; p < 48; ++p) images[images.size() - 144 + 48 * (i % 3) + p] += 127;
    labels.push_back(static_cast<std::uint8_t>(i % 3));
  }
  write(folder + "/" + stem + "-images-idx3-ubyte", images);
  write(folder + "/" + stem + "-labels-idx1-ubyte", labels);
}

void put_gz(const std::string& path, const Bytes& bytes) {
  fs::create_directories(fs::path(path).parent_path());
  const gzFile file = ::gzopen((path + ".gz").c_str(), "wb");
  ::gzwrite(file, bytes.data(), static_cast<unsigned>(bytes.size()));
  ::gzclose(file);
}

TEST(Idx, TrainsPlainAndZippedAlike) {
  const TemporaryFolder folder;
  const auto put_plain = [](const std::string& path, const Bytes& bytes) { put(path, bytes); };
  for (const auto& [stem, count] : {std::pair{"train", 192U}, std::pair{"t10k", 60U}}) {
    put_idx(folder / "plain", stem, count, put_plain);
    put_idx(folder / "zipped", stem, count, put_gz);
  }
  for (const char* kind : {"plain", "zipped"}) {
    const Ended ended = run(short_run(folder / kind, folder / (std::string("run-") + kind)));
    ASSERT_EQ(ended.exit_code, 0) << ended.err;
  }
  const std::vector<Json> lines = metrics(folder / "run-plain");
  EXPECT_LT(lines.back()["loss"], 0.2 * lines.front()["loss"].get<double>());
  EXPECT_EQ(lines.back()["images"], 60) << "the last batch is not full";
  expect_equal_runs(folder / "run-plain", folder / "run-zipped");

  // A header that claims 4 thousand million images.
  const std::string images = folder / "plain/train-images-idx3-ubyte";
  const std::string labels = folder / "plain/train-labels-idx1-ubyte";
  for (const std::string& path : {images, labels}) {
    Bytes bytes = read_bytes(path);
    const Bytes whole = bytes;
    bytes[4] = 0xff;
    put(path, bytes);
    const Ended ended = run(short_run(folder / "plain", folder / "run"));
    EXPECT_EQ(ended.exit_code, 1);
    EXPECT_THAT(ended.err, HasSubstr(path + ": "));
    EXPECT_FALSE(fs::exists(folder / "run"));
    put(path, whole);
  }
}

}  // namespace
}  // namespace warpstep::system_test
