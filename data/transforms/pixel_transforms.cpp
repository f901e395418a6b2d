// The built-in transforms of pixel values: jitter, mask, colours and mixing. They change no bytes
// here, but the affine map and the row plans of engine/core/pixels.h.
#include <algorithm>
#include <cmath>
#include <string>
#include <tuple>
#include <utility>

#include "data/transforms/transform.h"
#include "engine/core/error.h"

namespace warpstep::data {
namespace {

// Brightness scales bytes, contrast scales their distance from the middle, 127.5, both by a factor
// uniform in [1 - amount, 1 + amount]. Results are not clamped to 0 and 255.
class Jitter final : public Transform {
 public:
  Jitter(bool contrast, double amount) : contrast_(contrast), amount_(static_cast<float>(amount)) {}
  TransformStage stage() const override { return TransformStage::jitter; }
  std::string name() const override { return contrast_ ? "contrast" : "brightness"; }
  std::string text() const override { return fmt::format("{}={}", name(), amount_); }
  void row(RowPlan& plan, const Draw& draw) const override {
    const float factor = 1 + amount_ * (2 * draw.uniform(0) - 1);
    plan.gain *= factor;
    plan.offset = plan.offset * factor + (contrast_ ? 127.5F * (1 - factor) : 0);
  }
  std::vector<TransformPtr> for_evaluation(const TransformPtr&) const override { return {}; }

 private:
  bool contrast_;
  float amount_;
};

class RandomMask final : public Transform {
 public:
  RandomMask(double chance, bool dilate) : chance_(chance), dilate_(dilate) {}
  TransformStage stage() const override { return TransformStage::mask; }
  std::string name() const override { return "random-mask"; }
  std::string text() const override {
    return fmt::format("random-mask={}{}", chance_, dilate_ ? ":dilate" : "");
  }
  void row(RowPlan& plan, const Draw& draw) const override {
    plan.key[0] = static_cast<std::uint32_t>(draw.seed());
    plan.key[1] = static_cast<std::uint32_t>(draw.seed() >> 32);
    plan.counter[0] = draw.epoch();
    plan.counter[1] = static_cast<std::uint32_t>(draw.sample());
  }
  void pixels(PixelPlan& plan) const override {
    plan.mask_threshold = static_cast<std::uint32_t>(std::lround(chance_ * 65536));
    plan.dilate = dilate_;
  }
  std::vector<TransformPtr> for_evaluation(const TransformPtr&) const override { return {}; }

 private:
  double chance_;
  bool dilate_;
};

// JPEG's full-range Y'CbCr of bytes (ITU-T T.871, section 7), with chroma centred at 128.
class Yuv final : public Transform {
 public:
  TransformStage stage() const override { return TransformStage::colour; }
  std::string name() const override { return "yuv"; }
  std::string text() const override { return "yuv"; }
  void pixels(PixelPlan& plan) const override {
    if (plan.channels != 3)
      fail<UsageError>("transform yuv needs 3 channels, but the images have {}", plan.channels);
    constexpr double matrix[3][3] = {
        {0.299, 0.587, 0.114}, {-0.168736, -0.331264, 0.5}, {0.5, -0.418688, -0.081312}};
    const PixelPlan before = plan;
    for (std::size_t o = 0; o < 3; ++o) {
      double shift = o == 0 ? 0 : 128;
      for (std::size_t c = 0; c < 3; ++c) {
        double factor = 0;
        for (std::size_t k = 0; k < 3; ++k) factor += matrix[o][k] * before.m[k][c];
        plan.m[o][c] = static_cast<float>(factor);
        shift += matrix[o][c] * before.shift[c];
      }
      plan.shift[o] = static_cast<float>(shift);
    }
  }
};

class Scale final : public Transform {
 public:
  TransformStage stage() const override { return TransformStage::colour; }
  std::string name() const override { return "scale"; }
  std::string text() const override { return "scale"; }
  void pixels(PixelPlan& plan) const override {
    for (auto& row : plan.m)
      for (float& factor : row) factor = static_cast<float>(factor / 255.0);
    for (float& shift : plan.shift) shift = static_cast<float>(shift / 255.0);
  }
};

// The recipe folds it in with the data set's mean and std (Recipe::pixels).
class Normalize final : public Transform {
 public:
  TransformStage stage() const override { return TransformStage::colour; }
  std::string name() const override { return "normalize"; }
  std::string text() const override { return "normalize"; }
};

// From Beta(alpha, alpha); after 32 rejections a half. Takes fields 0 to 63. Joehnk's method
// accepts at least half of its attempts up to alpha 1, but one in 70 at alpha 4; Cheng's BB
// (Communications of the ACM 21, 1978) accepts nine tenths or more above 1.
double beta(double alpha, const Draw& draw) {
  const double log_scale = 1 / std::sqrt(alpha), slope = alpha + std::sqrt(alpha);  // of BB
  for (std::uint32_t attempt = 0; attempt < 32; ++attempt) {
    const auto u = static_cast<double>(draw.uniform(2 * attempt)),
               v = static_cast<double>(draw.uniform(2 * attempt + 1));
    if (alpha <= 1) {
      const double a = std::pow(u, 1 / alpha), b = std::pow(v, 1 / alpha);
      if (a + b <= 1 && a + b > 0) return a / (a + b);
      continue;
    }
    if (u == 0) continue;
    const double log_odds = log_scale * std::log(u / (1 - u));
    const double w = alpha * std::exp(log_odds);
    const double log_density =
        slope * log_odds - std::log(4.0) + 2 * alpha * std::log(2 * alpha / (alpha + w));
    if (log_density >= std::log(u * u * v)) return w / (alpha + w);
  }
  return 0.5;
}

// Where mixup and cutmix are both in a recipe, the second one takes over half of the rows, also of
// those that the first one's draw left as they are: its weight may be 1.
bool leaves_to_other(const RowPlan& plan, const Draw& draw) {
  return plan.pair != 0 && draw.below(66, 2) == 0;
}

// Zhang et al., "mixup: Beyond Empirical Risk Minimization", ICLR 2018: mixes each row with its
// neighbour, with a weight of its own from Beta(alpha, alpha).
class Mixup final : public Transform {
 public:
  explicit Mixup(double alpha) : alpha_(alpha) {}
  TransformStage stage() const override { return TransformStage::mix; }
  std::string name() const override { return "mixup"; }
  std::string text() const override { return fmt::format("mixup={}", alpha_); }
  void mix(RowPlan& plan, const Draw& draw, const ImageExtent&) const override {
    if (leaves_to_other(plan, draw)) return;
    plan.weight = static_cast<float>(beta(alpha_, draw));
    plan.top = plan.left = plan.bottom = plan.right = 0;
  }
  void pixels(PixelPlan& plan) const override { plan.mix = true; }
  std::vector<TransformPtr> for_evaluation(const TransformPtr&) const override { return {}; }

 private:
  double alpha_;
};

// Yun et al., "CutMix: Regularization Strategy to Train Strong Classifiers with Localizable
// Features", ICCV 2019, as torchvision's: a box around a random pixel, of the share 1 - w of the
// area, w from Beta(alpha, alpha), is the neighbour's; cut off at the row's edge, the weight is
// what is left of the row.
class Cutmix final : public Transform {
 public:
  explicit Cutmix(double alpha) : alpha_(alpha) {}
  TransformStage stage() const override { return TransformStage::mix; }
  std::string name() const override { return "cutmix"; }
  std::string text() const override { return fmt::format("cutmix={}", alpha_); }
  void mix(RowPlan& plan, const Draw& draw, const ImageExtent& row) const override {
    if (leaves_to_other(plan, draw)) return;
    const double half = 0.5 * std::sqrt(1 - beta(alpha_, draw));
    const auto part = [&](std::uint32_t field, std::int64_t side) {
      const std::int64_t middle = draw.below(field, static_cast<std::uint32_t>(side)),
                         reach = static_cast<std::int64_t>(half * static_cast<double>(side));
      return std::pair(static_cast<std::int16_t>(std::max<std::int64_t>(middle - reach, 0)),
                       static_cast<std::int16_t>(std::min(middle + reach, side)));
    };
    std::tie(plan.top, plan.bottom) = part(64, row.height);
    std::tie(plan.left, plan.right) = part(65, row.width);
    const double box = static_cast<double>(plan.bottom - plan.top) * (plan.right - plan.left);
    plan.weight = static_cast<float>(1 - box / static_cast<double>(row.height * row.width));
  }
  void pixels(PixelPlan& plan) const override { plan.mix = true; }
  std::vector<TransformPtr> for_evaluation(const TransformPtr&) const override { return {}; }

 private:
  double alpha_;
};

template <class T>
TransformPtr make_plain(const TransformArguments& a) {
  a.most(0, {});
  return std::make_shared<T>();
}

template <bool contrast>
TransformPtr make_jitter(const TransformArguments& a) {
  a.most(1, {});
  return std::make_shared<Jitter>(contrast, a.number(0, 0, 1));
}

const TransformKind brightness("brightness", "brightness=AMOUNT",
                               "bytes times 1 - AMOUNT to 1 + AMOUNT", make_jitter<false>);
const TransformKind contrast("contrast", "contrast=AMOUNT",
                             "distances from mid-gray times 1 - AMOUNT to 1 + AMOUNT",
                             make_jitter<true>);
const TransformKind random_mask("random-mask", "random-mask=CHANCE[:dilate]",
                                "pixels set to 0, with their 4 neighbours",
                                [](const TransformArguments& a) {
                                  a.most(1, {"dilate"});
                                  return TransformPtr(std::make_shared<RandomMask>(
                                      a.number(0, 0, 1), a.has("dilate")));
                                });
const TransformKind yuv("yuv", "yuv", "RGB to full-range YCbCr", make_plain<Yuv>);
const TransformKind scale("scale", "scale", "bytes to [0, 1]", make_plain<Scale>);
const TransformKind normalize("normalize", "normalize", "(x / 255 - mean) / std per channel",
                              make_plain<Normalize>);
const TransformKind mixup("mixup", "mixup=ALPHA",
                          "each row mixed with its neighbour, weights from Beta(ALPHA, ALPHA)",
                          [](const TransformArguments& a) {
                            a.most(1, {});
                            return TransformPtr(std::make_shared<Mixup>(a.number(0, 0.01, 4)));
                          });
const TransformKind cutmix(
    "cutmix", "cutmix=ALPHA",
    "a box of each row is its neighbour's; with mixup, each row gets one of the two",
    [](const TransformArguments& a) {
      a.most(1, {});
      return TransformPtr(std::make_shared<Cutmix>(a.number(0, 0.01, 4)));
    });

}  // namespace
}  // namespace warpstep::data
