// The forward half of a step: inputs, preparation of the pixels, a model of the zoo and its loss.
#pragma once

#include <optional>
#include <vector>

#include "models/zoo.h"

namespace warpstep::models {

// The form in which a batch's images reach the step.
enum class Images : std::uint8_t {
  bytes,   // u8 [N,H,W,C], normalised by mean and std
  window,  // u8 [N,stored]; each row's plan selects and transforms the pixels that the model sees
  set,     // u8 [samples,stored]: a whole data set in device memory, otherwise as `window`
  floats,  // f32 [N,H,W,C], passed to the model unchanged
};

inline constexpr std::int64_t gpt2_vocabulary = 50257;

struct BuildOptions {
  std::int64_t batch = 128;  // images, or sequences of tokens
  Shape image;               // [H,W,C] that the model sees; empty: Model::image
  std::int64_t classes = 10;
  std::vector<float> mean, std;  // of x / 255, one per channel; empty: 0.5 and 0.25
  Images images = Images::bytes;
  std::optional<PixelPlan> pixels{};  // required for window and set
  Shape stored{};                     // for window and set: [H,W,C] of an image; empty: as `image`
  std::int64_t samples = 0;           // in a set
  bool rows = false;                  // labels are mixed even if the plan mixes no pixels
  LossOptions loss{};
  bool uploaded = false;  // inputs are already in device memory, copied there by another thread
  // Of text:
  Settings settings{};          // empty: the model's
  std::int64_t sequence = 0;    // tokens; 0: the model's context
  std::int64_t vocabulary = 0;  // of the data; 0: GPT-2's. The settings' own wins
};

// Inputs in this order: `images`, `labels` i32 [N] and, for a pixel plan or mixed labels, `rows`
// (row_plans_type(N)). Loss and pixels are mixed where the plan says so. Of a model of
// text: `tokens`, `order` and `labels`, i32 [batch * sequence] each. Throws ShapeError for a window
// or a set without a plan, UsageError for a vocabulary that is smaller than the data's, a batch or
// a set of nothing, and a model without a builder.
Graph build(const Model& model, const BuildOptions& options);

}  // namespace warpstep::models
