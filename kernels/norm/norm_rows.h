// The iteration space of batch norm on the CPU: rows of channels, in chunks.
#pragma once

#include <algorithm>
#include <numeric>

#include "kernels/cpu/cpu.h"

namespace warpstep::cpu {

// Chunks depend on the shape alone, so that all thread counts give equal bits.
struct NormRows {
  static constexpr std::int64_t panel = 64;  // channels whose chunks are merged in one task

  std::int64_t rows = 0, channels = 0;
  std::int64_t fold = 1;  // rows that a loop treats as one, to fill its registers
  std::int64_t chunks = 1;

  explicit NormRows(const Shape& x) : rows(x[0] * x[1] * x[2]), channels(x[3]) {
    const std::int64_t whole = 16 / std::gcd(channels, std::int64_t{16});
    if (channels <= 128) fold = whole * std::max<std::int64_t>(1, 64 / (channels * whole));
    const std::int64_t most = 128 * fold;  // rows per chunk: few enough to sum them in float
    chunks = (rows + most - 1) / most;
  }

  std::int64_t width() const { return fold * channels; }
  std::int64_t count() const { return rows * channels; }

  // Adds the column sums of folded rows into the first `channels`.
  void unfold(float* columns) const {
    for (std::int64_t at = channels; at < width(); at += channels)
      for (std::int64_t c = 0; c < channels; ++c) columns[c] += columns[at + c];
  }

  struct Chunk {
    std::int64_t index;
    std::int64_t offset;  // of its first element
    std::int64_t rows;
  };
  Chunk chunk(std::int64_t index) const {
    const std::int64_t begin = index * rows / chunks, end = (index + 1) * rows / chunks;
    return {index, begin * channels, end - begin};
  }
};

// The workspace: `part` floats per chunk for its sums, then `params` floats.
struct NormWorkspace {
  std::int64_t part, params, chunks;

  NormWorkspace(const NormRows& rows, std::int64_t parts_of_width, std::int64_t params_of_width)
      : part((parts_of_width * rows.width() + 15) / 16 * 16),
        params((params_of_width * rows.width() + 15) / 16 * 16),
        chunks(rows.chunks) {}
  std::size_t bytes() const { return idx(chunks * part + params) * sizeof(float); }
  float* part_of(void* workspace, std::int64_t chunk) const {
    return static_cast<float*>(workspace) + chunk * part;
  }
  float* params_of(void* workspace) const { return static_cast<float*>(workspace) + chunks * part; }
  double* doubles_of(void* workspace) const {  // what follows all of it
    return reinterpret_cast<double*>(params_of(workspace) + params);
  }
};

}  // namespace warpstep::cpu
