// What batches of tokens hold: windows, labels, order; the same for any world, and after a seek.
#include "data/load/token_batches.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <numeric>
#include <set>
#include <thread>

#include "data/load/loader.h"
#include "tests/data_testing.h"
#include "tests/largest_allocation.h"

namespace warpstep::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::labels_of;
using testing::TemporaryFolder;
using ::testing::ThrowsMessage;

// A headless file of the tokens 0, 1, 2, ...; as it is read, token i is i.
class Counting {
 public:
  explicit Counting(std::size_t tokens) {
    std::vector<std::uint16_t> values(tokens);
    std::iota(values.begin(), values.end(), std::uint16_t{0});
    std::ofstream(folder_ / "train.bin", std::ios::binary)
        .write(reinterpret_cast<const char*>(values.data()),
               static_cast<std::streamsize>(2 * tokens));
  }
  TokenSet open(std::int64_t vocabulary = 65536) const {
    return open_tokens(folder_ / "train.bin", {.val_split = 0, .vocabulary = vocabulary}).train;
  }

 private:
  TemporaryFolder folder_;
};

LoaderOptions token_options(std::int64_t batch) {
  LoaderOptions options;
  options.batch = batch;
  options.seed = 3;
  return options;
}

std::unique_ptr<Loader> loader_of(const TokenSet& tokens, const WindowOptions& windows,
                                  const LoaderOptions& options) {
  return std::make_unique<Loader>(std::make_unique<TokenBatches>(tokens, windows, options),
                                  options);
}

std::vector<std::int32_t> copy_of(const Batch& batch, std::string_view name) {
  const auto values = batch.get<std::int32_t>(name);
  return {values.begin(), values.end()};
}

TEST(TokenBatches, LabelsAreTheTokensThatFollow) {
  const Counting set(497);  // a whole number of windows and a label
  for (const Windows windows : {Windows::shuffled, Windows::random, Windows::sequential}) {
    const auto loader = loader_of(set.open(), {8, windows}, token_options(3));
    for (int i = 0; i < 40; ++i) {
      const Batch& batch = loader->next();
      const auto tokens = batch.get<std::int32_t>("tokens");
      ASSERT_EQ(tokens.size(), 24U);
      EXPECT_EQ(batch.count, 24);
      for (std::size_t n = 0; n < tokens.size(); ++n) {
        EXPECT_EQ(labels_of(batch)[n], tokens[n] + 1);
        EXPECT_EQ(tokens[n], tokens[n / 8 * 8] + static_cast<std::int32_t>(n % 8));
      }
    }
  }
}

// A window is requested so many rows before its turn, where memory does not hold all of them.
TEST(TokenBatches, OfALargeSetAreRequestedAhead) {
  const TemporaryFolder folder;
  std::ofstream(folder / "ids", std::ios::binary).write(std::string(40'000, 1).data(), 40'000);
  for (const std::uint64_t windows : {hint_distance + 1, hint_distance})
    for (const std::uint64_t budget : {40'000, 1'000}) {
      const auto file = std::make_shared<MappedFile>(folder / "ids");
      const TokenSet tokens({{file, 0, windows * 16 + 1}}, TokenFormat::headless, StoredType::u16,
                            65536, budget);
      const auto loader = loader_of(tokens, {16, Windows::sequential}, token_options(1));
      loader->next();
      std::vector<std::uint8_t> unused;
      EXPECT_THAT(testing::reads_pages_alone(file->view(0, 1, unused).data()),
                  ::testing::AnyOf(std::nullopt, budget == 1'000 && windows > hint_distance));
    }
}

TEST(TokenBatches, OrderSortsPlacesByToken) {
  TemporaryFolder folder;
  const std::vector<std::uint16_t> text{5, 2, 5, 0, 2, 2, 7, 5, 1};
  std::ofstream(folder / "train.bin", std::ios::binary)
      .write(reinterpret_cast<const char*>(text.data()), 18);
  const TokenSet set = open_tokens(folder / "train.bin", {.val_split = 0, .vocabulary = 8}).train;
  const auto loader = loader_of(set, {4, Windows::sequential}, token_options(2));
  EXPECT_THAT(copy_of(loader->next(), "order"), ElementsAre(3, 1, 4, 5, 0, 2, 7, 6));
}

// As of a file with a wrong id whose vocabulary nothing declares.
TEST(TokenBatches, OfHugeIdsAreSortedInLittleMemory) {
  const TemporaryFolder folder;
  std::vector<std::uint32_t> ids(65);
  for (std::uint32_t i = 0; i < 65; ++i) ids[i] = i * 31 % 13;
  ids[20] = ids[40] = 0x7fffffff;
  std::ofstream(folder / "ids", std::ios::binary)
      .write(reinterpret_cast<const char*>(ids.data()), 65 * 4);
  const TokenSet tokens({{std::make_shared<MappedFile>(folder / "ids"), 0, ids.size()}},
                        TokenFormat::npy, StoredType::u32);
  testing_support::forget_allocations();
  const auto loader = loader_of(tokens, {16, Windows::sequential}, token_options(4));
  EXPECT_LT(loader->memory().workers, 16U << 20);
  const Batch& batch = loader->next();
  EXPECT_LT(testing_support::largest_allocation_bytes(), 1U << 20);
  const auto values = copy_of(batch, "tokens");
  std::vector<std::int32_t> expected(64);
  std::iota(expected.begin(), expected.end(), 0);
  std::ranges::stable_sort(expected, {}, [&](std::int32_t place) { return values[idx(place)]; });
  EXPECT_EQ(copy_of(batch, "order"), expected);
}

TEST(TokenBatches, ShuffledWindowsOfAnEpochDoNotOverlap) {
  const Counting set(1000);
  const WindowStarts starts(set.open(), {7, Windows::shuffled}, 5);
  EXPECT_EQ(starts.count(), 141U);
  std::set<std::uint64_t> offsets;
  for (std::uint64_t epoch = 0; epoch < 40; ++epoch) {
    std::set<std::uint64_t> begins;
    for (std::uint64_t place = 0; place < starts.count(); ++place)
      begins.insert(starts.at(epoch, place));
    EXPECT_EQ(begins.size(), starts.count());
    EXPECT_LE(*begins.rbegin() + 8, 1000U);
    for (const std::uint64_t begin : begins) EXPECT_EQ(begin % 7, *begins.begin() % 7);
    offsets.insert(*begins.begin());
  }
  EXPECT_GT(offsets.size(), 7U);
}

// Also those at the end, which no window of an offset below its length has.
TEST(TokenBatches, ShuffledWindowsReachEveryToken) {
  const Counting set(20);
  const WindowStarts starts(set.open(), {7, Windows::shuffled}, 5);
  ASSERT_EQ(starts.count(), 1U);
  std::set<std::uint64_t> begins;
  for (std::uint64_t epoch = 0; epoch < 200; ++epoch) begins.insert(starts.at(epoch, 0));
  EXPECT_EQ(begins.size(), 13U);
  EXPECT_EQ(*begins.rbegin() + 7, 19U);  // the last token is a label
}

TEST(TokenBatches, RandomWindowsBeginAnywhere) {
  const Counting set(1000);
  const WindowStarts starts(set.open(), {900, Windows::random}, 5);
  EXPECT_EQ(starts.count(), 1U);
  std::set<std::uint64_t> begins;
  for (std::uint64_t epoch = 0; epoch < 2000; ++epoch) begins.insert(starts.at(epoch, 0));
  EXPECT_EQ(*begins.begin(), 0U);
  EXPECT_EQ(*begins.rbegin(), 99U);  // 99 + 900 is the last token, a label
  EXPECT_EQ(begins.size(), 100U);
}

TEST(TokenBatches, ValidationCoversEveryTokenOnce) {
  const Counting set(1000);
  LoaderOptions options = token_options(4);
  options.tail = Tail::pad;
  const auto loader = loader_of(set.open(), {32, Windows::sequential}, options);
  EXPECT_EQ(loader->samples(), 32U);
  std::vector<int> seen(1000);
  std::int64_t count = 0;
  for (std::uint64_t i = 0; i < loader->steps_per_epoch(); ++i) {
    const Batch& batch = loader->next();
    count += batch.count;
    for (const std::int32_t label : labels_of(batch))
      if (label >= 0) ++seen[idx(label)];
  }
  EXPECT_EQ(count, 999);
  EXPECT_EQ(std::count(seen.begin() + 1, seen.end(), 1), 999);
}

TEST(TokenBatches, NeedAClassWeightForEachToken) {
  const Counting set(96);
  auto with = token_options(3);
  with.class_weights.assign(96, 2);
  EXPECT_EQ(loader_of(set.open(), {8, Windows::sequential}, with)->next().loss_weight(), 48);
  with.class_weights.assign(4, 2);
  const auto loader = loader_of(set.open(), {8, Windows::sequential}, with);
  EXPECT_THAT([&] { loader->next(); },
              ThrowsMessage<UsageError>(HasSubstr("class weights: there are 4, but")));
}

// In a step of several ranks the rows beside a padded window would count more.
TEST(TokenBatches, OfTrainingHaveNoPaddedWindows) {
  const Counting set(96);  // 11 windows of 8, and 7 labels
  const auto loader = loader_of(set.open(), {8, Windows::sequential}, token_options(3));
  EXPECT_EQ(loader->samples(), 11U);
  EXPECT_EQ(loader->steps_per_epoch(), 3U);
  const auto full = loader_of(set.open(), {8, Windows::sequential}, token_options(11));
  EXPECT_EQ(full->next().count, 88);
  EXPECT_THAT(
      [&] {
        loader_of(set.open(), {8, Windows::sequential}, token_options(12));
      },
      ThrowsMessage<UsageError>(HasSubstr("11 windows of 8 tokens do not fill one batch of 12")));
}

TEST(TokenBatches, OfAllRanksAreThoseOfAWorldOfOne) {
  const Counting set(3000);
  for (const Windows windows : {Windows::shuffled, Windows::random}) {
    const auto whole = loader_of(set.open(), {16, windows}, token_options(4));
    LoaderOptions options = token_options(2);
    options.world = 2;
    const auto first = loader_of(set.open(), {16, windows}, options);
    options.rank = 1;
    const auto second = loader_of(set.open(), {16, windows}, options);
    for (int i = 0; i < 60; ++i) {
      std::vector<std::int32_t> joined = copy_of(first->next(), "tokens");
      const std::vector<std::int32_t> rest = copy_of(second->next(), "tokens");
      joined.insert(joined.end(), rest.begin(), rest.end());
      EXPECT_EQ(copy_of(whole->next(), "tokens"), joined);
    }
  }
}

TEST(TokenBatches, ContinueAfterASeek) {
  const Counting set(3000);
  const auto one = loader_of(set.open(), {16, Windows::shuffled}, token_options(4));
  for (int i = 0; i < 70; ++i) one->next();
  const Position position = one->position();
  const auto other = loader_of(set.open(), {16, Windows::shuffled}, token_options(4));
  other->seek(position);
  EXPECT_EQ(copy_of(one->next(), "tokens"), copy_of(other->next(), "tokens"));
}

// Slots that hold what memory may hold: as ids of tokens, numbers far beyond the vocabulary.
class UsedMemory final : public SlotMemory {
 public:
  std::byte* allocate(std::size_t bytes) override {
    void* memory = std::aligned_alloc(64, bytes);
    std::memset(memory, 0x7f, bytes);
    return static_cast<std::byte*>(memory);
  }
  void release(std::byte* memory, std::size_t) noexcept override { std::free(memory); }
};

TEST(TokenBatches, AreLeftUnfinishedByALoaderThatStops) {
  const Counting counting(20'000);
  const TokenSet tokens = counting.open();
  UsedMemory memory;
  LoaderOptions options = token_options(4096);
  options.memory = &memory;
  for (int i = 0; i < 100; ++i) {
    const auto loader = loader_of(tokens, {.sequence = 4}, options);
    std::this_thread::sleep_for(std::chrono::microseconds(10 * i));  // somewhere within a batch
  }
}

TEST(TokenBatches, RefuseWhatDoesNotFit) {
  const Counting set(20);
  EXPECT_THAT(
      [&] {
        loader_of(set.open(), {20, Windows::shuffled}, token_options(1));
      },
      ThrowsMessage<UsageError>(HasSubstr("has 20 tokens, but a window of 20 and the token "
                                          "after it need 21")));
  EXPECT_THAT(
      [&] {
        loader_of(set.open(), {4, Windows::random}, token_options(9));
      },
      ThrowsMessage<UsageError>(HasSubstr("do not fill one batch of 9")));
  EXPECT_THAT(
      [&] {
        loader_of(set.open(), {0, Windows::random}, token_options(1));
      },
      ThrowsMessage<UsageError>(HasSubstr("windows of 0 tokens")));
  const auto loader = loader_of(set.open(12), {16, Windows::shuffled}, token_options(1));
  EXPECT_THROW(loader->next(), DataError);  // token 12 is not below 12
}

}  // namespace
}  // namespace warpstep::data
