// A batch depends only on (seed, epoch, step): not on workers, tier, depth, world or resume.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "data/formats/cached.h"
#include "data/load/image_batches.h"
#include "data/load/loader.h"
#include "tests/data_testing.h"

namespace warpstep::data {
namespace {

using testing::images_of;
using testing::labels_of;
using testing::put_png_split;
using testing::rows_of;
using testing::TemporaryFolder;

constexpr const char* augmented =
    "random-crop=4x5:pad=2,flip,brightness=0.2,random-mask=0.25,normalize,mixup=1";

LoaderOptions options(std::int64_t batch, const std::string& recipe = augmented) {
  LoaderOptions result;
  result.batch = batch;
  result.workers = 2;
  result.seed = 11;
  result.recipe = Recipe(recipe);
  return result;
}

// What a row means, wherever its pixels are: those are gathered from the resident set if there is
// one.
void add_row(Hash& hash, const Batch& batch, std::size_t row, const Dataset& set, bool resident) {
  const RowPlan& plan = rows_of(batch)[row];
  const std::size_t image_bytes = idx(set.image_shape().count());
  std::vector<std::uint8_t> pixels(image_bytes);
  if (resident) {
    Geometry geometry = Geometry::whole(set.image_shape());
    geometry.out = {plan.y, plan.x, 4, 5};
    geometry.mirrored = plan.mirrored != 0;
    Developer developer;
    develop({set.all_pixels().subspan(plan.source * image_bytes, image_bytes), Encoding::pixels,
             set.image_shape()},
            "", set.image_shape(), geometry, 3, developer, pixels);
  } else {
    const auto image = images_of(batch).subspan(row * image_bytes, image_bytes);
    std::copy(image.begin(), image.end(), pixels.begin());
  }
  hash.add(pixels);
  hash.add(static_cast<std::uint64_t>(labels_of(batch)[row]));
  RowPlan rest = plan;
  rest.source = rest.pair = 0;
  rest.y = rest.x = 0;
  rest.mirrored = 0;
  hash.add({reinterpret_cast<const std::uint8_t*>(&rest), sizeof rest});
}

// One number for `batches` global batches; the loaders are the ranks.
std::uint64_t epoch_hash(const std::vector<std::unique_ptr<Loader>>& ranks, std::uint64_t batches,
                         const Dataset& set, bool resident = false) {
  Hash hash;
  for (std::uint64_t i = 0; i < batches; ++i)
    for (const auto& rank : ranks) {
      const Batch& batch = rank->next();
      for (std::size_t row = 0; row < labels_of(batch).size(); ++row)
        add_row(hash, batch, row, set, resident);
    }
  return hash.value();
}

std::vector<std::unique_ptr<Loader>> one(std::shared_ptr<const Dataset> set,
                                         const LoaderOptions& with) {
  std::vector<std::unique_ptr<Loader>> ranks;
  ranks.push_back(std::make_unique<Loader>(std::move(set), with));
  return ranks;
}

class SameBatches : public ::testing::Test {
 protected:
  SameBatches() {
    put_png_split(folder_ / "train", 40, 3);
    set_ = open(folder_.path(), Split::train);
    steps_ = 2 * (40 / 8);
    expected_ = epoch_hash(one(set_, options(8)), steps_, *set_);
  }

  TemporaryFolder folder_;
  std::shared_ptr<const Dataset> set_;
  std::uint64_t steps_ = 0, expected_ = 0;
};

TEST_F(SameBatches, ForAnyWorkersAndDepth) {
  for (const int workers : {1, 2, 4, 8})
    for (const int prefetch : {2, 3, 6}) {
      auto with = options(8);
      with.workers = workers;
      with.prefetch = prefetch;
      EXPECT_EQ(epoch_hash(one(set_, with), steps_, *set_), expected_);
    }
  auto tuned = options(8);
  tuned.workers = 0;
  EXPECT_EQ(epoch_hash(one(set_, tuned), steps_, *set_), expected_);
}

TEST_F(SameBatches, InEveryTier) {
  const auto cached = std::make_shared<CachedDataset>(set_);
  EXPECT_EQ(epoch_hash(one(cached, options(8)), steps_, *set_), expected_);
  cached->decode_all();
  EXPECT_EQ(epoch_hash(one(cached, options(8)), steps_, *set_), expected_);
  auto resident = options(8);
  resident.resident = cached->all_pixels();
  EXPECT_EQ(epoch_hash(one(cached, resident), steps_, *cached, true), expected_);
}

TEST_F(SameBatches, WeighWhatTheirLossIsOver) {
  auto with = options(8);
  Loader plain(set_, with);
  EXPECT_EQ(plain.next().loss_weight(), 8);
  with.class_weights = {1, 4, 0.5};
  Loader weighted(set_, with);
  const Batch& batch = weighted.next();
  double expected = 0;
  for (std::size_t row = 0; row < 8; ++row) {
    const RowPlan& plan = rows_of(batch)[row];
    const auto weight = [&](std::int32_t label) {
      return static_cast<double>(with.class_weights[idx(label)]);
    };
    const auto own = static_cast<double>(plan.weight);
    expected += own * weight(labels_of(batch)[row]) + (1 - own) * weight(plan.pair_label);
  }
  EXPECT_NEAR(batch.loss_weight(), expected, 1e-5);
  with.class_weights.pop_back();
  EXPECT_THAT(testing::message_of<UsageError>([&] { Loader loader(set_, with); }),
              ::testing::HasSubstr("class weights: there are 2, but"));
}

TEST_F(SameBatches, AsTheRanksOfAnyWorldSideBySide) {
  for (const std::uint32_t world : {2U, 4U}) {
    std::vector<std::unique_ptr<Loader>> ranks;
    for (std::uint32_t rank = 0; rank < world; ++rank) {
      auto with = options(8 / world);
      with.world = world;
      with.rank = rank;
      ranks.push_back(std::make_unique<Loader>(set_, with));
      EXPECT_EQ(ranks.back()->steps_per_epoch(), 5U);
    }
    EXPECT_EQ(epoch_hash(ranks, steps_, *set_), expected_) << "world " << world;
  }
}

TEST_F(SameBatches, AfterAResumeAtAnyStep) {
  for (std::uint64_t at = 0; at < steps_; ++at) {
    Hash whole;
    auto first = one(set_, options(8));
    for (std::uint64_t i = 0; i < at; ++i) {
      const Batch& batch = first[0]->next();
      for (std::size_t row = 0; row < 8; ++row) add_row(whole, batch, row, *set_, false);
    }
    auto resumed = options(8);
    resumed.start = {at / 5, at % 5};
    resumed.workers = 3;
    Loader second(set_, resumed);
    for (std::uint64_t i = at; i < steps_; ++i) {
      const Batch& batch = second.next();
      for (std::size_t row = 0; row < 8; ++row) add_row(whole, batch, row, *set_, false);
    }
    EXPECT_EQ(whole.value(), expected_) << "step " << at;
  }
}

TEST_F(SameBatches, PadsTheTailOfEveryRank) {
  std::int64_t samples = 0;
  for (std::uint32_t rank = 0; rank < 3; ++rank) {
    auto with = options(5, "");
    with.world = 3;
    with.rank = rank;
    with.tail = Tail::pad;
    Loader loader(set_, with);
    ASSERT_EQ(loader.steps_per_epoch(), 3U);  // 15, 15 and 10 of 40
    for (int step = 0; step < 3; ++step) {
      const Batch& batch = loader.next();
      samples += batch.count;
      EXPECT_EQ(batch.count, step == 2 && rank == 2 ? 0 : 5);
      for (std::int64_t row = batch.count; row < 5; ++row)
        EXPECT_EQ(labels_of(batch)[idx(row)], -1);
    }
  }
  EXPECT_EQ(samples, 40);
}

TEST_F(SameBatches, PairsNeighboursForMixing) {
  Loader loader(set_, options(8));
  const Batch& batch = loader.next();
  for (std::size_t row = 0; row < 8; ++row) {
    EXPECT_EQ(rows_of(batch)[row].pair, row ^ 1);
    EXPECT_EQ(rows_of(batch)[row].pair_label, labels_of(batch)[row ^ 1]);
    EXPECT_LT(rows_of(batch)[row].weight, 1);
  }
}

// Notes what is read and what is requested ahead.
class Watched final : public MemoryDataset {
 public:
  Watched()
      : MemoryDataset({"test",
                       "memory",
                       {1, 1, 1},
                       std::vector<std::uint8_t>(3003),
                       std::vector<std::int32_t>(3003),
                       {"a"}}) {}
  void will_need(std::uint64_t index) const override { requested.insert(index); }
  Sample fetch(std::uint64_t index, Scratch& scratch) const override {
    read.insert(index);
    return MemoryDataset::fetch(index, scratch);
  }
  mutable std::set<std::uint64_t> requested, read;
};

TEST(Readahead, RequestsAheadWhatItsRankReads) {
  for (const std::uint32_t world : {1U, 2U, 8U}) {
    for (std::uint32_t rank = 0; rank < world; ++rank) {
      const auto set = std::make_shared<Watched>();
      LoaderOptions with = options(50, "scale");
      with.world = world;
      with.rank = rank;
      ImageBatches maker(set, with);
      MakerState state(0);
      std::vector<std::byte> slot(maker.slot_bytes());
      std::vector<BadSample> bad;
      for (std::uint64_t step = 0; step < maker.steps_per_epoch(); ++step)
        maker.fill({0, step}, 0, 50, slot, state, bad, [] { return false; });
      EXPECT_EQ(set->read.size(), maker.steps_per_epoch() * 50);
      EXPECT_EQ(set->requested.size(), set->read.size() - 256) << world;
      EXPECT_TRUE(std::ranges::includes(set->read, set->requested)) << world;
    }
  }
}

}  // namespace
}  // namespace warpstep::data
