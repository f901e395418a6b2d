#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "data/transforms/develop.h"
#include "data/transforms/recipe.h"
#include "tests/data_testing.h"

namespace warpstep::data {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::message_of;
using testing::some_pixels;

std::string refused(const std::string& text) {
  return message_of<UsageError>([&] { Recipe recipe(text); });
}

TEST(Recipe, ReadsAndWritesItsText) {
  for (const char* text :
       {"", "random-crop=32:pad=4,flip,normalize", "resize=256,centre-crop=224x160",
        "random-resized-crop=64:0.25:1,flip=0.25,brightness=0.5,contrast=0.25,normalize,mixup=1",
        "random-crop=256,random-mask=0.25:dilate,yuv,scale", "resize=20x30"})
    EXPECT_EQ(Recipe(text).text(), text);
}

TEST(Recipe, RefusesWhatCannotBeMeant) {
  EXPECT_THAT(refused("random-corp=32"),
              AllOf(HasSubstr("'random-corp' is not known"), HasSubstr("did you mean random-crop"),
                    HasSubstr("normalize, randaugment, random-crop")));
  EXPECT_THAT(refused("flip,,scale"), HasSubstr("an empty name at character 5"));
  EXPECT_THAT(refused("random-crop"), AllOf(HasSubstr("a size is missing"), HasSubstr("usage:")));
  EXPECT_THAT(refused("random-crop=0"), HasSubstr("0 is not from 1 to 16384"));
  EXPECT_THAT(refused("random-crop=3x4x5"), HasSubstr("is not a size"));
  EXPECT_THAT(refused("random-crop=32:pat=4"), HasSubstr("'pat' is not known"));
  EXPECT_THAT(refused("random-crop=32:pad=4.5"), HasSubstr("'4.5' is not a whole number"));
  EXPECT_THAT(refused("random-mask=2"), HasSubstr("2 is not from 0 to 1"));
  EXPECT_THAT(refused("random-mask=nan"), HasSubstr("'nan' is not known"));
  EXPECT_THAT(refused("random-mask=0.5:dilate=0"), HasSubstr("'dilate' takes no value"));
  EXPECT_THAT(refused("random-crop=32:pad=4:pad=8"), HasSubstr("'pad' is given twice"));
  EXPECT_THAT(refused("scale=3"), HasSubstr("accepts at most 0 numbers"));
  EXPECT_THAT(refused("scale,flip"),
              AllOf(HasSubstr("flip (geometry) must come before scale (colour)"),
                    HasSubstr("the order is geometry")));
  EXPECT_THAT(refused("mixup=1,mixup=1"), HasSubstr("may occur only once in a recipe"));
  EXPECT_THAT(refused("scale,scale"), HasSubstr("may occur only once in a recipe"));
  EXPECT_THAT(refused("normalize,yuv"), HasSubstr("normalize must come after yuv"));
  EXPECT_THAT(refused("scale,normalize,yuv"),
              HasSubstr("yuv must come before normalize, or right after scale"));
  EXPECT_THAT(refused("random-crop=32:pad=4,resize=16"),
              HasSubstr("transform resize=16 must come before random-crop=32:pad=4, which pads"));
  EXPECT_THAT(refused("resize=64,random-resized-crop=32"),
              AllOf(HasSubstr("resize=64 and random-resized-crop=32"), HasSubstr("remove one")));
}

TEST(Recipe, EvaluatesWithoutChance) {
  EXPECT_EQ(Recipe("random-crop=32:pad=4,flip,contrast=0.5,random-mask=0.5,yuv,normalize,mixup=1")
                .for_evaluation()
                .text(),
            "centre-crop=32:pad=4,yuv,normalize");
  EXPECT_EQ(Recipe("random-resized-crop=224,flip").for_evaluation().text(),
            "resize=256,centre-crop=224");
}

TEST(Recipe, DrawsOfATransformDoNotDependOnItsNeighbours) {
  const Shape image{40, 50, 3};
  const Recipe alone("random-crop=32"), behind("flip,random-crop=32"), twice("flip,flip=0.5");
  int mirrored = 0, differing = 0;
  for (std::uint64_t i = 0; i < 400; ++i) {
    const Draw draw(3, 1, i);
    const Geometry a = alone.geometry(image, draw), b = behind.geometry(image, draw);
    EXPECT_EQ(a.out.y, b.out.y);
    EXPECT_EQ(a.out.x, b.mirrored ? 50 - 32 - b.out.x : b.out.x);
    mirrored += b.mirrored ? 1 : 0;
    differing += twice.geometry(image, draw).mirrored ? 1 : 0;  // two coins of their own
  }
  EXPECT_NEAR(mirrored, 200, 50);
  EXPECT_NEAR(differing, 200, 50);
}

TEST(Recipe, CropsReachEveryPlaceAndOnlyThose) {
  const Recipe recipe("random-crop=4x6:pad=1");
  std::set<std::pair<std::int64_t, std::int64_t>> seen;
  for (std::uint64_t i = 0; i < 3000; ++i) {
    const Geometry g = recipe.geometry({5, 7, 3}, Draw(1, 0, i));
    EXPECT_EQ(g.out.height, 4);
    EXPECT_EQ(g.out.width, 6);
    seen.emplace(g.out.y, g.out.x);
  }
  EXPECT_EQ(seen.size(), 4U * 4U);
  EXPECT_EQ(*seen.begin(), (std::pair<std::int64_t, std::int64_t>{-1, -1}));
  EXPECT_EQ(*seen.rbegin(), (std::pair<std::int64_t, std::int64_t>{2, 2}));
}

TEST(Recipe, NamesTheImageThatIsTooSmall) {
  EXPECT_THAT(message_of([] {
                Recipe("random-crop=256").geometry({100, 300, 3}, Draw(0, 0, 0));
              }),
              AllOf(HasSubstr("300 x 100 pixels are too few for random-crop=256"),
                    HasSubstr("resize=256")));
}

TEST(Recipe, KnowsTheSizeOfItsRows) {
  const auto extent = [](const char* text, const Shape& image) {
    const ImageExtent e = Recipe(text).extent(image);
    const Geometry g = Recipe(text).geometry(image, Draw(1, 2, 3));
    EXPECT_EQ(g.out.height, e.height) << text;
    EXPECT_EQ(g.out.width, e.width) << text;
    return std::pair(e.height, e.width);
  };
  EXPECT_EQ(extent("resize=32", {40, 50, 3}), (std::pair<std::int64_t, std::int64_t>{32, 40}));
  EXPECT_EQ(extent("centre-crop=24,resize=30", {40, 50, 3}),
            (std::pair<std::int64_t, std::int64_t>{30, 30}));
  EXPECT_EQ(extent("flip", {40, 50, 3}), (std::pair<std::int64_t, std::int64_t>{40, 50}));
  EXPECT_EQ(extent("resize=60,random-crop=32x33:pad=1", {40, 50, 3}),
            (std::pair<std::int64_t, std::int64_t>{32, 33}));
  EXPECT_FALSE(Recipe("resize=32").sets_extent());
  EXPECT_FALSE(Recipe("flip").sets_extent());
  EXPECT_TRUE(Recipe("resize=32,centre-crop=32").sets_extent());
  EXPECT_TRUE(Recipe("random-resized-crop=8").sets_extent());
}

TEST(Recipe, ResizedCropsAreDrawnOfAllAreasRatiosAndPlaces) {
  const Recipe recipe("random-resized-crop=8:0.25:0.5");
  constexpr int draws = 4000;
  // From -1 to 1, uniform and independent: means of 0 with an sd of 0.009.
  double areas = 0, ratios = 0, rows = 0, columns = 0, shapes = 0, places = 0;
  for (std::uint64_t i = 0; i < draws; ++i) {
    const Geometry g = recipe.geometry({300, 400, 3}, Draw(1, 0, i));
    ASSERT_TRUE(is_inside(g.source, {300, 400, 3}));
    const auto height = static_cast<double>(g.source.height),
               width = static_cast<double>(g.source.width);
    const double area = (height * width / (300 * 400) - 0.375) / 0.125,
                 ratio = std::log(width / height) / std::log(4.0 / 3),
                 row = 2 * static_cast<double>(g.source.y) / (300 - height) - 1,
                 column = 2 * static_cast<double>(g.source.x) / (400 - width) - 1;
    EXPECT_LT(std::abs(area), 1.05);
    EXPECT_LT(std::abs(ratio), 1.05);
    areas += area / draws;
    ratios += ratio / draws;
    rows += row / draws;
    columns += column / draws;
    shapes += area * ratio / draws;
    places += row * column / draws;
  }
  for (const double mean : {areas, ratios, rows, columns, shapes, places})
    EXPECT_NEAR(mean, 0, 0.04);
}

TEST(Recipe, ResizedCropsAreDrawnUpToTenTimes) {
  // Only ratios above 1.25 fit, 10.7 % of the draws: of ten none in 32 % of cases.
  const Recipe recipe("random-resized-crop=8:0.62:0.64");
  int largest = 0;
  for (std::uint64_t i = 0; i < 1000; ++i)
    largest += recipe.geometry({200, 400, 3}, Draw(1, 0, i)).source.width == 267 ? 1 : 0;
  EXPECT_NEAR(largest, 324, 60);
}

TEST(Recipe, ResizedCropsThatDoNotFitAreTheLargestInTheCentre) {
  const auto crop = [](std::int64_t height, std::int64_t width) {
    const Window source =
        Recipe("random-resized-crop=8:1:1").geometry({height, width, 3}, Draw(1, 0, 0)).source;
    return std::vector<std::int64_t>{source.y, source.x, source.height, source.width};
  };
  EXPECT_THAT(crop(30, 400), ElementsAre(0, 180, 30, 40));  // a ratio of 4/3
  EXPECT_THAT(crop(400, 30), ElementsAre(180, 0, 40, 30));  // of 3/4
}

TEST(Recipe, FoldsColoursIntoOneAffineMap) {
  const PixelPlan yuv = Recipe("yuv,scale").pixels(3, {}, {});
  const auto at = [](const PixelPlan& plan, std::size_t o, double r, double g, double b) {
    return plan.m[o][0] * r + plan.m[o][1] * g + plan.m[o][2] * b + plan.shift[o];
  };
  EXPECT_NEAR(at(yuv, 0, 255, 255, 255), 1, 1e-6);  // white
  EXPECT_NEAR(at(yuv, 1, 255, 255, 255), 128.0 / 255, 1e-6);
  EXPECT_NEAR(at(yuv, 2, 255, 0, 0), 127.5 / 255 + 128.0 / 255, 1e-6);  // red
  EXPECT_NEAR(at(yuv, 1, 0, 0, 255), 127.5 / 255 + 128.0 / 255, 1e-6);  // blue
  EXPECT_EQ(Recipe("scale,yuv").pixels(3, {}, {}), yuv) << "in the order of PyTorch";
  EXPECT_EQ(Recipe("flip,scale,yuv,normalize,mixup=1").text(), "flip,yuv,scale,normalize,mixup=1");
  const PixelPlan normal = Recipe().pixels(3, {0.5, 0.4, 0.3}, {0.2, 0.25, 0.5});
  EXPECT_NEAR(at(normal, 1, 9, 255, 9), (1 - 0.4) / 0.25, 1e-6);
  EXPECT_EQ(normal.m[1][0], 0);
  // PyTorch's ToTensor and Normalize.
  const PixelPlan scaled = Recipe("scale,normalize").pixels(3, {0.5, 0.4, 0.3}, {0.2, 0.25, 0.5});
  for (std::size_t c = 0; c < 3; ++c) {
    EXPECT_FLOAT_EQ(scaled.m[c][c], normal.m[c][c]);
    EXPECT_FLOAT_EQ(scaled.shift[c], normal.shift[c]);
  }
  const PixelPlan masked = Recipe("random-mask=0.25:dilate,mixup=1").pixels(1, {0.5}, {0.5});
  EXPECT_EQ(masked.mask_threshold, 16384U);
  EXPECT_TRUE(masked.dilate);
  EXPECT_TRUE(masked.mix);
  EXPECT_THAT(message_of<UsageError>([] { Recipe("yuv").pixels(1, {0}, {1}); }),
              HasSubstr("yuv needs 3 channels"));
  EXPECT_THAT(message_of<UsageError>([] { Recipe().pixels(3, {0}, {1}); }),
              HasSubstr("3 values in --mean and in --std"));
}

// A plan has room for 3 channels, and would be of infinities or NaN.
TEST(Recipe, RefusesPixelsThatNoPlanHas) {
  const auto refused = [](int channels, double mean, double std, const std::string& words) {
    const std::vector<double> means(3, mean), stds(3, std);
    EXPECT_EQ(message_of<UsageError>([&] { Recipe().pixels(channels, means, stds); }), words);
  };
  for (const int channels : {-1, 0, 9})
    refused(channels, 0, 1, fmt::format("pixels of {} channels; 1 to 3 are possible", channels));
  constexpr double infinity = std::numeric_limits<double>::infinity();
  for (const double std : {0.0, -1.0, infinity, std::nan("")})
    refused(3, 0, std, fmt::format("std {} of channel 0: must be finite and above 0", std));
  for (const double mean : {infinity, std::nan("")})
    refused(3, mean, 1, fmt::format("mean {} of channel 0: must be a finite number", mean));
  for (const auto& [mean, std] : {std::pair{0.0, 1e-60}, {0.0, 1e-41}, {1e300, 1.0}, {1e30, 1e-30}})
    refused(3, mean, std,
            fmt::format("mean {} and std {} of channel 0: pixels would pass the range of f32", mean,
                        std));
}

TEST(Recipe, JittersAroundTheMiddle) {
  const Recipe recipe("contrast=0.5,brightness=0.5");
  double gain = 0;
  for (std::uint64_t i = 0; i < 2000; ++i) {
    RowPlan contrast, both;
    Recipe("contrast=0.5").row(contrast, Draw(1, 0, i), {});
    EXPECT_NEAR(contrast.gain * 127.5F + contrast.offset, 127.5, 1e-4);  // mid-gray stays
    recipe.row(both, Draw(1, 0, i), {});
    EXPECT_NEAR(both.offset * contrast.gain, contrast.offset * both.gain, 1e-3);  // scaled alike
    gain += contrast.gain;
  }
  EXPECT_NEAR(gain / 2000, 1, 0.03);
}

TEST(Recipe, MixingWeightsAreOfBeta) {
  for (const double alpha : {0.2, 1.0, 1.1, 2.0, 3.0, 4.0}) {
    const Recipe recipe(fmt::format("mixup={}", alpha));
    double sum = 0, squares = 0;
    std::map<float, int> times;
    constexpr int count = 4000;
    for (std::uint64_t i = 0; i < count; ++i) {
      RowPlan plan;
      recipe.row(plan, Draw(1, 0, i), {});
      sum += plan.weight;
      squares += static_cast<double>(plan.weight) * plan.weight;
      ++times[plan.weight];
    }
    const double mean = sum / count, variance = squares / count - mean * mean;
    EXPECT_NEAR(mean, 0.5, 0.03);
    EXPECT_NEAR(variance, 1 / (4 * (2 * alpha + 1)), 0.005) << alpha;  // 4 standard deviations
    if (alpha < 1) continue;  // f32 rounds many weights to 1
    for (const auto& [weight, found] : times)
      EXPECT_LE(found, count / 100) << weight << " of " << alpha;
  }
}

// In either order: a row has a box of its neighbour's, and the weight of what is left, or no box.
TEST(Recipe, MixesARowInOneOfTwoWays) {
  for (const char* text : {"mixup=1,cutmix=1", "cutmix=1,mixup=1"}) {
    const Recipe recipe(text);
    int boxes = 0;
    for (std::uint64_t i = 0; i < 2000; ++i) {
      RowPlan plan;
      recipe.row(plan, Draw(1, 0, i), {32, 32});
      const int box = (plan.bottom - plan.top) * (plan.right - plan.left);
      if (box == 0) continue;
      ++boxes;
      EXPECT_FLOAT_EQ(plan.weight, 1 - static_cast<float>(box) / 1024) << text;
    }
    EXPECT_NEAR(boxes, 1000, 100) << text;  // 4 standard deviations
  }
}

// Also at an ALPHA whose draws often leave a row as it is: the other does not get more rows.
TEST(Recipe, MixesByHalvesWhateverItDraws) {
  for (const char* text : {"cutmix=0.2,mixup=1", "mixup=1,cutmix=0.2"}) {
    const Recipe recipe(text);
    constexpr int count = 20000;
    int cut = 0, blended = 0;
    for (std::uint64_t i = 0; i < count; ++i) {
      RowPlan plan;
      recipe.row(plan, Draw(1, 0, i), {32, 32});
      cut += plan.is_cut() ? 1 : 0;
      blended += !plan.is_cut() && plan.weight < 1 ? 1 : 0;
    }
    EXPECT_NEAR(cut, 0.41 * count, 0.015 * count) << text;  // 0.18 have an empty box
    EXPECT_NEAR(blended, 0.5 * count, 0.015 * count) << text;
  }
}

// The step draws a row's pixels from these numbers.
TEST(Recipe, MasksOtherPixelsInEachEpoch) {
  const Recipe recipe("random-mask=0.5");
  std::set<std::array<std::uint32_t, 4>> rows;
  for (const std::uint64_t seed : {std::uint64_t{1}, std::uint64_t{1} << 32})
    for (const std::uint64_t epoch : {0, 1})
      for (const std::uint64_t sample : {0, 1}) {
        RowPlan plan;
        recipe.row(plan, Draw(seed, epoch, sample), {});
        rows.insert({plan.key[0], plan.key[1], plan.counter[0], plan.counter[1]});
      }
  EXPECT_EQ(rows.size(), 8U);
}

// A transform of a user's own, entered in one place.
class Solarize final : public Transform {
 public:
  explicit Solarize(std::int64_t threshold) : threshold_(threshold) {}
  TransformStage stage() const override { return TransformStage::bytes; }
  std::string name() const override { return "solarize"; }
  std::string text() const override { return fmt::format("solarize={}", threshold_); }
  void apply(const RowImage& image, const Draw&) const override {
    for (std::uint8_t& byte : image.pixels)
      if (byte >= threshold_) byte = static_cast<std::uint8_t>(255 - byte);
  }

 private:
  std::int64_t threshold_;
};
const TransformKind solarize("solarize", "solarize=THRESHOLD", "inverts bytes from it on",
                             [](const TransformArguments& a) {
                               return TransformPtr(std::make_shared<Solarize>(a.whole(0, 0, 255)));
                             });

class WholeBlocks final : public Transform {
 public:
  TransformStage stage() const override { return TransformStage::geometry; }
  std::string name() const override { return "whole-blocks"; }
  std::string text() const override { return name(); }
  ImageExtent extent(const ImageExtent& before) const override {
    return {(before.height + 4095) / 4096 * 4096, (before.width + 4095) / 4096 * 4096};
  }
};
const TransformKind whole_blocks("whole-blocks", "whole-blocks", "to multiples of 4096",
                                 [](const TransformArguments&) {
                                   return TransformPtr(std::make_shared<WholeBlocks>());
                                 });

TEST(Recipe, KnowsThatATransformOfTheUsersOwnMakesExtentsDiffer) {
  EXPECT_FALSE(Recipe("whole-blocks").sets_extent());
  EXPECT_TRUE(Recipe("whole-blocks,centre-crop=32").sets_extent());
}

TEST(Recipe, TakesATransformOfTheUsersOwnAndTimesItByName) {
  const Recipe recipe("flip,solarize=100,scale");
  EXPECT_EQ(recipe.worker_names(), std::vector<std::string>{"solarize"});
  EXPECT_FALSE(recipe.is_gathered());
  std::vector<std::uint8_t> pixels{0, 99, 100, 255};
  std::uint64_t ns = 0;
  recipe.apply({pixels, 1, 4, 1}, Draw(0, 0, 0), std::span(&ns, 1));
  EXPECT_EQ(pixels, (std::vector<std::uint8_t>{0, 99, 155, 0}));
  EXPECT_GT(ns, 0U);
}

const TransformKind two_kinds[] = {{"two-of-one-name", "two-of-one-name=A", "",
                                    [](const TransformArguments&) { return TransformPtr(); }},
                                   {"two-of-one-name", "two-of-one-name=B", "",
                                    [](const TransformArguments&) { return TransformPtr(); }}};
const TransformKind null_kind("yields-null", "yields-null", "",
                              [](const TransformArguments&) { return TransformPtr(); });
const TransformKind throwing_kind("throws", "throws", "",
                                  [](const TransformArguments&) -> TransformPtr { throw 42; });

TEST(Recipe, NamesTheTransformWhoseOwnCodeThrows) {
  EXPECT_THAT(message_of<Error>([] { Recipe("flip,throws"); }),
              HasSubstr("transform 'throws': its make() threw: an exception of type int"));
}

TEST(Recipe, RefusesTwoTransformsOfOneNameAndNullPointers) {
  EXPECT_THAT(refused("flip,two-of-one-name=1"),
              HasSubstr("two transforms are called 'two-of-one-name': two-of-one-name=A and "
                        "two-of-one-name=B; give your own "
                        "another name"));
  EXPECT_THAT(refused("flip,yields-null"),
              HasSubstr("transform 2 of 2 of a recipe is a null pointer"));
  EXPECT_THAT(message_of<UsageError>([] { Recipe(std::vector<TransformPtr>{nullptr}); }),
              HasSubstr("transform 1 of 1 of a recipe is a null pointer"));
}

// Row by row and pixel by pixel, from the definition of Geometry.
std::vector<std::uint8_t> expected_row(const std::vector<std::uint8_t>& image, const Shape& shape,
                                       const Geometry& g) {
  std::vector<std::uint8_t> row;
  for (std::int64_t y = 0; y < g.out.height; ++y)
    for (std::int64_t x = 0; x < g.out.width; ++x)
      for (std::int64_t c = 0; c < shape[2]; ++c) {
        const std::int64_t from_y = g.out.y + y,
                           from_x = g.out.x + (g.mirrored ? g.out.width - 1 - x : x);
        const bool inside = from_y >= 0 && from_x >= 0 && from_y < g.height && from_x < g.width;
        row.push_back(
            inside ? image[idx(((g.source.y + from_y) * shape[1] + g.source.x + from_x) * shape[2] +
                               c)]
                   : std::uint8_t{0});
      }
  return row;
}

TEST(Develop, PutsEveryPixelInItsPlace) {
  const Shape shape{9, 11, 3};
  const auto image = some_pixels(shape, 5);
  const auto png = encode_png(shape, image);
  Developer developer;
  for (const char* text : {"", "flip=1", "random-crop=4x6", "random-crop=7x9:pad=3,flip",
                           "random-crop=20:pad=12", "flip=1,random-crop=8x5:pad=2"}) {
    const Recipe recipe(text);
    for (std::uint64_t i = 0; i < 50; ++i) {
      const Geometry geometry = recipe.geometry(shape, Draw(1, 0, i));
      const auto expected = expected_row(image, shape, geometry);
      for (const Sample& sample :
           {Sample{image, Encoding::pixels, shape}, Sample{png, Encoding::png, {}}}) {
        std::vector<std::uint8_t> row(expected.size(), 77);
        develop(sample, "a.png", shape, geometry, 3, developer, row);
        ASSERT_EQ(row, expected) << text << " of sample " << i;
      }
    }
  }
}

std::vector<std::uint8_t> row_of(const Recipe& recipe, std::span<const std::uint8_t> pixels,
                                 const Shape& shape, const Draw& draw) {
  const Geometry geometry = recipe.geometry(shape, draw);
  Developer developer;
  std::vector<std::uint8_t> row(idx(geometry.out.height * geometry.out.width * shape[2]), 77);
  develop({pixels, Encoding::pixels, shape}, "", shape, geometry, shape[2], developer, row);
  return row;
}

// What a crop cut away does not come back: torchvision pads its result.
TEST(Develop, PadsWhatAnEarlierCropLeft) {
  const Shape shape{16, 16, 3};
  const auto image = some_pixels(shape, 5);
  for (const auto& [first, second] :
       {std::pair("centre-crop=8", "random-crop=8:pad=4"),
        std::pair("centre-crop=8", "centre-crop=12:pad=2"),
        std::pair("centre-crop=8,flip=1", "random-crop=9x7:pad=4"),
        std::pair("centre-crop=8x6,random-crop=9:pad=5", "centre-crop=12:pad=3"),
        std::pair("flip=1,centre-crop=18x4:pad=20", "random-crop=20:pad=9"),
        std::pair("resize=20x24,centre-crop=9", "random-crop=10:pad=4")}) {
    const Recipe before(first), after(second), both(fmt::format("{},{}", first, second));
    EXPECT_FALSE(both.is_gathered());
    const ImageExtent cut = before.extent(shape);
    for (std::uint64_t i = 0; i < 50; ++i) {
      const Draw draw(1, 0, i);
      const auto row = row_of(before, image, shape, draw);
      ASSERT_EQ(row_of(both, image, shape, draw),
                row_of(after, row, {cut.height, cut.width, 3}, draw))
          << both.text() << " of sample " << i;
    }
  }
  EXPECT_EQ(Recipe("centre-crop=8,random-crop=8:pad=4").not_gathered(), "random-crop=8:pad=4");
  EXPECT_TRUE(Recipe("flip,random-crop=8:pad=4,centre-crop=6").is_gathered());
}

}  // namespace
}  // namespace warpstep::data
