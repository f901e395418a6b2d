#include "tests/golden_batch.h"

#include "engine/core/random.h"

namespace warpstep {

GoldenBatch golden_batch(std::uint64_t seed, std::uint32_t step, std::int64_t rows,
                         const Shape& image) {
  GoldenBatch batch{std::vector<std::uint8_t>(idx(rows * image.count())),
                    std::vector<std::int32_t>(idx(rows))};
  for (std::size_t n = 0; n < batch.labels.size(); ++n)
    batch.labels[n] = static_cast<std::int32_t>(
        below(draw(seed, Purpose::synthetic, step, (std::uint64_t{1} << 40) + n)[0], 10));
  for (std::size_t i = 0; i < batch.images.size(); ++i) {
    const auto words = draw(seed, Purpose::synthetic, step, i / 16);
    const std::uint32_t byte = words[i % 16 / 4] >> (8 * (i % 4)) & 255;
    const auto label = static_cast<std::uint32_t>(batch.labels[i / idx(image.count())]);
    const auto channel = static_cast<std::uint32_t>(i % idx(image[2]));
    batch.images[i] = static_cast<std::uint8_t>((byte >> 1) + 12 * ((label + 3 * channel) % 10));
  }
  return batch;
}

}  // namespace warpstep
