// Transform, the interface of a recipe's parts, and TransformKind, which registers a transform
// under its name: the built-in ones and those of a library's user in the same way.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/decode/image.h"
#include "engine/core/pixels.h"

namespace warpstep::data {

// The random numbers of one transform for one sample in one epoch. Each transform has its own
// fields, so adding one to a recipe does not change the draws of the others.
class Draw {
 public:
  Draw(std::uint64_t seed, std::uint64_t epoch, std::uint64_t sample)
      : seed_(seed), epoch_(static_cast<std::uint32_t>(epoch)), sample_(sample) {}
  // For the transform whose fields begin at `first`.
  Draw of(std::uint32_t first) const {
    Draw other = *this;
    other.first_ = first;
    return other;
  }
  std::uint32_t word(std::uint32_t field) const {
    return draw(seed_, Purpose::augmentation, epoch_,
                sample_ | std::uint64_t{first_ + field} << 32)[0];
  }
  // Uniform in [0, n).
  std::uint32_t below(std::uint32_t field, std::uint32_t n) const {
    return warpstep::below(word(field), n);
  }
  float uniform(std::uint32_t field) const { return warpstep::uniform(word(field)); }  // [0, 1)
  std::uint64_t seed() const { return seed_; }
  std::uint32_t epoch() const { return epoch_; }
  std::uint64_t sample() const { return sample_; }

 private:
  std::uint64_t seed_;
  std::uint32_t epoch_;
  std::uint64_t sample_;
  std::uint32_t first_ = 0;
};

// Where the pixels of a row come from: window `source` of the image is resized to height x width;
// window `out` of the result is the row, mirrored or not. Computed before decoding.
struct Geometry {
  Window source;
  std::int64_t height = 0, width = 0;
  Window out;  // may exceed height x width; pixels outside are 0
  bool mirrored = false;
  // What earlier crops left of height x width, if a later one pads: pixels outside are 0 as well.
  std::optional<Window> kept;

  static Geometry whole(const Shape& image);
  Window seen() const;  // the part of `out` that has pixels
  bool resizes() const { return source.height != height || source.width != width; }
  bool operator==(const Geometry&) const = default;
};

struct RowImage {
  std::span<std::uint8_t> pixels;  // [height, width, channels]
  std::int64_t height = 0, width = 0, channels = 0;
};

// The stages act on a row in this order, and a recipe must list its transforms in this order.
enum class TransformStage : std::uint8_t {
  geometry,  // plan()
  bytes,     // apply(), by a worker; timed by the transform's name
  jitter,    // row(): contrast and brightness
  mask,      // row() and pixels()
  colour,    // pixels(): folded into one affine map
  mix        // mix() and pixels(); the batch maker pairs the rows
};
std::string_view name(TransformStage stage);

class Transform;
using TransformPtr = std::shared_ptr<const Transform>;

// Immutable; used by many threads at once. Override stage(), name(), text() and the function of the
// stage; the others do nothing by default.
class Transform {
 public:
  virtual ~Transform();
  virtual TransformStage stage() const = 0;
  virtual std::string name() const = 0;  // "random-crop"
  virtual std::string text() const = 0;  // as in a recipe: "random-crop=256"
  // Throws DataError without the image's name for an unsuitable image.
  virtual void plan(Geometry&, const Draw&) const {}
  virtual void apply(const RowImage&, const Draw&) const {}
  virtual void row(RowPlan&, const Draw&) const {}
  virtual void pixels(PixelPlan&) const {}
  // Of stage mix, in place of row(): what depends on the size of the rows.
  virtual void mix(RowPlan&, const Draw&, const ImageExtent& /*row*/) const {}
  // Height and width after plan().
  virtual ImageExtent extent(const ImageExtent& before) const { return before; }
  // Whether plan() may do more than choose a window of the same pixels, mirrored or not. Such a
  // transform cannot be gathered from a resident set and must come before crops with padding.
  virtual bool resizes() const { return stage() == TransformStage::geometry; }
  virtual bool pads() const { return false; }
  // What replaces it in evaluation: itself, a version without randomness, or nothing.
  virtual std::vector<TransformPtr> for_evaluation(const TransformPtr& self) const {
    return {self};
  }
};

// The arguments of a transform: random-crop=32:pad=4 has values {"32"} and words {pad: "4"}.
class TransformArguments {
 public:
  // Throws UsageError that names the transform and shows its usage, for a word given twice too.
  TransformArguments(std::string_view text, std::string_view usage);

  const std::string& name() const { return name_; }
  const std::string& text() const { return text_; }
  std::size_t count() const { return values_.size(); }
  // All throw UsageError for an argument that is missing, not such a number, or out of range.
  std::int64_t whole(std::size_t i, std::int64_t least, std::int64_t most) const;
  double number(std::size_t i, double least, double most) const;
  ImageExtent extent(std::size_t i) const;  // "256" or "224x320"
  bool has(std::string_view word) const;    // refuses "word=value"
  std::int64_t whole(std::string_view word, std::int64_t least, std::int64_t most,
                     std::int64_t absent) const;
  // Refuses more than `values` numbers and any word that is not in `words`.
  void most(std::size_t values, std::initializer_list<std::string_view> words) const;
  [[noreturn]] void refuse(std::string_view what) const;

 private:
  double parse(std::string_view value, double least, double most, bool whole) const;

  std::string text_, usage_, name_;
  std::vector<std::string> values_;
  std::vector<std::pair<std::string, std::string>> words_;  // value "" for a bare word
};

// Registers a transform: a constant of this type at namespace scope makes `name` known to every
// recipe.
//
//   const TransformKind solarize("solarize", "solarize=THRESHOLD", "inverts bytes above it",
//       [](const TransformArguments& a) { return std::make_shared<Solarize>(a.whole(0, 0, 255));
//       });
class TransformKind {
 public:
  using Make = TransformPtr (*)(const TransformArguments&);
  TransformKind(const char* name, const char* usage, const char* what, Make make);
  TransformKind(const TransformKind&) = delete;
  TransformKind& operator=(const TransformKind&) = delete;

  const char* name;
  const char* usage;
  const char* what;
  Make make;

  static const std::vector<const TransformKind*>& all();  // sorted by name
};

}  // namespace warpstep::data
