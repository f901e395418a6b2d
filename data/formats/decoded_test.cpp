// IDX files and CIFAR-10 batches.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/data_testing.h"
#include "tests/gzipped.h"
#include "tests/largest_allocation.h"

namespace warpstep::data {
namespace {

using testing::gzipped;

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::message_of;
using testing::put;
using testing::TemporaryFolder;

using Bytes = std::vector<std::uint8_t>;

Bytes idx_file(std::initializer_list<std::uint32_t> header, const Bytes& contents) {
  Bytes file;
  for (const std::uint32_t word : header) {
    for (int shift = 24; shift >= 0; shift -= 8) {
      file.push_back(static_cast<std::uint8_t>(word >> shift));
    }
  }
  file.insert(file.end(), contents.begin(), contents.end());
  return file;
}
Bytes images(std::uint32_t count = 3) {
  Bytes pixels(count * 6);
  for (std::size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<std::uint8_t>(i);
  return idx_file({0x803, count, 2, 3}, pixels);
}
Bytes labels(const Bytes& values = {4, 0, 2}) {
  return idx_file({0x801, static_cast<std::uint32_t>(values.size())}, values);
}

Bytes pixels_of(const Dataset& set, std::uint64_t index) {
  Scratch scratch;
  Bytes pixels(static_cast<std::size_t>(set.image_shape().count()));
  set.read(index, scratch, pixels);
  return pixels;
}

class IdxSet : public ::testing::Test {
 protected:
  std::string refusal(const Bytes& image_file, const Bytes& label_file,
                      const std::string& end = "") {
    put(folder_ / "train-images-idx3-ubyte" + end, image_file);
    put(folder_ / "train-labels-idx1-ubyte" + end, label_file);
    return message_of([&] { open(folder_.path(), Split::train); });
  }
  TemporaryFolder folder_;
};

TEST_F(IdxSet, ReadsBothSpellingsPlainAndGzipped) {
  for (const bool gzip : {false, true}) {
    for (const char* joint : {"-", "."}) {
      const TemporaryFolder folder;
      const auto place = [&](const std::string& name, const char* kind, const Bytes& file) {
        put(folder / name + joint + kind + "-ubyte" + (gzip ? ".gz" : ""),
            gzip ? gzipped(file) : file);
      };
      place("train-images", "idx3", images());
      place("train-labels", "idx1", labels());
      place("t10k-images", "idx3", images(1));
      place("t10k-labels", "idx1", labels({3}));
      const auto train = open(folder.path(), Split::train);
      EXPECT_EQ(train->kind(), "IDX");
      EXPECT_EQ(train->size(), 3U);
      EXPECT_EQ(train->image_shape(), (Shape{2, 3, 1}));
      EXPECT_EQ(train->label(0), 4);
      EXPECT_THAT(pixels_of(*train, 1), ElementsAre(6, 7, 8, 9, 10, 11));
      const auto test = open(folder.path(), Split::test);
      EXPECT_EQ(test->size(), 1U);
      EXPECT_EQ(test->classes().size(), 5U);
    }
  }
}

TEST_F(IdxSet, RefusesLyingHeaders) {
  testing_support::forget_allocations();
  EXPECT_THAT(refusal(idx_file({0x803, 3, 16000, 16000}, {1, 2}), labels()),
              HasSubstr("cannot hold them"));
  EXPECT_THAT(refusal(gzipped(idx_file({0x803, 3, 16000, 16000}, {1, 2})), labels(), ".gz"),
              HasSubstr("idx3-ubyte"));
  EXPECT_THAT(refusal(images(), idx_file({0x801, 0xffffffff}, {1})),
              HasSubstr("announces 4294967303 bytes"));
  EXPECT_LT(testing_support::largest_allocation_bytes(), 1'000'000U);
  EXPECT_THAT(refusal(idx_file({0x803, 3, 0, 3}, {}), labels()),
              HasSubstr("claims images of 0 x 3"));
  EXPECT_THAT(refusal(idx_file({0x803, 3, 70000, 3}, {}), labels()),
              HasSubstr("1 to 16384 per side are allowed"));
  EXPECT_THAT(refusal(idx_file({0x801, 3, 2, 3}, {}), labels()),
              AllOf(HasSubstr("begins with 0x00000801"), HasSubstr("0x00000803")));
  EXPECT_THAT(refusal(images(2), labels()), HasSubstr("has 2 images, but there are 3 labels"));
  EXPECT_THAT(refusal(images(0), labels({})), HasSubstr("has no labels"));
}

TEST_F(IdxSet, NamesTruncationAndExcess) {
  Bytes cut = images();
  cut.pop_back();
  EXPECT_THAT(refusal(cut, labels()), HasSubstr("announces 34 bytes, but the file of 33"));
  cut.resize(6);
  EXPECT_THAT(refusal(cut, labels()), HasSubstr("is truncated at byte 6"));
  Bytes more = images();
  more.push_back(0);
  EXPECT_THAT(refusal(more, labels()), HasSubstr("continues after byte 34"));
}

TEST_F(IdxSet, NamesBrokenGzip) {
  const Bytes whole = gzipped(images());
  for (std::size_t bytes = 1; bytes < whole.size(); ++bytes) {
    const Bytes cut(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(bytes));
    EXPECT_THAT(refusal(cut, gzipped(labels()), ".gz"), HasSubstr("idx3-ubyte.gz: ")) << bytes;
  }
  Bytes broken = whole;
  broken[broken.size() - 6] ^= 1;  // its checksum
  EXPECT_THAT(refusal(broken, gzipped(labels()), ".gz"), HasSubstr("data check"));
}

TEST_F(IdxSet, NamesMissingFilesAndStrangeLabels) {
  put(folder_ / "train-images-idx3-ubyte", images());
  EXPECT_THAT(message_of([&] { open(folder_.path(), Split::train); }),
              HasSubstr("train-labels-idx1-ubyte[.gz]: there is no such file"));
  put(folder_ / "train-labels-idx1-ubyte", labels());
  EXPECT_THAT(message_of([&] { open(folder_.path(), Split::test); }),
              HasSubstr("t10k-images-idx3-ubyte[.gz]: there is no such file"));
  put(folder_ / "t10k-images-idx3-ubyte", images(1));
  put(folder_ / "t10k-labels-idx1-ubyte", labels({5}));
  EXPECT_THAT(message_of([&] { open(folder_.path(), Split::test); }),
              HasSubstr("t10k-labels-idx1-ubyte: byte 8: label 5, but the training split has 5 "
                        "classes"));
}

Bytes cifar_record(std::uint8_t label, std::uint8_t base) {
  Bytes record(3073, base);
  record[0] = label;
  for (std::size_t c = 0; c < 3; ++c) record[1 + c * 1024 + 33] = static_cast<std::uint8_t>(c + 1);
  return record;
}

TEST(Cifar, ReadsBatchesInOrderAsInterleavedPixels) {
  const TemporaryFolder folder;
  put(folder / "data_batch_2.bin", cifar_record(9, 20));
  Bytes first = cifar_record(3, 10);
  const Bytes second = cifar_record(4, 11);
  first.insert(first.end(), second.begin(), second.end());
  put(folder / "data_batch_1.bin", first);
  put(folder / "test_batch.bin", cifar_record(1, 30));
  const auto train = open(folder.path(), Split::train);
  EXPECT_EQ(train->kind(), "CIFAR-10 binary");
  EXPECT_EQ(train->size(), 3U);
  EXPECT_EQ(train->image_shape(), (Shape{32, 32, 3}));
  EXPECT_EQ(train->label(1), 4);
  EXPECT_EQ(train->label(2), 9);
  EXPECT_THAT(train->name(2), HasSubstr("train[2]"));
  const Bytes pixels = pixels_of(*train, 2);
  EXPECT_EQ(pixels[0], 20);
  EXPECT_THAT(Bytes(pixels.begin() + 99, pixels.begin() + 102), ElementsAre(1, 2, 3));
  EXPECT_EQ(open(folder.path(), Split::test)->size(), 1U);
  std::string names;
  for (int i = 0; i < 10; ++i) names += "class" + std::to_string(i) + "\r\n";
  put(folder / "batches.meta.txt", names + "\n");
  EXPECT_EQ(open(folder.path(), Split::test)->classes()[9], "class9");
}

TEST(Cifar, RefusesBrokenBatches) {
  const TemporaryFolder folder;
  const auto refusal = [&](Split split) { return message_of([&] { open(folder.path(), split); }); };
  Bytes cut = cifar_record(3, 10);
  cut.pop_back();
  put(folder / "data_batch_1.bin", cut);
  EXPECT_THAT(refusal(Split::train), HasSubstr("has 3072 bytes, not a multiple"));
  EXPECT_THAT(refusal(Split::test), HasSubstr("has no test_batch.bin"));
  put(folder / "data_batch_1.bin", cifar_record(10, 0));
  EXPECT_THAT(refusal(Split::train), HasSubstr("data_batch_1.bin: byte 0: label 10"));
  put(folder / "data_batch_1.bin", Bytes{});
  EXPECT_THAT(refusal(Split::train), HasSubstr("has 0 bytes"));
  put(folder / "batches.meta.txt", std::string("cat\n"));
  EXPECT_THAT(refusal(Split::train), HasSubstr("names 1 classes"));
}

}  // namespace
}  // namespace warpstep::data
