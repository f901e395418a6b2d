#include "data/transforms/recipe.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "engine/core/caught.h"
#include "engine/core/clock.h"
#include "engine/core/error.h"
#include "engine/core/text.h"

namespace warpstep::data {
namespace {

// FNV-1a, 32 bits: the first field of a transform's draws.
std::uint32_t hash(std::string_view text) {
  std::uint32_t value = 0x811c9dc5;
  for (const char c : text) value = (value ^ static_cast<std::uint8_t>(c)) * 0x01000193;
  return value;
}

bool occurs_once(std::string_view name) {
  return name == "random-mask" || name == "mixup" || name == "cutmix" || name == "yuv" ||
         name == "scale" || name == "normalize";
}

TransformPtr parse(std::string_view part) {
  const std::string_view wanted = part.substr(0, part.find('='));
  std::vector<std::string> known;
  const TransformKind* found = nullptr;
  for (const TransformKind* kind : TransformKind::all()) {
    known.emplace_back(kind->name);
    if (kind->name != wanted) continue;
    if (found)
      fail<UsageError>("two transforms are called '{}': {} and {}; give your own another name",
                       wanted, found->usage, kind->usage);
    found = kind;
  }
  if (found)
    return naming(fmt::format("transform '{}'", wanted), "make()",
                  [&] { return found->make(TransformArguments(part, found->usage)); });
  fail<UsageError>("transform '{}' is not known; there are {}{}", wanted, fmt::join(known, ", "),
                   suggestion(wanted, known));
}

}  // namespace

Recipe::Recipe(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find(',', at), text.size());
    if (end == at) fail<UsageError>("--transforms '{}': an empty name at character {}", text, at);
    transforms_.push_back(parse(text.substr(at, end - at)));
    at = end + 1;
  }
  check();
}

Recipe::Recipe(std::vector<TransformPtr> transforms) : transforms_(std::move(transforms)) {
  check();
}

// yuv centres bytes at 128, so it comes before scale. After it, as in PyTorch, it is the same map.
void Recipe::put_yuv_before_scale() {
  const auto place = [this](std::string_view name) {
    return std::ranges::find(transforms_, name, &Transform::name);
  };
  const auto scale = place("scale"), yuv = place("yuv");
  if (yuv == transforms_.end() || scale > yuv) return;
  if (const Transform& next = **std::next(scale); next.name() != "yuv")
    fail<UsageError>("transform yuv must come before {}, or right after scale", next.text());
  std::iter_swap(scale, yuv);
}

void Recipe::check() {
  for (std::size_t i = 0; i < transforms_.size(); ++i)
    if (!transforms_[i])
      fail<UsageError>("transform {} of {} of a recipe is a null pointer", i + 1,
                       transforms_.size());
  put_yuv_before_scale();
  std::map<std::string, int> seen;
  first_fields_.clear();
  span_names_.clear();
  for (std::size_t i = 0; i < transforms_.size(); ++i) {
    const Transform& here = *transforms_[i];
    span_names_.emplace_back(here.name(), record::Kind::stage);
    first_fields_.push_back(hash(fmt::format("{}#{}", here.name(), seen[here.name()]++)));
    if (i == 0 || transforms_[i - 1]->stage() <= here.stage()) continue;
    fail<UsageError>(
        "transform {} ({}) must come before {} ({}); the order is geometry, bytes, jitter, mask, "
        "colour, mix",
        here.text(), data::name(here.stage()), transforms_[i - 1]->text(),
        data::name(transforms_[i - 1]->stage()));
  }
  for (const auto& [name, times] : seen)
    if (times > 1 && occurs_once(name))
      fail<UsageError>("transform {} may occur only once in a recipe", name);
  check_geometry();
  for (std::size_t i = 0; i + 1 < transforms_.size(); ++i)
    if (transforms_[i]->name() == "normalize" &&
        transforms_[i + 1]->stage() == TransformStage::colour)
      fail<UsageError>("transform normalize must come after {}, as the last colour transform",
                       transforms_[i + 1]->text());
}

// Whether a change of size conflicts with padding or another change depends on the draw: refused
// here rather than at the first image where they conflict.
void Recipe::check_geometry() const {
  const Transform* before = nullptr;  // no later transform may change the size
  for (const TransformPtr& here : transforms_) {
    if (here->stage() != TransformStage::geometry) continue;
    if (before != nullptr && here->resizes()) {
      if (before->pads())
        fail<UsageError>("transform {} must come before {}, which pads", here->text(),
                         before->text());
      fail<UsageError>("transforms {} and {} both change the size; remove one", before->text(),
                       here->text());
    }
    if (here->pads() || here->resizes()) before = here.get();
  }
}

std::string Recipe::text() const {
  std::string text;
  for (const TransformPtr& transform : transforms_) {
    if (!text.empty()) text += ',';
    text += transform->text();
  }
  return text;
}

Recipe Recipe::for_evaluation() const {
  std::vector<TransformPtr> kept;
  for (const TransformPtr& transform : transforms_)
    for (TransformPtr& part : transform->for_evaluation(transform)) kept.push_back(std::move(part));
  return Recipe(std::move(kept));
}

ImageExtent Recipe::extent(const Shape& image) const {
  ImageExtent extent{image[0], image[1]};
  for (const TransformPtr& transform : transforms_) extent = transform->extent(extent);
  return extent;
}

bool Recipe::sets_extent() const {
  // A transform whose result depends on the image's size, which may be a plugin's, gives these
  // images different ones.
  const ImageExtent fixed = extent({1000, 1000, 1});
  return extent({1200, 2100, 1}) == fixed && extent({5003, 977, 1}) == fixed &&
         extent({max_image_side, max_image_side, 1}) == fixed;
}

Geometry Recipe::geometry(const Shape& image, const Draw& draw) const {
  Geometry geometry = Geometry::whole(image);
  for (std::size_t i = 0; i < transforms_.size(); ++i)
    if (transforms_[i]->stage() == TransformStage::geometry)
      transforms_[i]->plan(geometry, draw.of(first_fields_[i]));
  return geometry;
}

std::string Recipe::not_gathered() const {
  const ImageExtent large{max_image_side, max_image_side};
  bool cropped = false;  // then padding hides pixels that the image has
  for (const TransformPtr& t : transforms_) {
    if (t->stage() == TransformStage::bytes || t->resizes() || (t->pads() && cropped))
      return t->text();
    cropped = cropped || t->extent(large) != large;
  }
  return {};
}

bool Recipe::resizes() const {
  return std::any_of(transforms_.begin(), transforms_.end(),
                     [](const TransformPtr& t) { return t->resizes(); });
}

bool Recipe::has(std::string_view name) const {
  return std::any_of(transforms_.begin(), transforms_.end(),
                     [&](const TransformPtr& t) { return t->name() == name; });
}

bool Recipe::uses_rows() const {
  return std::any_of(transforms_.begin(), transforms_.end(), [](const TransformPtr& t) {
    return t->stage() == TransformStage::jitter || t->stage() == TransformStage::mask ||
           t->stage() == TransformStage::mix;
  });
}

void Recipe::row(RowPlan& plan, const Draw& draw, const ImageExtent& row) const {
  for (std::size_t i = 0; i < transforms_.size(); ++i) {
    transforms_[i]->row(plan, draw.of(first_fields_[i]));
    transforms_[i]->mix(plan, draw.of(first_fields_[i]), row);
    // Until the batch maker pairs the rows, a mark that a transform has had its draw.
    if (transforms_[i]->stage() == TransformStage::mix) plan.pair = 1;
  }
}

std::vector<std::string> Recipe::worker_names() const {
  std::vector<std::string> names;
  for (const TransformPtr& t : transforms_)
    if (t->stage() == TransformStage::bytes) names.push_back(t->name());
  return names;
}

void Recipe::apply(const RowImage& image, const Draw& draw, std::span<std::uint64_t> ns) const {
  std::size_t timed = 0;
  for (std::size_t i = 0; i < transforms_.size(); ++i) {
    if (transforms_[i]->stage() != TransformStage::bytes) continue;
    const std::uint64_t begin = now_ns();
    transforms_[i]->apply(image, draw.of(first_fields_[i]));
    ns[timed++] += record::note_since(span_names_[i], begin);
  }
}

bool Recipe::normalizes() const {
  return has("normalize") || !has("scale");
}

bool Recipe::is_plain() const {
  return normalizes() && !has("scale") &&
         std::none_of(transforms_.begin(), transforms_.end(), [](const TransformPtr& t) {
           return t->stage() > TransformStage::bytes && t->name() != "normalize";
         });
}

bool Recipe::mixes() const {
  return std::any_of(transforms_.begin(), transforms_.end(),
                     [](const TransformPtr& t) { return t->stage() == TransformStage::mix; });
}

PixelPlan Recipe::pixels(int channels, const std::vector<double>& mean,
                         const std::vector<double>& std) const {
  if (channels < 1 || channels > 3)
    fail<UsageError>("pixels of {} channels; 1 to 3 are possible", channels);
  PixelPlan plan;
  plan.channels = channels;
  for (std::size_t c = 0; c < idx(channels); ++c) plan.m[c][c] = 1;
  for (const TransformPtr& transform : transforms_) transform->pixels(plan);
  if (!normalizes()) return plan;
  if (mean.size() != idx(channels) || std.size() != idx(channels))
    fail<UsageError>("images of {} channels need {} values in --mean and in --std, not {} and {}",
                     channels, channels, mean.size(), std.size());
  for (std::size_t c = 0; c < idx(channels); ++c) {
    if (!std::isfinite(mean[c]))
      fail<UsageError>("mean {} of channel {}: must be a finite number", mean[c], c);
    if (!(std[c] > 0 && std::isfinite(std[c])))
      fail<UsageError>("std {} of channel {}: must be finite and above 0", std[c], c);
    // From f32, in double and rounded once, to get the same bits as normalize() in layers.h.
    const double here = static_cast<float>(std[c]), middle = static_cast<float>(mean[c]);
    const double scale = 1 / ((has("scale") ? 1.0 : 255.0) * here);
    for (float& factor : plan.m[c]) factor = static_cast<float>(factor * scale);
    plan.shift[c] = static_cast<float>(plan.shift[c] * scale - middle / here);
    const auto is_finite = [](float number) { return std::isfinite(number); };
    if (!is_finite(plan.shift[c]) || !std::ranges::all_of(plan.m[c], is_finite))
      fail<UsageError>("mean {} and std {} of channel {}: pixels would pass the range of f32",
                       mean[c], std[c], c);
  }
  return plan;
}

void refuse_statistics_of_yuv() {
  fail<UsageError>(
      "mean and standard deviation are measured on the images, not on the channels of yuv: give "
      "--mean and --std of those, or scale them: --transforms ...,yuv,scale");
}

void require_channels_of(const Recipe& run, const Recipe& now) {
  if (!now.normalizes() || now.has("yuv") == run.has("yuv")) return;
  if (now.has("yuv")) refuse_statistics_of_yuv();
  fail<UsageError>(
      "mean and standard deviation of the run are those of the channels of yuv: give --mean and "
      "--std of the images, or keep yuv in the transforms");
}

}  // namespace warpstep::data
