// A model, a transform and a format of data sets of one's own (docs/cpp.md). main.cpp trains with
// them in its own program; plugin.cpp hands them to `warpstep train --plugin`.
#pragma once

#include "data/formats/formats.h"
#include "data/transforms/transform.h"
#include "models/zoo.h"

namespace own {

// Two convolutions, for small gray images.
warpstep::Tensor two_convolutions(warpstep::Tensor images, std::int64_t classes);
inline const warpstep::models::Model model{.name = "two-convolutions",
                                           .description = "for small gray images",
                                           .image = {12, 12, 1},
                                           .learning_rate = 3e-3,
                                           .logits = two_convolutions,
                                           .transforms = "normalize"};

// solarize=THRESHOLD: bytes from the threshold on are inverted, in half of the images.
inline constexpr const char* solarize_usage = "solarize=THRESHOLD";
warpstep::data::TransformPtr make_solarize(const warpstep::data::TransformArguments& arguments);

// train.csv and test.csv: a header line, then one image per line, its label and the bytes of a
// square gray image.
bool has_csv(const std::string& folder, warpstep::data::Split split);
std::unique_ptr<warpstep::data::Dataset> open_csv(const std::string& folder,
                                                  warpstep::data::Split split,
                                                  const warpstep::data::OpenOptions& options);

}  // namespace own
