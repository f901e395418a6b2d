#include "data/transforms/augment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <sstream>

#include "data/transforms/recipe.h"
#include "tests/source_file.h"

namespace warpstep::data {
namespace {

using Bytes = std::vector<std::uint8_t>;

// The image of tests/golden/make_transforms.py.
Bytes golden_image(std::int64_t bytes) {
  Bytes image;
  for (std::int64_t i = 0; i < bytes; ++i)
    image.push_back(
        static_cast<std::uint8_t>(40 + (i * i * 7 + i * 13 + i % 3 * 50 + i % 7) % 180));
  return image;
}

Bytes from_hex(const std::string& text) {
  Bytes bytes;
  for (std::size_t i = 0; i + 1 < text.size(); i += 2)
    bytes.push_back(static_cast<std::uint8_t>(std::stoi(text.substr(i, 2), nullptr, 16)));
  return bytes;
}

// Bytes that are off by one, and by more: pixels moved from another place. The conversions to hue
// and back round in another order than PyTorch's vector code, which moves one byte of the three
// images.
struct Misses {
  std::ptrdiff_t by_one = 0, by_more = 0;
};
Misses compare(const Bytes& ours, const Bytes& theirs) {
  Misses misses;
  for (std::size_t i = 0; i < ours.size(); ++i) {
    const int off = std::abs(int{ours[i]} - int{theirs[i]});
    misses.by_one += off == 1 ? 1 : 0;
    misses.by_more += off > 1 ? 1 : 0;
  }
  return misses;
}

TEST(Augment, AgreesWithTorchvision) {
  std::ifstream file(testing_support::source_file("tests/golden/transforms.txt"));
  std::map<std::string, Operation> known;
  for (int i = 0; i < operations; ++i)
    known[std::string(name(static_cast<Operation>(i)))] = static_cast<Operation>(i);
  int images = 0;
  for (std::string line; std::getline(file, line); ++images) {
    std::istringstream words(line);
    std::string operation, hex;
    double magnitude = 0;
    std::int64_t height = 0, width = 0, channels = 0;
    words >> operation >> magnitude >> height >> width >> channels >> hex;
    Bytes ours = golden_image(height * width * channels);
    const RowImage image{ours, height, width, channels};
    if (operation == "hue")
      shift_hue(magnitude, image);
    else
      operate(known.at(operation), magnitude, image);
    const Bytes theirs = from_hex(hex);
    ASSERT_EQ(ours.size(), theirs.size());
    const Misses misses = compare(ours, theirs);
    EXPECT_EQ(misses.by_more, 0) << line.substr(0, 40);
    EXPECT_LE(misses.by_one, operation == "hue" ? 1 : 0) << line.substr(0, 40);
    if (channels == 3) {
      EXPECT_NE(ours, golden_image(std::ssize(ours))) << line.substr(0, 40);
    }
  }
  EXPECT_EQ(images, 54);
}

// torchvision's table for a row of 224 x 112 pixels.
TEST(Augment, HasTheMagnitudesOfRandAugment) {
  const auto at = [](Operation operation, int bin) {
    return rand_augment_magnitude(operation, bin, {112, 224});
  };
  EXPECT_DOUBLE_EQ(at(Operation::shear_x, 9), 0.09);
  EXPECT_EQ(at(Operation::translate_x, 9), 30);
  EXPECT_EQ(at(Operation::translate_y, 30), 50);
  EXPECT_DOUBLE_EQ(at(Operation::rotate, 9), 9);
  EXPECT_DOUBLE_EQ(at(Operation::sharpness, 30), 0.9);
  EXPECT_EQ(at(Operation::posterize, 9), 7);
  EXPECT_EQ(at(Operation::posterize, 30), 4);
  EXPECT_DOUBLE_EQ(at(Operation::solarize, 9), 178.5);
  EXPECT_EQ(at(Operation::equalize, 9), 0);
}

Bytes augmented(const char* recipe, const Draw& draw, std::int64_t channels = 3) {
  Bytes bytes = golden_image(11 * 12 * channels);
  std::uint64_t ns = 0;
  Recipe(recipe).apply({bytes, 11, 12, channels}, draw, std::span(&ns, 1));
  return bytes;
}

TEST(Augment, DependsOnSeedEpochAndSampleAlone) {
  for (const char* recipe : {"randaugment", "randaugment=3:15", "colour-jitter=0.4:0.4:0.4:0.1"}) {
    std::map<Bytes, int> seen;
    for (std::uint64_t i = 0; i < 40; ++i) {
      EXPECT_EQ(augmented(recipe, Draw(1, 0, i)), augmented(recipe, Draw(1, 0, i)));
      ++seen[augmented(recipe, Draw(1, 0, i))];
      ++seen[augmented(recipe, Draw(1, 1, i))];
      ++seen[augmented(recipe, Draw(2, 0, i))];
    }
    EXPECT_GT(seen.size(), 60U)
        << recipe;  // of 120; operations come again, and one is the identity
  }
}

TEST(Augment, IsLeftOutOfEvaluationAndKeptInText) {
  const Recipe recipe("flip,randaugment,colour-jitter=0.4,scale,mixup=1,cutmix=0.5");
  EXPECT_EQ(recipe.text(), "flip,randaugment=2:9,colour-jitter=0.4:0:0:0,scale,mixup=1,cutmix=0.5");
  EXPECT_EQ(recipe.for_evaluation().text(), "scale");
  EXPECT_FALSE(recipe.is_gathered());
  EXPECT_EQ(augmented("colour-jitter=0:0:0:0", Draw(1, 0, 7)), golden_image(11 * 12 * 3));
}

// The box has the share 1 - weight of the row; beside mixup each takes half of the rows.
TEST(Augment, CutmixWeighsByTheAreaOfItsBox) {
  const ImageExtent row{30, 50};
  int boxes = 0, mixed = 0;
  double sum = 0;
  for (std::uint64_t i = 0; i < 4000; ++i) {
    RowPlan plan;
    Recipe("cutmix=1").row(plan, Draw(1, 0, i), row);
    const int area = (plan.bottom - plan.top) * (plan.right - plan.left);
    EXPECT_GE(plan.top, 0);
    EXPECT_GE(plan.left, 0);
    EXPECT_LE(plan.bottom, row.height);
    EXPECT_LE(plan.right, row.width);
    EXPECT_FLOAT_EQ(plan.weight, 1 - static_cast<float>(area) / 1500);
    sum += static_cast<double>(plan.weight);
    RowPlan both;
    Recipe("mixup=1,cutmix=1").row(both, Draw(1, 0, i), row);
    (both.is_cut() ? boxes : mixed) += 1;
  }
  // torchvision's v2.CutMix, 200,000 draws for this size; 0.5 but for what the edge cuts off.
  EXPECT_NEAR(sum / 4000, 0.697, 0.02);
  EXPECT_NEAR(boxes, 2000, 150);
}

}  // namespace
}  // namespace warpstep::data
