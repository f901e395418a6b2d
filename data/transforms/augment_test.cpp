#include "data/transforms/augment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <map>
#include <numeric>
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
  for (int bin = 0; bin <= 30; ++bin) EXPECT_EQ(at(Operation::solarize, bin), 8.5 * (30 - bin));
  EXPECT_EQ(at(Operation::equalize, 9), 0);
}

// A threshold that is a whole number is the first byte that is inverted, as torchvision's.
TEST(Augment, SolarizesFromTheThresholdOn) {
  for (int bin = 0; bin <= 30; bin += 2) {
    const int threshold = (510 - 17 * bin) / 2;
    Bytes ramp(256);
    std::iota(ramp.begin(), ramp.end(), std::uint8_t{0});
    operate(Operation::solarize, rand_augment_magnitude(Operation::solarize, bin, {16, 16}),
            {ramp, 16, 16, 1});
    for (int v = 0; v < 256; ++v)
      EXPECT_EQ(int{ramp[static_cast<std::size_t>(v)]}, v < threshold ? v : 255 - v) << bin;
  }
}

Bytes augmented(const char* recipe, const Draw& draw, const ImageExtent& size = {11, 12}) {
  Bytes bytes = golden_image(size.height * size.width * 3);
  std::uint64_t ns = 0;
  Recipe(recipe).apply({bytes, size.height, size.width, 3}, draw, std::span(&ns, 1));
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

Bytes operated(Operation operation, double magnitude, const ImageExtent& size) {
  Bytes bytes = golden_image(size.height * size.width * 3);
  operate(operation, magnitude, {bytes, size.height, size.width, 3});
  return bytes;
}

int largest_distance(const Bytes& a, const Bytes& b) {
  int most = 0;
  for (std::size_t i = 0; i < a.size(); ++i) most = std::max(most, std::abs(int{a[i]} - int{b[i]}));
  return most;
}

// Its parameters in their order, the last one the hue's. The magnitude of a draw is that of a grid
// whose image is the nearest: between two of them a byte moves by less than 1.
TEST(Augment, JittersEachAmountBothWays) {
  constexpr int steps = 250, draws = 400;
  constexpr ImageExtent size{2, 2};
  struct Jitter {
    const char* recipe;
    double amount;
    Operation operation;  // identity: the hue
  };
  for (const auto& [recipe, amount, operation] :
       {Jitter{"colour-jitter=0.5", 0.5, Operation::brightness},
        {"colour-jitter=0:0.5", 0.5, Operation::contrast},
        {"colour-jitter=0:0:0.5", 0.5, Operation::saturation},
        {"colour-jitter=0:0:0:0.2", 0.2, Operation::identity}}) {
    std::vector<Bytes> grid;
    for (int i = -steps; i <= steps; ++i) {
      const double m = amount * i / steps;
      grid.push_back(operated(operation, m, size));
      if (operation == Operation::identity) shift_hue(m, {grid.back(), 2, 2, 3});
    }
    double mean = 0, least = 1, most = -1;
    for (std::uint64_t draw = 0; draw < draws; ++draw) {
      const Bytes made = augmented(recipe, Draw(1, 0, draw), size);
      std::vector<int> distances;
      for (const Bytes& one : grid) distances.push_back(largest_distance(one, made));
      const auto nearest = std::ranges::min_element(distances);
      ASSERT_LE(*nearest, 1) << recipe << " draw " << draw;
      const double share = static_cast<double>(nearest - distances.begin() - steps) / steps;
      mean += share / draws;
      least = std::min(least, share);
      most = std::max(most, share);
    }
    EXPECT_NEAR(mean, 0, 0.12) << recipe;  // four deviations of the mean of 400
    EXPECT_LT(least, -0.95) << recipe;
    EXPECT_GT(most, 0.95) << recipe;
  }
}

// Factors are not below 0: an amount of 3 gives 0 to 4.
TEST(Augment, JittersWithoutNegativeFactors) {
  int black = 0, brighter = 0;
  for (std::uint64_t i = 0; i < 400; ++i) {
    const Bytes made = augmented("colour-jitter=3", Draw(1, 0, i));
    black += std::ranges::max(made) == 0 ? 1 : 0;
    brighter += made[0] > golden_image(1)[0] ? 1 : 0;
  }
  EXPECT_LT(black, 20);
  EXPECT_NEAR(brighter, 300, 40);
}

// Every operation with the sign that it may have, and nothing else.
TEST(Augment, DrawsEveryOperationOfRandAugmentWithBothSigns) {
  std::map<Bytes, std::string> known;
  std::map<std::string, int> seen;
  constexpr ImageExtent size{24, 24};  // of fewer pixels equalize keeps all
  for (int i = 0; i < operations; ++i) {
    const auto operation = static_cast<Operation>(i);
    const double magnitude = rand_augment_magnitude(operation, 9, size);
    for (const int sign : {1, -1}) {
      if (sign < 0 && !has_sign(operation)) continue;
      const std::string what = fmt::format("{} {}", name(operation), sign);
      EXPECT_TRUE(known.emplace(operated(operation, sign * magnitude, size), what).second) << what;
      seen[what] = 0;
    }
  }
  EXPECT_EQ(known.size(), 14U + 9U);
  for (std::uint64_t i = 0; i < 1000; ++i) {
    const auto found = known.find(augmented("randaugment=1:9", Draw(1, 0, i), size));
    ASSERT_NE(found, known.end()) << "draw " << i;
    ++seen[found->second];
  }
  // One in 28 draws of an operation with a sign, one in 14 of another.
  for (const auto& [what, count] : seen) EXPECT_GE(count, 15) << what;
}

TEST(Augment, IsLeftOutOfEvaluationAndKeptInText) {
  const Recipe recipe("flip,randaugment,colour-jitter=0.4,scale,mixup=1,cutmix=0.5");
  EXPECT_EQ(recipe.text(), "flip,randaugment=2:9,colour-jitter=0.4:0:0:0,scale,mixup=1,cutmix=0.5");
  EXPECT_EQ(recipe.for_evaluation().text(), "scale");
  EXPECT_FALSE(recipe.is_gathered());
  EXPECT_EQ(augmented("colour-jitter=0:0:0:0", Draw(1, 0, 7)), golden_image(11 * 12 * 3));
}

// The box has the share 1 - weight of the row; with mixup each takes half of the rows.
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
