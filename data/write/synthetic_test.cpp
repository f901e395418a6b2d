// The synthetic set, channel statistics and the order of samples.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include "data/load/order.h"
#include "data/transforms/statistics.h"
#include "data/write/synthetic.h"
#include "tests/data_testing.h"

namespace warpstep::data {
namespace {

using ::testing::HasSubstr;
using testing::message_of;
using testing::put;
using testing::TemporaryFolder;

using Pixels = std::vector<std::uint8_t>;

Pixels drawn(std::uint64_t seed, Split split, std::uint64_t index) {
  Pixels pixels(3072);
  draw_synthetic(seed, split, index, pixels);
  return pixels;
}

std::uint64_t hash(std::span<const std::uint8_t> bytes) {
  Hash hash;
  hash.add(bytes);
  return hash.value();
}

// Pinned: a change of the pixels must be deliberate, and other compilers must agree.
TEST(Synthetic, DrawsTheSamePixelsOnEveryMachine) {
  Hash all;
  for (std::uint64_t i = 0; i < 200; ++i) {
    all.add(drawn(0, Split::train, i));
    all.add(drawn(7, Split::test, i));
  }
  EXPECT_EQ(all.value(), 0x2fd6dc10548bc8d5U);
}

TEST(Synthetic, DependsOnSeedSplitAndIndex) {
  const std::set<std::uint64_t> different{
      hash(drawn(0, Split::train, 0)), hash(drawn(1, Split::train, 0)),
      hash(drawn(0, Split::test, 0)), hash(drawn(0, Split::train, 1))};
  EXPECT_EQ(different.size(), 4U);
}

TEST(Synthetic, IsBalanced) {
  std::array<int, 10> counts{};
  std::set<std::int32_t> first_labels;
  for (std::uint64_t i = 0; i < 1000; ++i) {
    const std::int32_t label = synthetic_label(0, Split::train, i);
    ++counts.at(static_cast<std::size_t>(label));
    if (i % 10 == 0) first_labels.insert(label);
  }
  EXPECT_THAT(counts, ::testing::Each(100));
  EXPECT_EQ(first_labels.size(), 10U);
}

TEST(Synthetic, MakesFilesOfRealisticSize) {
  double bytes = 0;
  for (std::uint64_t i = 0; i < 200; ++i) {
    bytes += static_cast<double>(encode_png({32, 32, 3}, drawn(0, Split::train, i)).size());
  }
  EXPECT_GT(bytes / 200, 1800);
  EXPECT_LT(bytes / 200, 2500);
}

TEST(MakeSet, WritesASetThatOpensAndLeavesAWholeOneAlone) {
  const TemporaryFolder folder;
  const std::string path = folder / "set";
  const SyntheticOptions options{40, 20, 3, 2};
  std::uint64_t last = 0;
  const auto progress = [&](std::uint64_t done, std::uint64_t all) {
    EXPECT_EQ(done, ++last);
    EXPECT_EQ(all, 60U);
  };
  EXPECT_EQ(make_dataset(path, options, progress), Made::made);
  EXPECT_EQ(last, 60U);
  const auto train = open(path, Split::train);
  ASSERT_EQ(train->size(), 40U);
  EXPECT_EQ(open(path, Split::test)->size(), 20U);
  Scratch scratch;
  Pixels pixels(3072);
  for (std::uint64_t i = 0; i < 40; ++i) {
    train->read(i, scratch, pixels);
    EXPECT_EQ(pixels, drawn(3, Split::train, i));
    EXPECT_EQ(train->label(i), synthetic_label(3, Split::train, i));
  }
  EXPECT_EQ(make_dataset(path, options, nullptr), Made::already_there);
  SyntheticOptions other{30, 10, 3, 1};
  EXPECT_THAT(message_of<UsageError>([&] { make_dataset(path, other, nullptr); }),
              HasSubstr("/set: holds a generated set of other options"));
  EXPECT_EQ(open(path, Split::train)->size(), 40U);
  other.overwrite = true;
  EXPECT_EQ(make_dataset(path, other, nullptr), Made::replaced);
  EXPECT_EQ(open(path, Split::train)->size(), 30U);
}

TEST(MakeSet, ReplacesWhatAnInterruptedRunLeft) {
  const TemporaryFolder folder;
  const SyntheticOptions options{20, 10, 0, 2};
  SyntheticOptions other{20, 10, 1, 1};
  other.overwrite = true;
  EXPECT_EQ(make_dataset(folder.path(), options, nullptr), Made::made);
  const auto whole = open(folder.path(), Split::train)->fingerprint();
  // Killed at any point: the set under the final name is complete or absent.
  EXPECT_THROW(make_dataset(folder.path(), other,
                            [](std::uint64_t done, std::uint64_t) {
                              if (done == 25) fail<Error>("killed");
                            }),
               Error);
  EXPECT_EQ(open(folder.path(), Split::train)->size(), 20U);
  EXPECT_TRUE(std::filesystem::exists(folder / "test.part"));
  EXPECT_EQ(make_dataset(folder.path(), options, nullptr), Made::made);
  EXPECT_EQ(open(folder.path(), Split::train)->fingerprint(), whole);
  EXPECT_EQ(open(folder.path(), Split::test)->size(), 10U);
  EXPECT_FALSE(std::filesystem::exists(folder / "test.part"));
}

TEST(MakeSet, LeavesWhatItDidNotMakeAlone) {
  const TemporaryFolder folder;
  put(folder / "train/mine.png", std::string("x"));
  const auto refusal = [&](const SyntheticOptions& options, const std::string& path) {
    return message_of<Error>([&] { make_dataset(path, options, nullptr); });
  };
  EXPECT_THAT(refusal({1, 1, 0, 1}, folder.path()), HasSubstr("exists and is not an empty folder"));
  EXPECT_TRUE(std::filesystem::exists(folder / "train/mine.png"));
  SyntheticOptions other{2, 1, 0, 1};
  other.overwrite = true;
  for (const char* mine : {"train/mine.png", "test/notes/a.txt", "train.part/000000_disc.bmp"}) {
    const TemporaryFolder made;
    make_dataset(made.path(), {1, 1, 0, 1}, nullptr);
    put(made / mine, std::string("x"));
    EXPECT_THAT(refusal(other, made.path()), HasSubstr("does not belong to the generated set"))
        << mine;
    EXPECT_TRUE(std::filesystem::exists(made / mine));
    EXPECT_EQ(make_dataset(made.path(), {1, 1, 0, 1}, nullptr), Made::already_there);
  }
  EXPECT_THAT(refusal({0, 1, 0, 1}, folder / "new"), HasSubstr("0 train and 1 test"));
  put(folder / "file", std::string("x"));
  EXPECT_THAT(refusal({1, 1, 0, 1}, folder / "file/set"), HasSubstr("cannot be written"));
}

// The training split defines the classes: every label of the test split must be among them.
TEST(MakeSet, GivesASmallTrainingSplitAllClassesOfTheTestSplit) {
  for (const std::uint64_t train : {1U, 2U, 9U, 10U, 11U}) {
    const TemporaryFolder folder;
    const std::size_t classes = std::min<std::size_t>(train, 10);
    for (std::uint64_t seed = 0; seed < 3; ++seed) {
      SyntheticOptions options{train, 40, seed, 2};
      options.overwrite = true;
      make_dataset(folder.path(), options, nullptr);
      std::array<std::set<std::int32_t>, 2> labels;
      for (const Split split : {Split::train, Split::test}) {
        const auto set = open(folder.path(), split);
        EXPECT_EQ(set->classes().size(), classes);
        for (std::uint64_t i = 0; i < set->size(); ++i)
          labels.at(static_cast<std::size_t>(split)).insert(set->label(i));
      }
      EXPECT_EQ(labels[0].size(), classes);
      EXPECT_EQ(labels[1], labels[0]) << train << " training images, seed " << seed;
    }
  }
}

TEST(Statistics, AreThoseOfThePixels) {
  MemoryParts parts{"test", "memory", Shape{1, 2, 3}, {}, {0, 0}, {"a"}};
  parts.pixels = {0, 10, 255, 0, 20, 255, 255, 30, 255, 255, 40, 255};
  const MemoryDataset set(std::move(parts));
  const ChannelStatistics all = channel_statistics(set, {.most = 100, .workers = 3});
  EXPECT_EQ(all.samples, 2U);
  EXPECT_DOUBLE_EQ(all.mean[0], 0.5);
  EXPECT_DOUBLE_EQ(all.std[0], 0.5);
  EXPECT_DOUBLE_EQ(all.mean[1], 25.0 / 255);
  EXPECT_NEAR(all.std[1], std::sqrt(125.0) / 255, 1e-15);
  EXPECT_DOUBLE_EQ(all.mean[2], 1.0);
  EXPECT_DOUBLE_EQ(all.std[2], 0.0);
  EXPECT_DOUBLE_EQ(channel_statistics(set, {.most = 1, .workers = 1}).mean[0],
                   0.0);  // the first sample alone
}

// The samples of a folder are in the order of their classes.
TEST(Statistics, OfSomeSamplesAreOfThoseAllOverTheSet) {
  MemoryParts parts{"test", "memory", Shape{1, 1, 1}, {}, {0, 0, 0, 0, 0, 0}, {"a"}};
  parts.pixels = {0, 10, 20, 30, 40, 50};
  const ChannelStatistics some = channel_statistics(MemoryDataset(std::move(parts)), {.most = 3});
  EXPECT_EQ(some.samples, 3U);
  EXPECT_DOUBLE_EQ(some.mean[0], 20.0 / 255);
}

TEST(Statistics, DoNotDependOnTheThreads) {
  const auto set = testing::in_memory(50);
  const ChannelStatistics one = channel_statistics(*set, {.most = 30, .workers = 1});
  const ChannelStatistics four = channel_statistics(*set, {.most = 30, .workers = 4});
  EXPECT_EQ(one.samples, 30U);
  EXPECT_EQ(one.mean, four.mean);
  EXPECT_EQ(one.std, four.std);
  EXPECT_THROW(channel_statistics(*set, {.most = 0}), UsageError);
}

TEST(Order, IsAPermutationOfItsOwnEachEpoch) {
  for (const std::uint32_t samples : {1U, 2U, 3U, 5U, 1000U}) {
    for (std::uint64_t epoch = 0; epoch < 3; ++epoch) {
      Permutation order = shuffled(1, epoch, samples);
      std::sort(order.begin(), order.end());
      for (std::uint32_t i = 0; i < samples; ++i) ASSERT_EQ(order[i], i);
    }
  }
  EXPECT_EQ(shuffled(1, 0, 100), shuffled(1, 0, 100));
  EXPECT_NE(shuffled(1, 0, 100), shuffled(1, 1, 100));
  EXPECT_NE(shuffled(1, 0, 100), shuffled(2, 0, 100));
}

// Each of the 24 orders of four samples within 6 sigma of its share.
TEST(Order, IsUniform) {
  std::map<Permutation, int> counts;
  constexpr int epochs = 24000;
  for (int epoch = 0; epoch < epochs; ++epoch) {
    ++counts[shuffled(5, static_cast<std::uint64_t>(epoch), 4)];
  }
  ASSERT_EQ(counts.size(), 24U);
  for (const auto& [order, count] : counts) EXPECT_NEAR(count, 1000, 190);
}

TEST(MakeSet, RefusesAFolderInWhichAnotherMakesASet) {
  const TemporaryFolder folder;
  const std::string out = folder / "set";
  const SyntheticOptions options{20, 10, 0, 1}, other{20, 10, 1, 1};
  std::string refusal;
  EXPECT_EQ(make_dataset(out, options,
                         [&](std::uint64_t done, std::uint64_t) {
                           if (done == 7)
                             refusal = message_of([&] { make_dataset(out, other, nullptr); });
                         }),
            Made::made);
  EXPECT_THAT(refusal, HasSubstr("/set: another process generates a set there"));
  EXPECT_EQ(make_dataset(out, options, nullptr), Made::already_there);
}

TEST(MakeSet, DrawsLargeImagesWhoseWindowsShowTheirClass) {
  const Shape shape{70, 90, 3};
  std::vector<std::uint8_t> a(idx(shape.count())), b(a.size());
  draw_synthetic_large(1, Split::train, 3, 70, 90, a);
  draw_synthetic_large(1, Split::train, 3, 70, 90, b);
  EXPECT_EQ(a, b);
  draw_synthetic_large(1, Split::train, 4, 70, 90, b);
  EXPECT_NE(a, b);
  testing::TemporaryFolder folder;
  SyntheticOptions options{4, 2, 0, 1, 70, 90, true};
  EXPECT_EQ(make_dataset(folder / "set", options, {}), Made::made);
  EXPECT_EQ(make_dataset(folder / "set", options, {}), Made::already_there);
  EXPECT_EQ(list_folder(folder / "set/train").size(), 5U);  // four .jpg and labels.pkl
  options.jpeg = false;
  options.overwrite = true;
  EXPECT_EQ(make_dataset(folder / "set", options, {}), Made::replaced);
  EXPECT_EQ(open(folder / "set", Split::train)->image_shape(), shape);
}

}  // namespace
}  // namespace warpstep::data
