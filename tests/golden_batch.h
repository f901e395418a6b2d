// The batches that the goldens and the peers' benchmarks train on, by the rules of
// tests/golden/README.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/core/types.h"

namespace warpstep {

struct GoldenBatch {
  std::vector<std::uint8_t> images;         // [rows, height, width, channels], or none
  std::vector<std::int32_t> tokens, order;  // [rows * sequence] of a model of text, see Embed
  std::vector<std::int32_t> labels;  // [rows], 0 to 9; of text [rows * sequence], -1 for no label

  // In the order of the step's inputs (models/build.h).
  std::vector<std::span<const std::byte>> inputs() const;
};

GoldenBatch golden_batch(std::uint64_t seed, std::uint32_t step, std::int64_t rows,
                         const Shape& image);
GoldenBatch golden_text(std::uint64_t seed, std::uint32_t step, std::int64_t rows,
                        std::int64_t sequence, std::int64_t vocabulary);

}  // namespace warpstep
