#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>

#include "data/formats/content.h"
#include "tests/data_testing.h"
#include "tests/npy_file.h"

namespace warpstep::data {
namespace {

namespace fs = std::filesystem;
using testing::put;
using testing::some_png;
using testing::TemporaryFolder;
using testing::write_npy;

// Files of one length: an image and its two halves swapped do not differ in size.
void put_set(const std::string& folder, int files) {
  std::string labels;
  for (int i = 0; i < files; ++i) {
    put(fmt::format("{}/train/{:03}.png", folder, i), some_png({2, 2, 3}));
    labels += fmt::format("{:03}.png,0\n", i);
  }
  put(folder + "/train/labels.csv", labels);
}

void exchange(const std::string& path) {
  const auto size = fs::file_size(path);
  std::vector<std::uint8_t> other = some_png({2, 2, 3});
  ASSERT_EQ(other.size(), size);
  other.back() ^= 1;
  put(path, other);
}

void make_old(const std::string& folder) {
  const auto long_ago = fs::file_time_type::clock::now() - std::chrono::hours(100);
  for (const auto& entry : fs::directory_iterator(folder + "/train"))
    fs::last_write_time(entry.path(), long_ago);
}

TEST(Content, OfFewFilesIsOfAllBytes) {
  const TemporaryFolder folder;
  put_set(folder.path(), 40);
  const auto set = open(folder.path(), Split::train);
  const Content before = content_of(*set);
  EXPECT_EQ(before.times, 0U) << "times say nothing more";
  make_old(folder.path());
  EXPECT_EQ(content_of(*open(folder.path(), Split::train)).sample, before.sample);
  exchange(folder / "train/033.png");
  const auto changed = open(folder.path(), Split::train);
  EXPECT_EQ(changed->fingerprint(), set->fingerprint());
  EXPECT_NE(content_of(*changed).sample, before.sample);
}

TEST(Content, OfManyFilesIsOfASampleAndOfTimes) {
  const TemporaryFolder folder;
  put_set(folder.path(), 600);
  make_old(folder.path());
  const Content before = content_of(*open(folder.path(), Split::train));
  EXPECT_NE(before.times, 0U);
  exchange(folder / "train/001.png");
  const auto changed = open(folder.path(), Split::train);
  const Content after = content_of(*changed);
  EXPECT_NE(after.times, before.times);
  EXPECT_EQ(written_after(*changed, before.newest_ns),
            std::vector<std::string>{folder / "train/001.png"});
  exchange(folder / "train/000.png");  // the first is always of the sample
  EXPECT_NE(content_of(*open(folder.path(), Split::train)).sample, before.sample);
}

TEST(Content, IsTheSameHoweverTheSetIsOpened) {
  const TemporaryFolder folder;
  std::vector<std::uint8_t> pixels(300 * 4 * 4 * 3), labels(300);
  for (std::size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<std::uint8_t>(i * i >> 3);
  write_npy(folder / "train-images.npy", StoredType::u8, std::vector<std::uint64_t>{300, 4, 4, 3},
            pixels);
  write_npy(folder / "train-labels.npy", StoredType::u8, std::vector<std::uint64_t>{300}, labels);
  const Content mapped = content_of(*open(folder.path(), Split::train, {.io = Io::mmap}));
  const Content read = content_of(*open(folder.path(), Split::train, {.io = Io::pread}));
  EXPECT_EQ(mapped.sample, read.sample);
  EXPECT_EQ(mapped.times, read.times);
}

TEST(Content, OfPixelsInMemoryIsOfAll) {
  MemoryParts parts{"test",
                    "memory",
                    Shape{1, 1, 3},
                    std::vector<std::uint8_t>(3000, 7),
                    std::vector<std::int32_t>(1000, 0),
                    {"a"}};
  const Content before = content_of(MemoryDataset(parts));
  EXPECT_EQ(before.times, 0U);
  for (const std::size_t at : {0U, 1501U, 2999U}) {
    MemoryParts other = parts;
    other.pixels[at] = 8;
    EXPECT_NE(content_of(MemoryDataset(other)).sample, before.sample) << at;
  }
}

}  // namespace
}  // namespace warpstep::data
