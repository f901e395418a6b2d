// The set that `warpstep data make` generates: ten classes of shaded, noisy shapes and textures,
// drawn from a seed.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "data/formats/dataset.h"

namespace warpstep::data {

inline constexpr std::int64_t synthetic_side = 32;  // pixels
inline constexpr std::array<std::string_view, 10> synthetic_classes{
    "disc",    "square",  "triangle", "ring",    "cross",
    "stripes", "columns", "diagonal", "checker", "dots"};

inline constexpr int synthetic_class_count = static_cast<int>(synthetic_classes.size());

// Class of image `index` of a set with the first `classes` classes. Any images 10i to 10i + 9 of a
// set of ten have all ten classes, in an order that varies.
std::int32_t synthetic_label(std::uint64_t seed, Split split, std::uint64_t index,
                             int classes = synthetic_class_count);

// Draws image `index` of the split into pixels [32, 32, 3]. A function of (seed, split, index) that
// uses only + - * / and sqrt, so that the pixels are equal on every machine.
void draw_synthetic(std::uint64_t seed, Split split, std::uint64_t index,
                    std::span<std::uint8_t> pixels, int classes = synthetic_class_count);

// The same at any size: figures of 256 pixels, or of the image's shorter side, tile the image, so
// that every window of that size shows its class. `pixels` are [height, width, 3].
void draw_synthetic_large(std::uint64_t seed, Split split, std::uint64_t index, std::int64_t height,
                          std::int64_t width, std::span<std::uint8_t> pixels,
                          int classes = synthetic_class_count);

struct SyntheticOptions {
  std::uint64_t train = 10000;  // files; fewer than ten have only that many classes
  std::uint64_t test = 2000;
  std::uint64_t seed = 0;
  int workers = 0;                                               // threads; 0: all cores
  std::int64_t height = synthetic_side, width = synthetic_side;  // pixels
  bool jpeg = false;                                             // quality 90; else PNG
  bool overwrite = false;  // replace a complete set of other options
};

// What make_dataset() did: `replaced` another complete set that it had made.
enum class Made : std::uint8_t { made, replaced, already_there };

// Writes folder/train and folder/test with image files and labels.pkl, and folder/made.json last.
// Each split is written under a temporary name and renamed when complete. Changes nothing when the
// folder already holds this set; replaces an incomplete one, or with `overwrite` another generated
// set. Throws UsageError for another set without it, and DataError when the folder holds anything
// else, also beside the images, or cannot be written. `progress` receives the number of files
// written, from one thread at a time.
Made make_dataset(const std::string& folder, const SyntheticOptions& options,
                  const std::function<void(std::uint64_t written, std::uint64_t all)>& progress);

}  // namespace warpstep::data
