// The iteration space of batch norm on the CPU: the rows of each group of channels, in chunks.
#pragma once

#include <algorithm>
#include <numeric>

#include "kernels/cpu/cpu.h"

namespace warpstep::cpu {

// In rows of channels (nhwc) all channels are one group and all rows one run; in blocks (nChw16c) a
// block is a group and an image's pixels are a run. Chunks depend on the shape alone, so that equal
// thread counts give equal bits, and so do different ones.
struct NormRows {
  static constexpr std::int64_t panel = 64;  // channels whose chunks are merged in one task

  std::int64_t groups = 1;
  std::int64_t channels = 0;        // of a group
  std::int64_t fold = 1;            // rows that a loop treats as one, to fill its registers
  std::int64_t runs = 1, run = 0;   // number of runs; consecutive rows per run
  std::int64_t pieces = 1;          // chunks per run, where runs are long
  std::int64_t runs_per_chunk = 1;  // where runs are short

  explicit NormRows(const Value& x, std::int64_t block) {
    const Shape& s = x.type.shape;
    const std::int64_t pixels = s[1] * s[2];
    channels = s[3];
    run = s[0] * pixels;
    if (!x.layout.tag.empty() && pixels > 1) {  // a map of one pixel is the same in both layouts
      groups = s[3] / block;
      channels = block;
      runs = s[0];
      run = pixels;
    }
    const std::int64_t whole = 16 / std::gcd(channels, std::int64_t{16});
    if (channels <= 128) fold = whole * std::max<std::int64_t>(1, 64 / (channels * whole));
    const std::int64_t most = 128 * fold;  // rows per chunk: few enough to sum them in float
    pieces = (run + most - 1) / most;
    runs_per_chunk = std::clamp<std::int64_t>(most / run, 1, runs);
  }

  std::int64_t width() const { return fold * channels; }
  std::int64_t count() const { return groups * channels * runs * run; }
  std::int64_t chunks() const { return (runs + runs_per_chunk - 1) / runs_per_chunk * pieces; }
  std::int64_t tasks() const { return groups * chunks(); }
  std::int64_t panels() const { return (channels + panel - 1) / panel; }  // of a group
  std::int64_t run_stride() const { return groups * channels * run; }

  // Adds the column sums of folded rows into the first `channels`.
  void unfold(float* columns) const {
    for (std::int64_t at = channels; at < width(); at += channels)
      for (std::int64_t c = 0; c < channels; ++c) columns[c] += columns[at + c];
  }

  struct Chunk {
    std::int64_t task, group;
    std::int64_t offset;      // of its first element
    std::int64_t runs, rows;  // of each run
  };
  // Tasks go through memory in order.
  Chunk at(std::int64_t task) const {
    const std::int64_t piece = task % pieces, group = task / pieces % groups,
                       first = task / pieces / groups * runs_per_chunk;
    const std::int64_t begin = piece * run / pieces, end = (piece + 1) * run / pieces;
    return {task, group, first * run_stride() + (group * run + begin) * channels,
            std::min(runs_per_chunk, runs - first), end - begin};
  }
  Chunk chunk_of(std::int64_t group, std::int64_t chunk) const {
    return at((chunk / pieces * groups + group) * pieces + chunk % pieces);
  }
};

// The workspace: `part` floats per task for its sums, then `params` floats per group.
struct NormWorkspace {
  std::int64_t part, params, tasks, groups;

  NormWorkspace(const NormRows& rows, std::int64_t parts_of_width, std::int64_t params_of_width)
      : part((parts_of_width * rows.width() + 15) / 16 * 16),
        params((params_of_width * rows.width() + 15) / 16 * 16),
        tasks(rows.tasks()),
        groups(rows.groups) {}
  std::size_t bytes() const { return idx(tasks * part + groups * params) * sizeof(float); }
  float* part_of(void* workspace, std::int64_t task) const {
    return static_cast<float*>(workspace) + task * part;
  }
  float* params_of(void* workspace, std::int64_t group) const {
    return static_cast<float*>(workspace) + tasks * part + group * params;
  }
};

}  // namespace warpstep::cpu
