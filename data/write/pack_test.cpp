#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <filesystem>

#include "data/decode/jpeg.h"
#include "data/write/pack.h"
#include "data/write/writers.h"
#include "engine/core/checksum.h"
#include "engine/core/file.h"
#include "tests/data_testing.h"
#include "tests/npy_file.h"

namespace warpstep::data {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::message_of;
using testing::put;
using testing::some_pixels;
using testing::some_png;
using testing::TemporaryFolder;
using ::testing::UnorderedElementsAre;
using testing::write_npy;
using Bytes = std::vector<std::uint8_t>;

Bytes packed_pixels(const Dataset& set, std::uint64_t index) {
  Scratch scratch;
  Bytes pixels(static_cast<std::size_t>(set.image_shape().count()));
  set.read(index, scratch, pixels);
  return pixels;
}

void expect_equal(const std::string& a, const std::string& b, Split split) {
  const auto left = open(a, split);
  const auto right = open(b, split);
  ASSERT_EQ(left->size(), right->size());
  EXPECT_EQ(left->classes(), right->classes());
  EXPECT_EQ(left->image_shape(), right->image_shape());
  const auto* checksums = dynamic_cast<const Checksums*>(right.get());
  ASSERT_NE(checksums, nullptr);
  Scratch scratch;
  for (std::uint64_t i = 0; i < left->size(); ++i) {
    EXPECT_EQ(left->label(i), right->label(i));
    EXPECT_EQ(packed_pixels(*left, i), packed_pixels(*right, i));
    EXPECT_EQ(checksums->stored_crc32c(i), crc32c(right->fetch(i, scratch).bytes));
  }
}

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.push_back(entry.path().filename());
  return names;
}

class Pack : public ::testing::Test {
 protected:
  Pack() {
    for (const char* split : {"train", "test"}) {
      for (std::uint32_t i = 0; i < 7; ++i)
        put(from_ + "/" + split + (i % 2 == 0 ? "/cat/" : "/dog/") + std::to_string(i) + ".png",
            some_png({4, 5, 3}, i));
    }
  }
  TemporaryFolder folder_;
  std::string from_ = folder_ / "from";
  std::string out_ = folder_ / "out";
};

TEST_F(Pack, KeepsPixelsLabelsAndClassesInEveryFormat) {
  for (const PackTo to : {PackTo::tar, PackTo::encoded, PackTo::decoded}) {
    PackOptions options;
    options.to = to;
    options.shard_bytes = 8192;  // several shards
    const PackSummary summary = pack(from_, out_, options);
    EXPECT_EQ(summary.samples, 14U);
    EXPECT_EQ(summary.files > 2, to == PackTo::tar);
    expect_equal(from_, out_, Split::train);
    expect_equal(from_, out_, Split::test);
    EXPECT_THAT(names_in(folder_.path()), UnorderedElementsAre("from", "out"));
    fs::remove_all(out_);
  }
}

// Also where both processes have the same number, as the first of two containers on one volume.
TEST_F(Pack, LeavesTheFolderOfAnotherThatWritesTheSameOutAlone) {
  NewFolder first(out_);
  put(first.path() + "/a", std::string("x"));
  {
    NewFolder second(out_);
    EXPECT_NE(second.path(), first.path());
    put(second.path() + "/b", std::string("y"));
    first.commit();
    EXPECT_THROW(second.commit(), fs::filesystem_error);
  }
  EXPECT_THAT(names_in(out_), ElementsAre("a"));
  EXPECT_THAT(names_in(folder_.path()), UnorderedElementsAre("from", "out"));
}

TEST_F(Pack, KeepsTheAccessOfAFolderThatItFills) {
  std::filesystem::create_directory(out_);
  std::filesystem::permissions(out_, std::filesystem::perms::owner_all);
  pack(from_, out_);
  EXPECT_EQ(std::filesystem::status(out_).permissions(), std::filesystem::perms::owner_all);
}

TEST_F(Pack, SaysWhatItPassedOver) {
  put(from_ + "/train/cat/notes.txt", std::string("x"));
  EXPECT_EQ(pack(from_, out_).passed_over.size(), 1U);
}

TEST_F(Pack, GivesTheSameBytesForAnyNumberOfWorkers) {
  for (const PackTo to : {PackTo::tar, PackTo::encoded, PackTo::decoded}) {
    PackOptions options;
    options.to = to;
    std::vector<std::string> contents;
    for (const int workers : {1, 5}) {
      options.workers = workers;
      pack(from_, out_, options);
      std::string content;
      for (const Entry& entry : list_folder(out_))
        content += entry.name + read_file(out_ + "/" + entry.name);
      contents.push_back(content);
      fs::remove_all(out_);
    }
    EXPECT_EQ(contents[0], contents[1]);
  }
}

TEST_F(Pack, TurnsOtherFormatsIntoOneAnother) {
  const std::string npy = folder_ / "npy";
  fs::create_directory(npy);
  Bytes pixels;
  for (std::uint32_t i = 0; i < 3; ++i) {
    const Bytes one = some_pixels({4, 5, 1}, i);
    pixels.insert(pixels.end(), one.begin(), one.end());
  }
  write_npy(npy + "/train-images.npy", StoredType::u8, std::vector<std::uint64_t>{3, 4, 5}, pixels);
  write_npy(npy + "/train-labels.npy", StoredType::u8, std::vector<std::uint64_t>{3},
            Bytes{2, 0, 1});
  EXPECT_THAT(message_of([&] { pack(npy, out_); }), HasSubstr("is already decoded; pack it with"));
  EXPECT_FALSE(exists(out_));
  PackOptions options;
  options.to = PackTo::decoded;
  pack(npy, out_, options);
  expect_equal(npy, out_, Split::train);
  EXPECT_FALSE(has_split(out_, Split::test));
  EXPECT_EQ(open(npy, Split::train)->fingerprint(), open(out_, Split::train)->fingerprint());
  pack(from_, folder_ / "tar");
  pack(folder_ / "tar", folder_ / "decoded", options);
  expect_equal(from_, folder_ / "decoded", Split::train);
}

TEST_F(Pack, MakesBaselineJpegSeekableAndLosesNothing) {
  const Shape shape{67, 83, 3};
  const std::string jpegs = folder_ / "jpegs";
  put(jpegs + "/train/a/0.jpg", encode_jpeg(shape, some_pixels(shape, 0)));
  put(jpegs + "/train/a/1.png", some_png(shape, 1));
  const PackSummary summary = pack(jpegs, out_);
  EXPECT_EQ(summary.seekable, 1U);
  EXPECT_EQ(summary.kept, 0U);
  expect_equal(jpegs, out_, Split::train);
  Scratch scratch;
  EXPECT_TRUE(jpeg_traits(open(out_, Split::train)->fetch(0, scratch).bytes, "0").seekable);
  PackOptions options;
  options.seekable = false;
  options.to = PackTo::encoded;
  pack(jpegs, folder_ / "as-is", options);
  const auto as_is = open(folder_ / "as-is", Split::train)->fetch(0, scratch).bytes.size();
  EXPECT_EQ(as_is, fs::file_size(jpegs + "/train/a/0.jpg"));
}

TEST_F(Pack, WritesIntoTheFolderThatALinkNames) {
  const std::string link = folder_ / "link";
  fs::create_directory_symlink("out", link);
  EXPECT_THAT(message_of([&] { pack(from_, link); }), HasSubstr("link to a folder that does not"));
  fs::create_directory(out_);
  pack(from_, link);
  EXPECT_TRUE(fs::is_symlink(link));
  expect_equal(from_, out_, Split::train);
  EXPECT_THAT(names_in(folder_.path()), UnorderedElementsAre("from", "link", "out"));
}

TEST_F(Pack, LeavesTheCurrentFolderInPlace) {
  const fs::path before = fs::current_path();
  fs::create_directory(out_);
  fs::current_path(out_);
  const std::string refusal = message_of([] { pack("../from", "."); });
  fs::current_path(before);
  EXPECT_THAT(refusal, HasSubstr(".: is the current folder"));
}

TEST_F(Pack, RefusesAnOutThatHoldsSomething) {
  put(out_ + "/mine", std::string("x"));
  EXPECT_THAT(message_of([&] { pack(from_, out_); }),
              HasSubstr("/out: exists and is not an empty folder"));
  fs::remove(out_ + "/mine");
  pack(from_, out_ + "/");  // empty now
  expect_equal(from_, out_, Split::train);
}

TEST_F(Pack, RefusesAnOutAmongTheImages) {
  const std::string unsplit = from_ + "/train";
  const auto before = names_in(unsplit);
  EXPECT_THAT(message_of<UsageError>([&] { pack(unsplit, unsplit + "/packed"); }),
              HasSubstr("/train/packed: is inside " + unsplit));
  EXPECT_EQ(names_in(unsplit), before);
}

TEST_F(Pack, LeavesNothingBehindWhenASampleIsBroken) {
  put(from_ + "/test/dog/5.png", some_png({9, 9, 3}));
  PackOptions options;
  options.to = PackTo::decoded;
  EXPECT_THAT(message_of([&] { pack(from_, out_, options); }),
              HasSubstr("test/dog/5.png: is 9 x 9 pixels"));
  EXPECT_THAT(names_in(folder_.path()), ElementsAre("from"));
}

TEST_F(Pack, LeavesNothingBehindWhenTheDiskIsFull) {
  ::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  ::getrlimit(RLIMIT_FSIZE, &before);
  const rlimit small{600, before.rlim_max};
  for (const PackTo to : {PackTo::tar, PackTo::encoded}) {
    PackOptions options;
    options.to = to;
    ::setrlimit(RLIMIT_FSIZE, &small);
    const std::string message = message_of([&] { pack(from_, out_, options); });
    ::setrlimit(RLIMIT_FSIZE, &before);
    EXPECT_THAT(message, HasSubstr("File too large"));
    EXPECT_THAT(names_in(folder_.path()), ElementsAre("from"));
  }
}

}  // namespace
}  // namespace warpstep::data
