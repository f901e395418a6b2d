// The batches that the goldens and the peers' benchmarks train on, by the rules of
// tests/golden/README.md.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/core/types.h"

namespace warpstep {

struct GoldenBatch {
  std::vector<std::uint8_t> images;  // [rows, height, width, channels]
  std::vector<std::int32_t> labels;  // [rows], 0 to 9
};

GoldenBatch golden_batch(std::uint64_t seed, std::uint32_t step, std::int64_t rows,
                         const Shape& image);

}  // namespace warpstep
