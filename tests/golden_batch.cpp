#include "tests/golden_batch.h"

#include <algorithm>
#include <numeric>

#include "engine/core/random.h"

namespace warpstep {
namespace {

struct Token {
  std::int32_t value = 0;
  bool is_label = false;
};

// The numbers 0 to N - 1 sorted by their tokens, equal tokens in ascending order.
std::vector<std::int32_t> order_of(const std::vector<std::int32_t>& tokens) {
  std::vector<std::int32_t> order(tokens.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, {}, [&](std::int32_t n) { return tokens[idx(n)]; });
  return order;
}

}  // namespace

std::vector<std::span<const std::byte>> GoldenBatch::inputs() const {
  const auto bytes = [](const auto& values) { return std::as_bytes(std::span(values)); };
  if (tokens.empty()) return {bytes(images), bytes(labels)};
  return {bytes(tokens), bytes(order), bytes(labels)};
}

GoldenBatch golden_batch(std::uint64_t seed, std::uint32_t step, std::int64_t rows,
                         const Shape& image) {
  GoldenBatch batch;
  batch.images.resize(idx(rows * image.count()));
  batch.labels.resize(idx(rows));
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

GoldenBatch golden_text(std::uint64_t seed, std::uint32_t step, std::int64_t rows,
                        std::int64_t sequence, std::int64_t vocabulary) {
  constexpr std::uint64_t first_draw = std::uint64_t{1} << 41;
  const auto range = static_cast<std::uint32_t>(vocabulary);
  const auto token = [&](std::int64_t number, std::int32_t previous) {
    const auto words =
        draw(seed, Purpose::synthetic, step, first_draw + static_cast<std::uint64_t>(number));
    const bool succeeds = previous >= 0 && words[2] % 2 == 1;
    const auto drawn = static_cast<std::int32_t>(below(words[0], 1 + below(words[1], range)));
    return Token{succeeds ? static_cast<std::int32_t>((previous + 1) % vocabulary) : drawn,
                 words[3] % 8 != 0};
  };
  GoldenBatch batch;
  for (std::int64_t row = 0; row < rows; ++row) {
    Token next = token(row * (sequence + 1), -1);
    for (std::int64_t i = 1; i <= sequence; ++i) {
      batch.tokens.push_back(next.value);
      next = token(row * (sequence + 1) + i, next.value);
      batch.labels.push_back(next.is_label ? next.value : -1);
    }
  }
  batch.order = order_of(batch.tokens);
  return batch;
}

}  // namespace warpstep
