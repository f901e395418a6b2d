#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "data/formats/tar.h"
#include "data/write/writers.h"
#include "tests/data_testing.h"

namespace warpstep::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::message_of;
using testing::put;
using testing::TemporaryFolder;
using Bytes = std::vector<std::uint8_t>;

const std::string end_of_archive(1024, '\0');

// Header and padded data; `edit` may spoil the header, whose checksum is made right after it.
std::string member(const std::string& name, const std::string& content, char type = '0',
                   const std::function<void(std::string&)>& edit = {}) {
  const auto block = tar_header(name, content.size());
  std::string header(block.begin(), block.end());
  header[156] = type;
  if (edit) edit(header);
  header.replace(148, 8, 8, ' ');
  unsigned sum = 0;
  for (const char c : header) sum += static_cast<unsigned char>(c);
  header.replace(148, 7, fmt::format("{:06o}", sum) + '\0');
  return header + content + std::string((512 - content.size() % 512) % 512, '\0');
}

std::string pax(const std::string& record) {
  std::size_t length = record.size() + 3;  // its own digits, a space and the line's end
  if (length >= 10) ++length;
  return member("pax", fmt::format("{} {}\n", length, record), 'x');
}

class Tar : public ::testing::Test {
 protected:
  std::vector<std::string> names(const std::string& archive) {
    put(path_, archive);
    TarReader reader(path_);
    std::vector<std::string> found;
    for (TarMember one; reader.next(one);) {
      EXPECT_EQ(one.offset % 512, 0U);
      EXPECT_LE(one.offset + one.bytes, reader.bytes());
      found.push_back(one.name);
    }
    return found;
  }
  std::string refusal(const std::string& archive) {
    return message_of([&] { names(archive); });
  }
  TemporaryFolder folder_;
  std::string path_ = folder_ / "a.tar";
};

TEST_F(Tar, ReadsUstarPaxAndLongNames) {
  const std::string long_name(150, 'n');
  EXPECT_THAT(names(member("a.png", "123") + member("folder/", "", '5') +
                    member("b.png", "", '\0', [](std::string& h) { h.replace(345, 3, "pre"); }) +
                    pax("path=c.png") + member("short", std::string(600, 'x')) +
                    member("././@LongLink", long_name + '\0', 'L') + member("cut", "1") +
                    member("pax", "13 comment=1\n", 'g') + member("d.cls", "7") + end_of_archive),
              ElementsAre("a.png", "pre/b.png", "c.png", long_name, "d.cls"));
}

TEST_F(Tar, ReadsSizesOfPaxAndBase256) {
  put(path_, pax("size=600") + member("a", std::string(600, 'x'), '0', [](std::string& h) {
               h.replace(124, 11, 11, '0');
             }) + member("b", "12345", '0', [](std::string& h) {
               h.replace(124, 12, std::string("\x80") + std::string(10, '\0') + '\5');
             }) + end_of_archive);
  TarReader reader(path_);
  TarMember one;
  ASSERT_TRUE(reader.next(one));
  EXPECT_EQ(one.bytes, 600U);
  ASSERT_TRUE(reader.next(one));
  EXPECT_EQ(one.bytes, 5U);
  Bytes content(5);
  reader.read(one.offset, content);
  EXPECT_THAT(content, ElementsAre('1', '2', '3', '4', '5'));
  EXPECT_FALSE(reader.next(one));
}

// `tar --label` begins with a header whose numbers have no digits.
TEST_F(Tar, SkipsAVolumeLabel) {
  const auto with_size = [](const std::string& size) {
    return member("photos", "", 'V', [&](std::string& h) { h.replace(124, 12, size); });
  };
  for (const std::string& size :
       {std::string(12, '\0'), std::string(12, ' '), std::string(12, '0')})
    EXPECT_THAT(names(with_size(size) + member("a.png", "123") + end_of_archive),
                ElementsAre("a.png"));
  EXPECT_THAT(refusal(with_size("77777777777" + std::string(1, '\0')) + end_of_archive),
              HasSubstr("byte 0: an extended header of 8589934591 bytes"));
}

TEST_F(Tar, RefusesMembersByName) {
  const auto with = [&](const std::string& one) { return refusal(one + end_of_archive); };
  EXPECT_THAT(with(member("/etc/x", "")), HasSubstr("member '/etc/x' has an absolute name"));
  EXPECT_THAT(with(member("a/../b", "")), HasSubstr("member 'a/../b' has '..' in its name"));
  EXPECT_THAT(with(member("..", "")), HasSubstr("has '..'"));
  EXPECT_EQ(with(member("a..b/...", "")), "");
  EXPECT_THAT(with(pax("path=/x") + member("a", "")), HasSubstr("member '/x' has an absolute"));
  EXPECT_THAT(with(member("a", "", '1')), HasSubstr("member 'a' is a hard link"));
  EXPECT_THAT(with(member("a", "", '2')), HasSubstr("is a symbolic link"));
  EXPECT_THAT(with(member("a", "", '3')), HasSubstr("is a device"));
  EXPECT_THAT(with(member("a", "", '4')), HasSubstr("is a device"));
  EXPECT_THAT(with(member("a", "", '6')), HasSubstr("is a pipe"));
  EXPECT_THAT(with(member("a", "", 'S')), HasSubstr("is a sparse file"));
  EXPECT_THAT(with(member("a", "", 'Z')), HasSubstr("is of an unknown type"));
  EXPECT_THAT(with(pax("GNU.sparse.major=1") + member("a", "")), HasSubstr("is a sparse file"));
}

TEST_F(Tar, RefusesDamage) {
  const std::string good = member("a.png", "123");
  EXPECT_THAT(refusal("PK\3\4" + std::string(600, 'x')), HasSubstr("is not a tar archive"));
  EXPECT_THAT(refusal(""), HasSubstr("its end is missing"));
  EXPECT_THAT(refusal(good), HasSubstr("byte 1024: the archive is truncated: its end is missing"));
  EXPECT_THAT(refusal(good.substr(0, 513)), HasSubstr("has 3 bytes, but only 1 follow"));
  std::string flipped = good + good + end_of_archive;
  flipped[1024] ^= 1;
  EXPECT_THAT(refusal(flipped), HasSubstr("byte 1024: a header's checksum is wrong"));
  EXPECT_THAT(refusal(good + end_of_archive + good), HasSubstr("bytes after the archive's end"));
  const auto with_size = [&](const std::string& size) {
    return refusal(member("a", "", '0', [&](std::string& h) { h.replace(124, 12, size); }) +
                   end_of_archive);
  };
  EXPECT_THAT(with_size("77777777777" + std::string(1, '\0')), HasSubstr("8589934591 bytes, but"));
  EXPECT_THAT(with_size("00000000009" + std::string(1, '\0')), HasSubstr("an invalid size"));
  EXPECT_THAT(with_size("\x80" + std::string(11, '\xff')), HasSubstr("an invalid size"));
  EXPECT_THAT(refusal(member("x", "99 path=a\n", 'x') + end_of_archive),
              HasSubstr("a pax record is damaged"));
  EXPECT_THAT(refusal(member("x", "3 \n", 'x') + end_of_archive), HasSubstr("pax record"));
  EXPECT_THAT(refusal(pax("size=-1") + good + end_of_archive), HasSubstr("an invalid size"));
  EXPECT_THAT(refusal(member("x", std::string(70000, 'x'), 'L') + end_of_archive),
              HasSubstr("an extended header of 70000 bytes"));
  EXPECT_THROW(tar_header(std::string(101, 'x'), 0), UsageError);
  EXPECT_THROW(tar_header("x", std::uint64_t{1} << 33), UsageError);
}

TEST_F(Tar, SplitsNamesAtTheFirstDotOfTheLastPart) {
  EXPECT_EQ(split_tar_name("a.b/c.seg.png").key, "a.b/c");
  EXPECT_EQ(split_tar_name("a.b/c.seg.png").extension, "seg.png");
  EXPECT_EQ(split_tar_name("./c.png").key, "./c");
  EXPECT_EQ(split_tar_name("a.b/c").key, "a.b/c");
  EXPECT_EQ(split_tar_name(".hidden").key, "");
}

TEST_F(Tar, WritesShardsThatFitAndTheirIndices) {
  const Bytes image(700, 1);
  const Bytes label{'3'};
  TarWriter writer(folder_ / "train", 4096);
  for (int i = 0; i < 3; ++i) {
    const std::string key = std::to_string(i);
    const std::array members{TarWriter::Member{key + ".png", image},
                             TarWriter::Member{key + ".cls", label}};
    writer.add(members);
  }
  EXPECT_FALSE(exists(folder_ / "train-000002.tar"));  // not under its name before it is whole
  writer.finish();
  EXPECT_EQ(writer.shards(), 3U);  // two samples take 2 * 2560 + 1024 bytes
  EXPECT_EQ(std::filesystem::file_size(folder_ / "train-000002.tar"), 512U + 1024 + 1024 + 1024);
  EXPECT_EQ(read_file(folder_ / "train-000002.idx"),
            "v1.2 1\npng 512 700 2.png cls 2048 1 2.cls\n");
  TarReader reader(folder_ / "train-000000.tar");
  TarMember one;
  ASSERT_TRUE(reader.next(one));
  EXPECT_EQ(one.name, "0.png");
}

TEST(TarIndex, SaysWhatIsInTheShard) {
  TarIndexText index;
  index.add({"x/a.png", 512, 10});
  index.add({"x/a.cls", 1536, 1});
  index.add({"b.png", 2560, 7});
  const std::string text = index.text();
  EXPECT_EQ(text, "v1.2 2\npng 512 10 x/a.png cls 1536 1 x/a.cls\npng 2560 7 b.png\n");
  const auto refusal = [&](const std::string& found) {
    return message_of([&] { check_tar_index(found, "a.idx", text); });
  };
  EXPECT_EQ(refusal(text), "");
  EXPECT_EQ(refusal("v1.1 2\npng 512 10 cls 1536 1\npng 2560 7\n"), "");
  EXPECT_THAT(refusal(""), HasSubstr("a.idx: line 1: '' is not 'v1.2 SAMPLES'"));
  EXPECT_THAT(refusal("v2.0 2\n"), HasSubstr("is not 'v1.2"));
  EXPECT_THAT(refusal("v1.2 3\n"), HasSubstr("line 1: has 3 samples, but the shard has 2"));
  EXPECT_THAT(refusal("v1.2 2\npng 512 11 x/a.png cls 1536 1 x/a.cls\npng 2560 7 b.png\n"),
              HasSubstr("a.idx: line 2: has 'png 512 11"));
  EXPECT_THAT(refusal("v1.2 2\npng 512 10 x/a.png cls 1536 1 x/a.cls\n"),
              HasSubstr("line 3: has ''"));
  EXPECT_THAT(refusal(text + "png 9 9 c.png\n"), HasSubstr("line 4"));
  EXPECT_THAT(refusal(text + "\n"), HasSubstr("line 4"));
  index.add({"with space.png", 4096, 1});
  EXPECT_EQ(index.text(), "");
}

}  // namespace
}  // namespace warpstep::data
