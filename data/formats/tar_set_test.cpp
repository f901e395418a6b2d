#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "data/decode/jpeg.h"
#include "data/formats/formats.h"
#include "data/formats/tar.h"
#include "engine/core/checksum.h"
#include "engine/core/file.h"
#include "tests/data_testing.h"

namespace warpstep::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::message_of;
using testing::put;
using testing::some_pixels;
using testing::some_png;
using testing::TemporaryFolder;
using Bytes = std::vector<std::uint8_t>;
using Members = std::vector<std::pair<std::string, std::string>>;

std::string text(const Bytes& bytes) {
  return {bytes.begin(), bytes.end()};
}
std::string png(std::uint32_t salt) {
  return text(some_png({4, 5, 3}, salt));
}

class TarSetTest : public ::testing::Test {
 protected:
  void put_shard(const std::string& name, const Members& members) {
    std::string archive;
    for (const auto& [member, content] : members) {
      const auto header = tar_header(member, content.size());
      archive.append(header.begin(), header.end());
      archive += content + std::string((512 - content.size() % 512) % 512, '\0');
    }
    put(folder_ / name, archive + std::string(1024, '\0'));
    std::filesystem::remove(folder_ / name.substr(0, name.size() - 3) + "idx");
  }
  std::string refusal(const Members& members) {
    put_shard("train.tar", members);
    return message_of([&] { open(folder_.path(), Split::train); });
  }
  static Bytes pixels_of(const Dataset& set, std::uint64_t index) {
    Scratch scratch;
    Bytes pixels(static_cast<std::size_t>(set.image_shape().count()));
    set.read(index, scratch, pixels);
    return pixels;
  }
  TemporaryFolder folder_;
};

TEST_F(TarSetTest, ReadsShardsInOrderInPlace) {
  put_shard("train-000001.tar", {{"2.png", png(2)}, {"2.cls", "2"}});
  put_shard("train-000000.tar", {{".hidden", "x"},
                                 {"./0.cls", " 1\n"},
                                 {"./0.json", "{}"},
                                 {"./0.PNG", png(0)},
                                 {"n/1.png", png(1)},
                                 {"n/1.seg.png", "a mask"},
                                 {"n/1.cls", "0"}});
  for (const Io io : {Io::mmap, Io::pread}) {
    const auto set = open(folder_.path(), Split::train, {io});
    EXPECT_EQ(set->kind(), "tar shards");
    EXPECT_EQ(set->size(), 3U);
    EXPECT_THAT(set->classes(), ElementsAre("0", "1", "2"));
    EXPECT_EQ(set->label(0), 1);
    EXPECT_EQ(set->label(2), 2);
    for (std::uint32_t i = 0; i < 3; ++i) {
      set->will_need(i);
      EXPECT_EQ(pixels_of(*set, i), some_pixels({4, 5, 3}, i));
    }
    EXPECT_EQ(set->name(1), folder_ / "train-000000.tar:n/1.png (sample 1, byte 4608)");
    set->check_unchanged();
    EXPECT_EQ(set->max_fetched_bytes() == 0, io == Io::mmap);
  }
  EXPECT_EQ(read_file(folder_ / "train-000001.idx"),
            fmt::format("v1.2 1\npng 512 {} 2.png cls 1536 1 2.cls\n", png(2).size()));
}

TEST_F(TarSetTest, ReadsAFolderOfShardsAndClassNames) {
  put_shard("train/b.tar", {{"0.png", png(0)}, {"0.cls", "0"}});
  put_shard("test/a.tar", {{"0.png", png(0)}, {"0.cls", "1"}});
  EXPECT_THAT(message_of([&] { open(folder_.path(), Split::test); }),
              HasSubstr("sample 0 has label 1, but the data set has 1 classes"));
  put(folder_ / "classes.txt", std::string("cat\ndog\n"));
  EXPECT_THAT(open(folder_.path(), Split::test)->classes(), ElementsAre("cat", "dog"));
  put(folder_ / "test/notes.md", std::string("x"));
  EXPECT_THAT(message_of([&] { open(folder_.path(), Split::test); }),
              HasSubstr("test/notes.md: is neither a shard (.tar) nor an index"));
  put_shard("train-0.tar", {{"0.png", png(0)}, {"0.cls", "0"}});
  EXPECT_THAT(message_of([&] { open(folder_.path(), Split::train); }),
              HasSubstr("both next to train/ and in it"));
}

TEST_F(TarSetTest, JpegShardsHaveThreeChannels) {
  const Bytes gray = encode_jpeg({4, 5, 1}, some_pixels({4, 5, 1}, 0));
  put_shard("train.tar", {{"0.jpg", text(gray)}, {"0.cls", "0"}});
  const auto set = open(folder_.path(), Split::train);
  EXPECT_EQ(set->image_shape(), (Shape{4, 5, 3}));
  pixels_of(*set, 0);
}

TEST_F(TarSetTest, HoldsShardsAgainstTheirIndices) {
  put_shard("train.tar", {{"0.png", png(0)}, {"0.cls", "0"}});
  put(folder_ / "train.idx", std::string("v1.2 1\npng 512 9 0.png cls 1536 1 0.cls\n"));
  EXPECT_THAT(message_of([&] { open(folder_.path(), Split::train); }),
              HasSubstr("/train.idx: line 2: has 'png 512 9"));
  std::filesystem::remove(folder_ / "train.idx");
  std::filesystem::create_directory(folder_ / "train.idx");
  EXPECT_NE(message_of([&] { open(folder_.path(), Split::train); }), "");
}

TEST_F(TarSetTest, KeepsChecksumsOfAllOrNone) {
  const std::string image = png(0);
  put_shard("train.tar", {{"0.png", image}, {"0.cls", "0"}, {"0.crc32c", "0012abCD"}});
  const auto set = open(folder_.path(), Split::train);
  EXPECT_EQ(dynamic_cast<const Checksums*>(set.get())->stored_crc32c(0), 0x0012abcdU);
  EXPECT_THAT(
      refusal(
          {{"0.png", image}, {"0.cls", "0"}, {"0.crc32c", "0"}, {"1.png", image}, {"1.cls", "0"}}),
      HasSubstr("sample '1' has no .crc32c, but samples before it have one"));
  put_shard("train-0.tar", {{"0.png", image}, {"0.cls", "0"}});
  put_shard("train-1.tar", {{"0.png", image}, {"0.cls", "0"}, {"0.crc32c", "0"}});
  std::filesystem::remove(folder_ / "train.tar");
  EXPECT_THAT(message_of([&] { open(folder_.path(), Split::train); }),
              HasSubstr("has .crc32c members, the other does not"));
}

TEST_F(TarSetTest, RefusesSamplesByName) {
  const std::string image = png(0);
  EXPECT_THAT(refusal({}), HasSubstr("train.tar: has no samples"));
  EXPECT_THAT(refusal({{"a.png", image}}), HasSubstr("sample 'a' has no .cls member"));
  EXPECT_THAT(refusal({{"a.cls", "0"}, {"b.png", image}}), HasSubstr("sample 'a' has none of"));
  EXPECT_THAT(refusal({{"a.png", image}, {"b.cls", "0"}, {"a.cls", "0"}}),
              HasSubstr("sample 'a' has no .cls"));
  EXPECT_THAT(refusal({{"a.png", image}, {"a.jpg", image}, {"a.cls", "0"}}),
              HasSubstr("sample 'a' has two images"));
  EXPECT_THAT(refusal({{"a.cls", "0"}, {"a.cls", "0"}}), HasSubstr("two .cls members"));
  for (const std::string label : {"", "x", "-1", "65536", "1 2", "1x", "99999999999999999999"})
    EXPECT_THAT(refusal({{"a.png", image}, {"a.cls", label}}),
                HasSubstr("it must be one number from 0 to 65535"))
        << label;
  EXPECT_THAT(refusal({{"a.png", image}, {"a.cls", std::string(100, ' ') + "1"}}),
              HasSubstr("must be one number"));
  EXPECT_THAT(refusal({{"a.png", image}, {"a.cls", "0"}, {"a.crc32c", "123456789"}}),
              HasSubstr("has a .crc32c of '123456789'"));
  EXPECT_THAT(refusal({{"a.jpg", "x"}, {"a.cls", "0"}}), HasSubstr("train.tar[0] (byte 512)"));
}

TEST_F(TarSetTest, TakesTheChannelsOfTheTestPartFromTraining) {
  put_shard("train-0.tar", {{"0.png", png(0)}, {"0.cls", "0"}});
  put_shard("test-0.tar", {{"0.png", text(some_png({4, 5, 1}))}, {"0.cls", "0"}});
  EXPECT_EQ(open(folder_.path(), Split::test)->image_shape(), (Shape{4, 5, 3}));
  std::filesystem::remove(folder_ / "train-0.tar");
  EXPECT_EQ(open(folder_.path(), Split::test)->image_shape(), (Shape{4, 5, 1}));
}

}  // namespace
}  // namespace warpstep::data
