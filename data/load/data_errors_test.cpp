// Batches with samples that cannot be decoded, and options that contradict each other.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "data/decode/jpeg.h"
#include "data/formats/cached.h"
#include "data/formats/content.h"
#include "data/formats/formats.h"
#include "data/formats/part.h"
#include "data/load/image_batches.h"
#include "data/load/loader.h"
#include "data/transforms/statistics.h"
#include "tests/data_testing.h"
#include "tests/data_uneven.h"

namespace warpstep::data {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::images_of;
using testing::labels_of;
using testing::message_of;
using testing::put;
using testing::put_png_split;
using testing::rows_of;
using testing::TemporaryFolder;

LoaderOptions plain_options(std::int64_t batch, const std::string& recipe = "") {
  LoaderOptions result;
  result.batch = batch;
  result.workers = 2;
  result.seed = 11;
  result.recipe = Recipe(recipe);
  return result;
}

// A user's transform that takes a window of its own choice, and stretches it.
class Zoom final : public Transform {
 public:
  TransformStage stage() const override { return TransformStage::geometry; }
  std::string name() const override { return "zoom"; }
  std::string text() const override { return "zoom"; }
  void plan(Geometry& geometry, const Draw&) const override {
    geometry.source = {1, 1, geometry.height - 2, geometry.width - 2};
  }
};

TEST(LoaderOptions, AUsersGeometryIsNotGatheredFromAResidentSet) {
  const auto set = testing::in_memory(16);
  auto with = plain_options(4);
  with.recipe = Recipe(std::vector<TransformPtr>{std::make_shared<Zoom>()});
  EXPECT_FALSE(with.recipe.is_gathered());
  with.resident = set->all_pixels();
  EXPECT_THAT(message_of<UsageError>([&] { Loader loader(set, with); }), HasSubstr("'zoom'"));
}

// Sample 17 of 40 is broken.
struct Broken {
  explicit Broken(DataErrors errors, double max_bad = 1) {
    with = plain_options(8, "");
    with.errors = errors;
    with.max_bad = max_bad;
    set = std::make_shared<testing::Uneven>(40, 17);
  }
  LoaderOptions with;
  std::shared_ptr<testing::Uneven> set;
};

TEST(DataErrorPolicy, SkipTakesTheNextGoodRowOfItsBatch) {
  for (const int workers : {1, 4}) {
    Broken broken(DataErrors::skip);
    broken.with.workers = workers;
    Loader loader(broken.set, broken.with);
    auto good_with = broken.with;
    good_with.errors = DataErrors::fail;
    Loader good(std::make_shared<testing::Uneven>(40), good_with);
    for (int step = 0; step < 5; ++step) {
      const Batch batch = loader.next(), expected = good.next();
      const auto bad = loader.bad_samples();
      const bool here = !bad.empty() && bad[0].position == batch.position;
      EXPECT_EQ(batch.count, 8);
      for (std::size_t row = 0; row < 8; ++row) {
        const std::size_t from =
            here && bad[0].row == static_cast<std::int64_t>(row) ? (row + 1) % 8 : row;
        EXPECT_TRUE(
            std::equal(images_of(batch).begin() + static_cast<std::ptrdiff_t>(60 * row),
                       images_of(batch).begin() + static_cast<std::ptrdiff_t>(60 * row + 60),
                       images_of(expected).begin() + static_cast<std::ptrdiff_t>(60 * from)));
        EXPECT_EQ(labels_of(batch)[row], labels_of(expected)[from]);
      }
    }
    ASSERT_EQ(loader.bad_samples().size(), 1U);
    EXPECT_EQ(loader.bad_samples()[0].index, 17U);
    EXPECT_THAT(loader.bad_samples()[0].message,
                AllOf(HasSubstr("memory[17]: is broken"), HasSubstr("epoch 1, step")));
    EXPECT_EQ(loader.stats().bad, 1U);
  }
}

// As its pixels would be if they were made on the host.
TEST(DataErrorPolicy, SkipTakesTheJitterOfTheGoodRow) {
  Broken broken(DataErrors::skip);
  broken.with.recipe = Recipe("brightness=0.5");
  Loader loader(broken.set, broken.with);
  for (int step = 0; step < 5; ++step) {
    const Batch& batch = loader.next();
    if (loader.bad_samples().empty()) continue;
    const std::size_t row = idx(loader.bad_samples()[0].row), good = (row + 1) % 8;
    EXPECT_EQ(rows_of(batch)[row].gain, rows_of(batch)[good].gain);
    EXPECT_EQ(rows_of(batch)[row].source, row);
    return;
  }
  FAIL() << "an epoch has the broken sample";
}

TEST(DataErrorPolicy, MaskGivesARowThatDoesNotCount) {
  Broken broken(DataErrors::mask);
  Loader loader(broken.set, broken.with);
  std::int64_t samples = 0;
  int masked = 0;
  for (int step = 0; step < 5; ++step) {
    const Batch& batch = loader.next();
    samples += batch.count;
    for (std::size_t row = 0; row < 8; ++row) {
      if (labels_of(batch)[row] >= 0) continue;
      ++masked;
      for (const std::uint8_t byte : images_of(batch).subspan(60 * row, 60)) EXPECT_EQ(byte, 0);
    }
  }
  EXPECT_EQ(samples, 39);
  EXPECT_EQ(masked, 1);
}

// Batch norms see it: it must not depend on who makes numbers of bytes.
TEST(DataErrorPolicy, MaskGivesABlackRowWhoeverMakesItsNumbers) {
  Broken broken(DataErrors::mask);
  Loader bytes(broken.set, broken.with);
  broken.with.pixels = broken.with.recipe.pixels(3, {0.5, 0.5, 0.5}, {0.25, 0.25, 0.25});
  Loader numbers(broken.set, broken.with);
  std::vector<float> expected(60);
  for (int step = 0; step < 5; ++step) {
    const Batch a = bytes.next(), b = numbers.next();
    for (std::size_t row = 0; row < 8; ++row) {
      apply_pixels(*broken.with.pixels, rows_of(a), row, images_of(a).data(), {4, 5}, {4, 5},
                   expected.data());
      EXPECT_EQ(std::memcmp(expected.data(), images_of(b).data() + 240 * row, 240), 0)
          << "step " << step << ", row " << row;
    }
  }
}

TEST(DataErrorPolicy, CountsWhatAnEarlierProcessCouldNotDecode) {
  Broken broken(DataErrors::mask, 0.03);  // 1 of 40
  const auto ends = [&](std::uint64_t known) {
    Loader loader(broken.set, broken.with);
    loader.know_bad(known);
    return message_of([&] {
      for (int step = 0; step < 5; ++step) loader.next();
    });
  };
  EXPECT_EQ(ends(17), "") << "the same";
  EXPECT_EQ(ends(40), "") << "of another set";
  EXPECT_THAT(ends(3), HasSubstr("2 of 40 samples cannot be decoded"));
}

// The next batch in the place of one that was given away has broken samples of its own alone.
TEST(DataErrorPolicy, CountsABrokenSampleOnceAnEpochWhereBatchesAreGivenAway) {
  Broken broken(DataErrors::mask);
  std::vector<std::vector<std::byte>> others;  // outlives the loader, which fills it
  Loader loader(broken.set, broken.with);
  std::size_t masked = 0;
  for (int step = 0; step < 10; ++step) {
    const Batch batch = loader.next();
    masked += idx(8 - batch.count);
    others.emplace_back(batch.slot.size());
    loader.exchange(others.back());
  }
  EXPECT_EQ(masked, 2U);
  EXPECT_EQ(loader.bad_count(), 2U);
}

// A batch that is ready is not one that the run has met.
TEST(DataErrorPolicy, SeekForgetsTheBrokenSamplesOfBatchesThatNobodyTook) {
  Broken broken(DataErrors::fail);
  broken.with.shuffle = Shuffle::none;
  broken.with.prefetch = 4;
  Loader loader(broken.set, broken.with);
  for (int step = 0; step < 2; ++step) loader.next();
  ASSERT_TRUE(loader.ready_within(std::chrono::seconds(60))) << "the batch of sample 17";
  loader.seek({0, 3});
  for (const Position position : {Position{0, 3}, {0, 4}, {1, 0}, {1, 1}})  // in all four slots
    EXPECT_EQ(loader.next().position, position);
  EXPECT_TRUE(loader.bad_samples().empty());
  EXPECT_THAT(message_of<DataError>([&] { loader.next(); }), HasSubstr("memory[17]: is broken"));
}

TEST(DataErrorPolicy, EndsTheRunAboveItsLimit) {
  for (const auto& [max_bad, ends] : {std::pair{0.024, true}, std::pair{0.025, false}}) {
    Broken broken(DataErrors::mask, max_bad);
    Loader loader(broken.set, broken.with);
    const std::string message = message_of([&] {
      for (int step = 0; step < 15; ++step) loader.next();  // seen three times, counted once
    });
    EXPECT_EQ(!message.empty(), ends);
    if (ends) {
      EXPECT_THAT(message, AllOf(HasSubstr("1 of 40 samples cannot be decoded"),
                                 HasSubstr("--max-bad"), HasSubstr("memory[17]: is broken")));
    }
  }
}

TEST(DataErrorPolicy, SkipNeedsAGoodRow) {
  Broken broken(DataErrors::skip);
  broken.with.batch = 1;
  Loader loader(broken.set, broken.with);
  EXPECT_THAT(
      message_of([&] {
        for (int step = 0; step < 40; ++step) loader.next();
      }),
      AllOf(HasSubstr("every sample of this batch is broken"), HasSubstr("--data-errors mask")));
}

// A copied row would count twice.
TEST(DataErrorPolicy, SkipMasksARowOfAnEvaluation) {
  for (const std::int64_t batch_size : {1, 8}) {
    Broken broken(DataErrors::skip);
    broken.with.batch = batch_size;
    broken.with.tail = Tail::pad;
    broken.with.evaluates = true;
    Loader loader(broken.set, broken.with);
    std::int64_t counted = 0, masked = 0;
    for (int step = 0; step < 40 / batch_size; ++step) {
      const Batch& batch = loader.next();
      counted += batch.count;
      masked +=
          std::ranges::count_if(labels_of(batch), [](std::int32_t label) { return label < 0; });
    }
    EXPECT_EQ(counted, 39);
    EXPECT_EQ(masked, 1);
    EXPECT_EQ(loader.bad_count(), 1U);
  }
}

// Training without a dropped tail: only a row without a good one beside it is masked.
TEST(DataErrorPolicy, SkipRepeatsARowWhereTheTailIsPadded) {
  for (const std::int64_t batch_size : {1, 7, 8}) {
    Broken broken(DataErrors::skip);
    broken.with.batch = batch_size;
    broken.with.tail = Tail::pad;
    auto good_with = broken.with;
    good_with.errors = DataErrors::fail;
    Loader loader(broken.set, broken.with);
    Loader good(std::make_shared<testing::Uneven>(40), good_with);
    std::int64_t counted = 0;
    for (std::uint64_t step = 0; step < loader.steps_per_epoch(); ++step) {
      const Batch batch = loader.next(), expected = good.next();
      counted += batch.count;
      const auto bad = loader.bad_samples();
      if (bad.empty() || bad[0].position != batch.position) continue;
      EXPECT_THAT(bad[0].message, HasSubstr(fmt::format("epoch 1, step {})", step + 1)));
      const auto row = idx(bad[0].row);
      const std::size_t next = (row + 1) % idx(expected.count);
      if (batch_size > 1) {
        EXPECT_EQ(labels_of(batch)[row], labels_of(expected)[next]);
        EXPECT_TRUE(std::ranges::equal(images_of(batch).subspan(60 * row, 60),
                                       images_of(expected).subspan(60 * next, 60)));
      } else {
        EXPECT_EQ(labels_of(batch)[row], -1);
      }
    }
    EXPECT_EQ(counted, batch_size > 1 ? 40 : 39);
    EXPECT_EQ(loader.bad_count(), 1U);
  }
}

// Of a user's own set. Sample 3 has one label, and pixels of as many channels.
struct Own final : testing::Uneven {
  Own(std::int32_t its_label, std::int64_t its_channels)
      : Uneven(8), label3(its_label), shape3{4, 5, its_channels} {}
  std::int32_t label(std::uint64_t index) const override {
    return index == 3 ? label3 : Uneven::label(index);
  }
  Sample fetch(std::uint64_t index, Scratch& scratch) const override {
    if (index != 3) return Uneven::fetch(index, scratch);
    return {std::span(pixels).first(idx(shape3.count())), Encoding::pixels, shape3};
  }
  std::int32_t label3;
  Shape shape3;
  std::vector<std::uint8_t> pixels = std::vector<std::uint8_t>(100);
};

TEST(UsersSet, HasLabelsOfItsClasses) {
  for (const std::int32_t label : {-1, 2})
    EXPECT_THAT(message_of([&] { Loader(std::make_shared<Own>(label, 3), plain_options(8)); }),
                HasSubstr(fmt::format("memory[3]: has label {}, but labels of 2 classes", label)));
  for (const std::int32_t label : {-1, 1}) {
    MemoryParts parts{"test", "memory", Shape{1, 1, 1}, {1, 2}, {0, label}, {"a"}};
    EXPECT_THAT(message_of([&] { const MemoryDataset set(std::move(parts)); }),
                HasSubstr(fmt::format("memory: sample 1 has label {}", label)));
  }
  MemoryParts unnamed{"test", "memory", Shape{1, 1, 1}, {1}, {0}, {}};
  EXPECT_THAT(message_of([&] { const MemoryDataset set(std::move(unnamed)); }),
              HasSubstr("memory: the data set has no classes"));
}

struct OfShape final : testing::Uneven {
  explicit OfShape(const Shape& its_shape) : Uneven(8), shape(its_shape) {}
  Shape image_shape() const override { return shape; }
  Shape shape;
};

TEST(UsersSet, HasImagesOfOneToThreeChannels) {
  static const Format format{
      .files = "files of four channels",
      .has_split = [](const std::string& spec, Split) { return spec.ends_with("/channels-4"); },
      .open_split = [](const std::string&, Split, const OpenOptions&) -> std::unique_ptr<Dataset> {
        return std::make_unique<OfShape>(Shape{4, 5, 4});
      }};
  add_format(format);
  const TemporaryFolder folder;
  put(folder / "channels-4", std::string("x"));
  EXPECT_THAT(
      message_of([&] { open(folder / "channels-4", Split::train); }),
      AllOf(HasSubstr("uneven: has images of shape 4x5x4; must be"), HasSubstr("1 to 3 channels")));
  for (const Shape& shape : {Shape{4, 5, 4}, Shape{4, 5, 0}, Shape{0, 5, 3}, Shape{4, 0, 3},
                             Shape{4, 5}, Shape{2, 4, 5, 3}}) {
    const auto refusal = HasSubstr(fmt::format(": has images of shape {};", shape.text()));
    const auto set = std::make_shared<OfShape>(shape);
    EXPECT_THAT(message_of([&] { Loader(set, plain_options(8)); }), refusal);
    EXPECT_THAT(message_of([&] { channel_statistics(*set); }), refusal);
    EXPECT_THAT(message_of([&] { testing::in_memory(8, shape); }), refusal);
  }
  const auto two = testing::in_memory(8, {4, 5, 2});
  EXPECT_EQ(channel_statistics(*two).mean.size(), 2U);
  EXPECT_EQ(Loader(two, plain_options(8)).next().count, 8);
}

TEST(UsersSet, IsNamedByAFormatThatOpensNothingOrThrows) {
  const auto is_ours = [](const std::string& spec, Split) { return spec.ends_with("/faulty"); };
  static bool throws = false;
  add_format({.files = "faulty files",
              .has_split = is_ours,
              .open_split = [](const std::string&, Split, const OpenOptions&) {
                if (throws) throw 42;
                return std::unique_ptr<Dataset>();
              }});
  const TemporaryFolder folder;
  put(folder / "faulty", std::string("x"));
  const auto refused = [&] {
    return message_of<Error>([&] { open(folder / "faulty", Split::train); });
  };
  EXPECT_THAT(refused(), HasSubstr("/faulty: the format of faulty files opened nothing"));
  throws = true;
  EXPECT_THAT(refused(), HasSubstr("its open_split() threw: an exception of type int"));
}

// Before anything counts its samples by class.
TEST(UsersSet, HasLabelsOfItsClassesOnceAPluginHasOpenedIt) {
  add_format(
      {.files = "files of label 2",
       .has_split = [](const std::string& spec, Split) { return spec.ends_with("/label-2"); },
       .open_split = [](const std::string&, Split, const OpenOptions&) -> std::unique_ptr<Dataset> {
         return std::make_unique<Own>(2, 3);
       }});
  const TemporaryFolder folder;
  put(folder / "label-2", std::string("x"));
  const auto refusal = HasSubstr("memory[3]: has label 2, but labels of 2 classes are 0 to 1");
  EXPECT_THAT(message_of([&] { open(folder / "label-2", Split::train); }), refusal);
  EXPECT_THAT(
      message_of([] { open_part(std::make_shared<Own>(2, 3), Split::test, {.share = 0.1}); }),
      refusal);
}

// Of a user's own: makes another size, or reads beyond the image.
class Odd final : public Transform {
 public:
  explicit Odd(bool reads_beyond) : reads_beyond_(reads_beyond) {}
  TransformStage stage() const override { return TransformStage::geometry; }
  std::string name() const override { return "odd"; }
  std::string text() const override { return "odd"; }
  void plan(Geometry& geometry, const Draw&) const override {
    if (reads_beyond_)
      geometry.source = {3, 0, geometry.height, geometry.width};
    else
      geometry.out = {0, 0, 2, 3};
  }

 private:
  bool reads_beyond_;
};

TEST(UsersTransform, AnnouncesTheSizeThatItMakes) {
  const auto message = [](bool reads_beyond) {
    LoaderOptions with = plain_options(4);
    with.recipe = Recipe(std::vector<TransformPtr>{std::make_shared<Odd>(reads_beyond)});
    Loader loader(testing::in_memory(8), with);
    return message_of([&] { loader.next(); });
  };
  EXPECT_THAT(message(false), HasSubstr("]: the transforms make 3 x 2 pixels of it, but announce "
                                        "5 x 4 (Transform::extent) (sample "));
  EXPECT_THAT(message(true), ::testing::StartsWith("the image: is 5 x 4 pixels, too small for the "
                                                   "window of rows 3 to 7"));
}

// What a set's own library throws, in the checks before a run.
struct Database final : testing::Uneven {
  Database() : Uneven(8) {}
  Sample fetch(std::uint64_t, Scratch&) const override {
    throw std::runtime_error("my database is down");
  }
};

// A number in place of an exception, from each function that only workers call.
struct Number final : testing::Uneven {
  explicit Number(std::string its_where) : Uneven(512), where(std::move(its_where)) {}
  Sample fetch(std::uint64_t index, Scratch& scratch) const override {
    if (where == "fetch" && index == 3) throw 42;
    return Uneven::fetch(index, scratch);
  }
  void will_need(std::uint64_t) const override {
    if (where == "will_need") throw 42;
  }
  void check_unchanged() const override {
    if (where == "check_unchanged") throw 42;
  }
  std::string where;
};

TEST(UsersSet, MayThrowWhatIsNoStandardException) {
  for (const char* where : {"fetch", "will_need", "check_unchanged"}) {
    LoaderOptions with = plain_options(8);
    with.shuffle = Shuffle::none;
    Loader loader(std::make_shared<Number>(where), with);
    EXPECT_THAT(message_of([&] { loader.next(); }),
                AllOf(HasSubstr("an exception of type int, which is not a std::exception (sample "),
                      HasSubstr(", epoch 1, step 1)")))
        << where;
  }
}

struct Nothing final : testing::Uneven {
  Nothing() : Uneven(8) {}
  std::uint64_t size() const override { return 0; }
};

TEST(UsersSet, HasImages) {
  for (const Tail tail : {Tail::drop, Tail::pad}) {
    LoaderOptions with = plain_options(8);
    with.tail = tail;
    EXPECT_THAT(message_of([&] { Loader(std::make_shared<Nothing>(), with); }),
                ::testing::EndsWith(": has no images"));
  }
}

TEST(UsersSet, IsNamedWithTheSampleThatItCannotFetch) {
  const Database set;
  const std::vector<std::function<void()>> checks{
      [&] { channel_statistics(set); }, [&] { require_rows(set, Recipe(), 8); },
      [&] { first_readable(set); }, [&] { content_of(set); }};
  for (const auto& check : checks)  // of several threads any may be the first
    EXPECT_THAT(message_of<Error>(check),
                ::testing::ContainsRegex("my database is down [(]sample [0-7] of uneven[)]"));
}

TEST(UsersSet, HasPixelsOfOneNumberOfChannels) {
  Loader loader(std::make_shared<Own>(0, 1), plain_options(8));
  EXPECT_THAT(message_of([&] { loader.next(); }),
              AllOf(HasSubstr("20 bytes as an image of 4x5x1; images of its set have 3 channels"),
                    HasSubstr("(sample 3 of")));
  Scratch scratch;
  std::vector<std::uint8_t> pixels;  // as `data verify` reads it
  EXPECT_THAT(message_of([&] { read_whole(Own(0, 1), 3, scratch, pixels); }),
              HasSubstr("memory[3]: 20 bytes as an image of 4x5x1"));
}

// The batch stays the next one.
TEST(DataErrorPolicy, CountsTheSamplesOfABatchOnceThatHasTooMany) {
  LoaderOptions with = plain_options(8);
  with.errors = DataErrors::skip;
  with.max_bad = 0;
  Loader loader(std::make_shared<testing::Uneven>(8, 3), with);
  for (int i = 0; i < 3; ++i) {
    EXPECT_THAT(message_of([&] { loader.next(); }), HasSubstr("1 of 8 samples cannot be decoded"));
    EXPECT_EQ(loader.bad_samples().size(), 1U);
  }
}

// A JPEG that is cut: some windows of it are good, and which is not a matter of the tier.
TEST(DataErrorPolicy, JudgesABrokenImageByItsWindowInEveryTier) {
  TemporaryFolder folder;
  std::filesystem::create_directories(folder / "train/a");
  const Shape shape{64, 64, 3};
  for (int i = 0; i < 6; ++i) {
    auto file = encode_jpeg(shape, testing::some_pixels(shape, static_cast<std::uint32_t>(i)), 90);
    if (i == 2) file.resize(file.size() * 2 / 3);
    testing::put(folder / fmt::format("train/a/{}.jpg", i), file);
  }
  const std::shared_ptr<const Dataset> set = open(folder.path(), Split::train);
  auto with = plain_options(6, "random-crop=24");
  with.errors = DataErrors::mask;
  with.max_bad = 1;
  Loader decoded(set, with), mapped(std::make_shared<CachedDataset>(set), with);
  for (int epoch = 0; epoch < 24; ++epoch) {
    const Batch &a = decoded.next(), &b = mapped.next();
    EXPECT_TRUE(std::equal(images_of(a).begin(), images_of(a).end(), images_of(b).begin()));
    EXPECT_TRUE(std::equal(labels_of(a).begin(), labels_of(a).end(), labels_of(b).begin()));
  }
  EXPECT_EQ(decoded.bad_count(), mapped.bad_count());
  EXPECT_GT(decoded.bad_count(), 0U);
  EXPECT_LT(decoded.bad_count(), 24U);
}

TEST(DataErrorPolicy, NamesAnImageOfAnotherSize) {
  TemporaryFolder folder;
  put_png_split(folder / "train", 6, 2);
  testing::put(folder / "train/3.png", testing::some_png({8, 9, 3}));
  const std::shared_ptr<const Dataset> set = open(folder.path(), Split::train);
  auto with = plain_options(6, "");
  Loader plain(set, with);
  EXPECT_THAT(message_of([&] { plain.next(); }),
              AllOf(HasSubstr("3.png: is 9 x 8 pixels"), HasSubstr("--transforms"),
                    HasSubstr("(sample 3 of")));
  with.recipe = Recipe("random-crop=4");
  Loader cropped(set, with);  // images of any size
  EXPECT_EQ(cropped.next().count, 6);
  with.recipe = Recipe("random-crop=6");
  Loader small(set, with);
  EXPECT_THAT(message_of([&] { small.next(); }),
              AllOf(HasSubstr(".png: 5 x 4 pixels are too few for random-crop=6")));
}

std::span<const std::uint8_t> a_resident_set() {
  static const std::vector<std::uint8_t> pixels(16 * 60);
  return pixels;
}

TEST(LoaderOptions, ThatDoNotGoTogetherAreRefused) {
  const auto set = testing::in_memory(16);
  const auto refused = [&](auto&& change) {
    auto with = plain_options(4, "");
    change(with);
    return message_of<UsageError>([&] { Loader loader(set, with); });
  };
  EXPECT_THAT(refused([](LoaderOptions& o) { o.world = 2, o.rank = 2; }),
              HasSubstr("rank 2 of a world of 2"));
  EXPECT_THAT(refused([](LoaderOptions& o) { o.world = 8; }), HasSubstr("one batch of 32"));
  EXPECT_THAT(refused([](LoaderOptions& o) {
                o.world = 2;
                o.batch = 3;
                o.recipe = Recipe("mixup=1");
              }),
              HasSubstr("must be even"));
  EXPECT_THAT(refused([](LoaderOptions& o) { o.max_bad = 2; }), HasSubstr("--max-bad 2"));
  EXPECT_THAT(refused([](LoaderOptions& o) {
                o.resident = a_resident_set();
                o.recipe = Recipe("resize=8x8");
              }),
              AllOf(HasSubstr("'resize=8x8'"), HasSubstr("--tier mapped")));
  EXPECT_THAT(refused([](LoaderOptions& o) {
                o.resident = a_resident_set();
                o.recipe = Recipe("centre-crop=3,random-crop=4:pad=1");
              }),
              AllOf(HasSubstr("'centre-crop=3,random-crop=4:pad=1'"), HasSubstr("--tier mapped")));
  EXPECT_THAT(refused([](LoaderOptions& o) { o.resident = a_resident_set().first(900); }),
              AllOf(HasSubstr("900 bytes, but 16 images of 4x5x3 have 960")));
  EXPECT_THAT(refused([](LoaderOptions& o) {
                o.pixels = PixelPlan{};
                o.recipe = Recipe("mixup=1");
              }),
              HasSubstr("--normalize device"));
  EXPECT_THAT(refused([](LoaderOptions& o) { o.memory_limit_bytes = 1000; }),
              AllOf(HasSubstr("more than the limit of 0.0 MiB"), HasSubstr("slots"),
                    HasSubstr("--memory")));
}

TEST(Loader, MakesNumbersWhereItIsAskedTo) {
  const auto set = testing::in_memory(16);
  auto with = plain_options(4, "random-mask=0.5:dilate");
  Loader bytes(set, with);
  with.pixels = with.recipe.pixels(3, {0.5, 0.5, 0.5}, {0.25, 0.25, 0.25});
  Loader numbers(set, with);
  const Batch a = bytes.next(), b = numbers.next();
  ASSERT_EQ(images_of(b).size(), 4 * images_of(a).size());
  std::vector<float> expected(60);
  for (std::size_t row = 0; row < 4; ++row) {
    apply_pixels(*with.pixels, rows_of(a), row, images_of(a).data(), {4, 5}, {4, 5},
                 expected.data());
    EXPECT_EQ(std::memcmp(expected.data(), images_of(b).data() + 240 * row, 240), 0);
  }
}

}  // namespace
}  // namespace warpstep::data
