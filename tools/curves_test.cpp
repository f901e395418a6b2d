#include "tools/curves.h"

#include <cairo.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>

#include "engine/core/error.h"
#include "engine/core/file.h"

namespace warpstep {
namespace {

namespace fs = std::filesystem;

class CurvesTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "warpstep-curves-XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    directory_ = name;
  }
  void TearDown() override { fs::remove_all(directory_); }

  struct Counts {
    int width = 0, height = 0;
    int blue = 0, red = 0;  // pixels clearly of the colour of training, of validation
    int last_blue = 0;      // the rightmost of training within the axes of the left panel
  };

  Counts draw(const CurveData& data) const {
    const fs::path png = directory_ / "curves.png";
    draw_curves(data, png);
    const std::unique_ptr<cairo_surface_t, decltype(&cairo_surface_destroy)> picture(
        cairo_image_surface_create_from_png(png.c_str()), &cairo_surface_destroy);
    EXPECT_EQ(cairo_surface_status(picture.get()), CAIRO_STATUS_SUCCESS);
    Counts counts = {cairo_image_surface_get_width(picture.get()),
                     cairo_image_surface_get_height(picture.get())};
    const unsigned char* row = cairo_image_surface_get_data(picture.get());
    for (int y = 0; y < counts.height; ++y, row += cairo_image_surface_get_stride(picture.get()))
      for (int x = 0; x < counts.width; ++x) {
        const int blue = row[4 * x], red = row[4 * x + 2];
        counts.blue += blue - red > 100;
        if (blue - red > 100 && y > 210 && x < 1200)
          counts.last_blue = std::max(counts.last_blue, x);
        counts.red += red - blue > 100;
      }
    return counts;
  }

  fs::path directory_;
};

CurveData sample() {
  CurveData data = {.model = "cifar10cnn",
                    .data = "data-small",
                    .step_loss = {},
                    .train_loss = {},
                    .train_accuracy = {},
                    .validation_loss = {{0, 2.303}},
                    .validation_accuracy = {{0, 0.101}}};
  const int steps = 640, epochs = 8;
  for (int step = 1; step <= steps; ++step) {
    const double epoch = double{epochs} * step / steps;
    const double noise = 0.12 * std::sin(step * 12.9898) * std::sin(step * 78.233);
    data.step_loss.push_back({epoch, 0.7 + 1.6 * std::exp(-epoch / 2) + noise});
  }
  for (int epoch = 1; epoch <= epochs; ++epoch) {
    const double decay = std::exp(-epoch / 2.0);
    data.train_loss.push_back({1.0 * epoch, 0.7 + 1.6 * decay});
    data.validation_loss.push_back({1.0 * epoch, 0.85 + 1.45 * decay + 0.004 * epoch * epoch});
    data.train_accuracy.push_back({1.0 * epoch, 0.76 - 0.6 * decay});
    data.validation_accuracy.push_back({1.0 * epoch, 0.68 - 0.5 * decay});
  }
  return data;
}

// In another process: fontconfig reads its files once.
TEST_F(CurvesTest, AreDrawnWithoutAWordWhereFontconfigHasNoFiles) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";  // GTEST_FLAG_SET is new in 1.12
  const fs::path png = directory_ / "curves.png";
  EXPECT_EXIT(
      {
        ::setenv("FONTCONFIG_SYSROOT", "/nowhere", 1);
        draw_curves(sample(), png);
        std::_Exit(0);  // LeakSanitizer lists what it suppresses at a normal exit
      },
      testing::ExitedWithCode(0), testing::Eq(""));
}

TEST_F(CurvesTest, DrawsTrainingAndValidationOfBothPanels) {
  const Counts all = draw(sample());
  EXPECT_EQ(all.width, 2400);
  EXPECT_EQ(all.height, 1000);
  CurveData part = sample();
  part.validation_accuracy.clear();
  const Counts without_one = draw(part);
  EXPECT_LT(without_one.red, all.red - 1000);
  part.validation_loss.clear();
  const Counts without_both = draw(part);
  EXPECT_LT(without_both.red, without_one.red - 1000);
  EXPECT_LT(without_both.red, 100);  // text has coloured fringes at most
  part.train_loss.clear();
  EXPECT_LT(draw(part).blue, without_both.blue - 1000);
}

TEST_F(CurvesTest, EqualDataGiveEqualBytes) {
  draw_curves(sample(), directory_ / "a.png");
  draw_curves(sample(), directory_ / "b.png");
  EXPECT_EQ(read_file(directory_ / "a.png"), read_file(directory_ / "b.png"));
}

TEST_F(CurvesTest, OnePointIsSeen) {
  CurveData data;
  data.validation_loss = {{0, 2.3}};
  EXPECT_GT(draw(data).red, 100);
  data = {};
  data.step_loss = {{0.1, 2.3}};
  EXPECT_GT(draw(data).blue, 20);
}

TEST_F(CurvesTest, APartOfAnEpochTakesTheWholeWidth) {
  for (const double epochs : {0.02, 0.7, 3.0}) {
    CurveData data = sample();
    for (auto* points : {&data.step_loss, &data.train_loss, &data.train_accuracy,
                         &data.validation_loss, &data.validation_accuracy})
      for (CurvePoint& point : *points) point.epoch *= epochs / 8;
    EXPECT_GT(draw(data).last_blue, 1140) << epochs;  // of an axis that ends at 1160
  }
}

// Without leaving out what cannot be seen this takes hours.
TEST_F(CurvesTest, AMillionStepsAreDrawn) {
  CurveData data = sample();
  const Counts few = draw(data);
  data.step_loss.clear();
  constexpr int steps = 1'000'000;
  for (int step = 1; step <= steps; ++step)
    data.step_loss.push_back({8.0 * step / steps, 0.7 + 1.6 * std::exp(-4.0 * step / steps) +
                                                      0.1 * std::sin(step * 12.9898)});
  EXPECT_GT(draw(data).blue, few.blue);
}

TEST_F(CurvesTest, OfManyPointsThoseThatAreSeenStay) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  std::vector<CurvePoint> points;
  for (int i = 0; i <= 1000; ++i)
    points.push_back({i / 1000.0, (i * 37) % 101 + 1000.0 * (i == 555)});
  points[205].value = -7;
  points[300].value = nan;  // beside others
  for (int i = 700; i < 800; ++i) points[static_cast<std::size_t>(i)].value = nan;
  const std::vector<CurvePoint> seen = visible_points(points, 1, 100);
  EXPECT_LE(seen.size(), 400U);
  EXPECT_TRUE(std::ranges::is_sorted(seen, {}, &CurvePoint::epoch));
  EXPECT_THAT(seen, testing::Contains(testing::Field(&CurvePoint::value, testing::Gt(1000))));
  EXPECT_THAT(seen, testing::Contains(testing::Field(&CurvePoint::value, testing::IsNan())));
  const auto low = std::ranges::find(seen, -7.0, &CurvePoint::value);
  ASSERT_NE(low, seen.end());
  EXPECT_EQ(low->epoch, 0.205);
  EXPECT_EQ(seen.front().epoch, 0);
  EXPECT_EQ(seen.back().epoch, 1);
  EXPECT_EQ(visible_points(points, 1, 1000).size(), points.size());
}

TEST_F(CurvesTest, NoDataGiveEmptyAxes) {
  EXPECT_EQ(draw({}).blue, 0);
}

TEST_F(CurvesTest, ValuesThatAreNotFiniteLeaveGapsAndTheRestStands) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double infinity = std::numeric_limits<double>::infinity();
  CurveData data = sample();
  const Counts whole = draw(data);
  data.train_loss[3].value = nan;
  data.step_loss[100].value = infinity;
  data.step_loss[101].epoch = -infinity;
  data.train_accuracy[2].value = -infinity;
  const Counts with_gaps = draw(data);
  EXPECT_LT(with_gaps.blue, whole.blue - 100);
  EXPECT_GT(with_gaps.blue, whole.blue / 2);
  EXPECT_GT(with_gaps.red, whole.red + 100);  // the note
  for (auto* points : {&data.train_loss, &data.validation_loss, &data.step_loss})
    for (CurvePoint& point : *points) point.value = nan;
  EXPECT_EQ(draw(data).width, 2400);
}

TEST_F(CurvesTest, ConstantHugeAndNegativeValuesHaveAxes) {
  CurveData data;
  for (const double value : {0.0, 1.0, -3.0, 1e300, 1e-300}) {
    data.train_loss = {{1, value}, {2, value}};
    EXPECT_GT(draw(data).blue, 500) << value;
  }
  data.train_loss = {{1e300, -1e308}, {2e300, 1e308}};
  EXPECT_EQ(draw(data).width, 2400);
}

TEST_F(CurvesTest, NamesTheFileThatCannotBeWritten) {
  const fs::path png = directory_ / "none" / "curves.png";
  EXPECT_THAT([&] { draw_curves({}, png); },
              testing::ThrowsMessage<DataError>(testing::HasSubstr(png.string())));
}

}  // namespace
}  // namespace warpstep
