// Views of a set: a part of one that has no split of its own (`--val-split`), and one whose
// transparent pixels are blended or refused (`--alpha`).
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "data/formats/dataset.h"

namespace warpstep::data {

struct PartOptions {
  double share = 0;        // of each class that is the test part, in (0, 1)
  std::uint64_t seed = 0;  // chooses which
};

// Stratified: of a class with n samples, round(n * share) are in the test part, but at least one,
// and at least one is not, where n > 1. The same set, share and seed give the same parts, which
// together are the set. Throws UsageError for a share outside (0, 1) and for a part without
// samples.
std::unique_ptr<Dataset> open_part(std::shared_ptr<const Dataset> whole, Split split,
                                   const PartOptions& options);

// Indices of the part's samples, ascending.
std::vector<std::uint64_t> indices_of(const Dataset& whole, Split split,
                                      const PartOptions& options);

// The same samples with this treatment of transparent pixels. With Alpha::drop the set itself.
std::shared_ptr<const Dataset> with_alpha(std::shared_ptr<const Dataset> whole, Alpha alpha);

}  // namespace warpstep::data
