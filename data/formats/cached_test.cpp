#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "data/formats/cached.h"
#include "data/load/loader.h"
#include "data/load/ring.h"
#include "tests/data_testing.h"

namespace warpstep::data {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::message_of;
using ::testing::Not;

constexpr std::uint64_t mib = 1 << 20;

TEST(Tier, IsTheFirstThatFits) {
  TierFacts facts{.samples = 50000, .decoded_bytes = 154 * mib, .host_budget_bytes = 1024 * mib};
  EXPECT_EQ(choose_tier(Tier::automatic, facts).tier, Tier::mapped);
  facts.many_epochs = false;
  EXPECT_EQ(choose_tier(Tier::automatic, facts).tier, Tier::decoded);
  facts.has_device = true;
  EXPECT_EQ(choose_tier(Tier::automatic, facts).tier, Tier::resident);
  facts.device_budget_bytes = 100 * mib;
  EXPECT_EQ(choose_tier(Tier::automatic, facts).tier, Tier::decoded);
  facts.is_decoded = true;
  EXPECT_EQ(choose_tier(Tier::automatic, facts).tier, Tier::mapped);
  EXPECT_EQ(choose_tier(Tier::decoded, facts).tier, Tier::mapped);
  facts = {.decoded_bytes = 10 * mib,
           .sets_extent = true,
           .has_device = true,
           .host_budget_bytes = 1024 * mib};
  EXPECT_EQ(choose_tier(Tier::automatic, facts).tier, Tier::decoded);
}

TEST(Tier, SaysWhyOneCannotBeHad) {
  TierFacts facts{.decoded_bytes = 3000 * mib, .host_budget_bytes = 1024 * mib};
  EXPECT_THAT(message_of<UsageError>([&] { choose_tier(Tier::mapped, facts); }),
              AllOf(HasSubstr("3000 MiB"), HasSubstr("1024 MiB"), HasSubstr("data pack --decode")));
  EXPECT_THAT(message_of<UsageError>([&] { choose_tier(Tier::resident, facts); }),
              AllOf(HasSubstr("3000 MiB"), HasSubstr("--tier auto")));
  TierFacts limited = facts;
  limited.host_budget_option = "--memory 2GiB";
  limited.loading_bytes = 1024 * mib + 1;
  const std::string needed =
      "3000.0 MiB of pixels and 1024.0 MiB for loading do not fit into --memory 2GiB: they need "
      "--memory 4025MiB; use --tier ";
  for (const Tier tier : {Tier::mapped, Tier::resident})
    EXPECT_THAT(message_of<UsageError>([&] { choose_tier(tier, limited); }),
                AllOf(HasSubstr(needed), Not(HasSubstr("budget"))));
  EXPECT_FALSE(choose_tier(Tier::decoded, facts).fits_mapped);
  facts.host_budget_bytes = 3000 * mib;
  EXPECT_TRUE(choose_tier(Tier::decoded, facts).fits_mapped);
  facts.host_budget_bytes = 1024 * mib;
  facts.is_gathered = false;
  EXPECT_THAT(message_of<UsageError>([&] { choose_tier(Tier::resident, facts); }),
              HasSubstr("resizes images"));
  EXPECT_THAT(message_of<UsageError>([] { parse_tier("fast"); }),
              HasSubstr("auto, resident, mapped and decoded"));
  for (const Tier tier : {Tier::automatic, Tier::resident, Tier::mapped, Tier::decoded})
    EXPECT_EQ(parse_tier(name(tier)), tier);
  EXPECT_GT(host_budget_bytes(), 16 * mib);
}

TEST(Tier, KeepsWithinTheControlGroupsOfTheProcess) {
  const testing::TemporaryFolder root;
  testing::put(root / "proc/self/cgroup", std::string("0::/job/step\n"));
  testing::put(root / "sys/fs/cgroup/memory.max", std::string("max\n"));
  testing::put(root / "sys/fs/cgroup/job/memory.max", std::string("4194304\n"));
  testing::put(root / "sys/fs/cgroup/job/step/memory.max", std::string("max\n"));
  EXPECT_EQ(host_budget_bytes(1, root.path()), mib);
  EXPECT_EQ(host_budget_bytes(2, root.path()), mib / 2);
}

TEST(Cached, DecodesOnceAndNamesWhatItCannot) {
  testing::TemporaryFolder folder;
  testing::put_png_split(folder / "train", 8, 2);
  testing::put(folder / "train/5.png", std::string("no PNG"));
  const std::shared_ptr<const Dataset> inner = open(folder.path(), Split::train);
  CachedDataset cached(inner);
  EXPECT_EQ(cached.memory_bytes(), inner->memory_bytes() + 8 * 60);
  Scratch scratch;
  std::vector<std::uint8_t> a(60), b(60);
  for (std::uint64_t i = 0; i < 8; ++i) {
    if (i == 5) {
      for (int twice = 0; twice < 2; ++twice)
        EXPECT_THAT(message_of([&] { cached.read(i, scratch, a); }), HasSubstr("5.png: is not"));
      continue;
    }
    inner->read(i, scratch, a);
    cached.read(i, scratch, b);
    EXPECT_EQ(a, b);
  }
  std::filesystem::remove(folder / "train/3.png");
  cached.read(3, scratch, b);  // from memory
  EXPECT_THAT(message_of([&] { cached.decode_all(2); }), HasSubstr("5.png"));
  EXPECT_TRUE(cached.all_pixels().empty());
}

// Decoded samples that differ, as those of a user's set may: sample 2 has another shape.
class OddPixels final : public MemoryDataset {
 public:
  explicit OddPixels(const Shape& odd)
      : MemoryDataset(
            {"test", "memory", {4, 5, 3}, std::vector<std::uint8_t>(240), {0, 0, 0, 0}, {"a"}}),
        odd_(odd),
        pixels_(idx(odd.count())) {}
  Sample fetch(std::uint64_t index, Scratch& scratch) const override {
    if (index != 2) return MemoryDataset::fetch(index, scratch);
    return {pixels_, Encoding::pixels, odd_};
  }

 private:
  Shape odd_;
  std::vector<std::uint8_t> pixels_;
};

// Of a user's own that says nothing of its images.
class Shapeless final : public MemoryDataset {
 public:
  Shapeless()
      : MemoryDataset({"test", "memory", {1, 1, 3}, std::vector<std::uint8_t>(3), {0}, {"a"}}) {}
  Shape image_shape() const override { return {0, 0, 3}; }
};

TEST(Cached, IsOfADataSet) {
  EXPECT_THAT(message_of<UsageError>([] { CachedDataset(nullptr); }),
              HasSubstr("a cache of no data set: the pointer is null"));
  EXPECT_THAT(message_of([] { CachedDataset(std::make_shared<Shapeless>()); }),
              HasSubstr("memory: has images of shape 0x0x3; must be [height, width, channels]"));
}

// Of a span that is too short, decoders would write beyond it.
TEST(Decode, RefusesTooLittleMemory) {
  const auto set = testing::in_memory(1);
  std::vector<std::uint8_t> pixels(idx(set->image_shape().count()));
  Scratch scratch;
  EXPECT_NO_THROW(set->read(0, scratch, pixels));
  EXPECT_THAT(message_of<UsageError>(
                  [&] { set->read(0, scratch, std::span(pixels).first(pixels.size() - 1)); }),
              HasSubstr(" bytes for "));
}

TEST(Cached, NamesPixelsOfAnotherShape) {
  CachedDataset wide(std::make_shared<OddPixels>(Shape{4, 7, 3}));
  EXPECT_THAT(message_of([&] { wide.decode_all(1); }),
              HasSubstr("memory[2]: is 7 x 4 pixels, but the first image of its set is 5 x 4"));
  EXPECT_TRUE(wide.all_pixels().empty());
  CachedDataset gray(std::make_shared<OddPixels>(Shape{4, 5, 1}));
  EXPECT_THAT(message_of([&] { gray.decode_all(1); }),
              AllOf(HasSubstr("memory[2]: 20 bytes as an image of 4x5x1"),
                    HasSubstr("images of its set have 3 channels")));
}

TEST(Tuner, WakesWorkersForAHungryTrainerAndParksIdleOnes) {
  Tuner tuner(2, 4);
  const auto period = [&](std::uint64_t wait_ns, bool full) {
    bool changed = false;
    for (int i = 0; i < Tuner::period; ++i) changed |= tuner.observe({wait_ns, 1000, full});
    return changed;
  };
  EXPECT_FALSE(period(50, false));
  EXPECT_TRUE(period(50, false));  // two periods in a row
  EXPECT_EQ(tuner.active(), 3);
  EXPECT_FALSE(period(50, false));
  EXPECT_FALSE(period(5, false));  // content
  EXPECT_FALSE(period(50, false));
  EXPECT_TRUE(period(50, false));
  for (int i = 0; i < 6; ++i) period(50, false);
  EXPECT_EQ(tuner.active(), 4);  // the most
  for (int i = 0; i < 12; ++i) period(0, true);
  EXPECT_EQ(tuner.active(), 1);
}

TEST(Tuner, DoesNotParkAWorkerThatWasMissed) {
  Tuner tuner(1, 2);
  int changes = 0;
  for (int i = 0; i < 400 * Tuner::period; ++i)  // one is too few, two are too many
    changes += tuner.observe({tuner.active() == 1 ? 50U : 0U, 1000, tuner.active() == 2}) ? 1 : 0;
  EXPECT_EQ(tuner.active(), 2);
  EXPECT_LE(changes, 3);
}

LoaderStats stats_of(std::vector<StageTime> stages, std::uint64_t wait_ns) {
  LoaderStats stats;
  stats.stages = std::move(stages);
  stats.batches = 100;
  stats.trainer_wait_ns = wait_ns;
  stats.first_taken_ns = 1;
  stats.last_taken_ns = 1001;
  stats.active = 1;
  return stats;
}

TEST(Diagnosis, NamesTheBottleneckAndWhatWouldChangeIt) {
  const auto decoding = stats_of({{"wait", 0}, {"read", 40}, {"decode", 910}, {"copy", 50}}, 600);
  EXPECT_EQ(
      diagnose(decoding, "png", 4),
      "data: 1 worker, trainer waits 60.0 %, workers: decode 91 %, copy 5 %, read 4 %; "
      "bottleneck: decode: keep decoded images (--tier mapped), store them (`warpstep data pack "
      "--decode`), or use --workers 2");
  EXPECT_THAT(
      diagnose(decoding, "pixels", 4),
      AllOf(HasSubstr("the first epoch decodes each image once"), Not(HasSubstr("--tier"))));
  EXPECT_THAT(diagnose(stats_of({{"wait", 950}, {"decode", 50}}, 30), "pixels", 4),
              AllOf(HasSubstr("time to spare"), Not(HasSubstr("--workers"))));
  EXPECT_THAT(diagnose(stats_of({{"wait", 950}, {"copy", 50}}, 30), "resident", 4),
              AllOf(HasSubstr("nothing is left to load"), Not(HasSubstr("--prefetch"))));
  EXPECT_THAT(diagnose(decoding, "jpeg", 1),
              AllOf(HasSubstr("seekable"), HasSubstr("a machine with more cores")));
  EXPECT_THAT(diagnose(decoding, "packed jpeg", 4), HasSubstr("use smaller crops or --workers 2"));
  EXPECT_THAT(diagnose(decoding, "encoded", 4),
              HasSubstr("decode: use smaller crops or --workers 2"));
  EXPECT_THAT(diagnose(stats_of({{"read", 900}, {"decode", 10}}, 300), "png", 4),
              HasSubstr("into one file with `warpstep data pack`"));
  EXPECT_THAT(diagnose(stats_of({{"pixels", 900}, {"decode", 10}}, 300), "png", 4),
              HasSubstr("--normalize device"));
  EXPECT_THAT(diagnose(stats_of({{"wait", 900}, {"decode", 100}}, 2), "png", 4),
              HasSubstr("loading overlaps with computing"));
}

}  // namespace
}  // namespace warpstep::data
