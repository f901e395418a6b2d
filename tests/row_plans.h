// Batches whose rows have plans, as bytes for a step's inputs.
#pragma once

#include <cstring>
#include <vector>

#include "tests/stepping.h"

namespace warpstep::testing_support {

// For mlp: windows of 28x28 in a set of nine images of 30x30, masked and mixed, the last one by a
// box.
inline models::BuildOptions set_of_windows(std::int64_t batch) {
  PixelPlan plan{.channels = 1, .mask_threshold = 16384, .dilate = true, .mix = true};
  plan.m[0][0] = 1 / 64.0F;
  plan.shift[0] = -2;
  models::BuildOptions build;
  build.batch = batch;
  build.images = models::Images::set;
  build.stored = {30, 30, 1};
  build.samples = 9;
  build.pixels = plan;
  return build;
}

inline std::vector<RowPlan> row_plans(std::int64_t batch) {
  std::vector<RowPlan> rows;
  for (std::uint32_t r = 0; r < static_cast<std::uint32_t>(batch); ++r)
    rows.push_back({.source = 5 * r % 9,
                    .y = static_cast<std::int16_t>(r % 4),
                    .x = -1,
                    .mirrored = r % 2,
                    .key = {1, 2},
                    .counter = {0, r},
                    .pair = (r + 1) % static_cast<std::uint32_t>(batch),
                    .weight = 0.25F * static_cast<float>(r % 5),
                    .pair_label = static_cast<std::int32_t>(3 * r % 10)});
  RowPlan& boxed = rows.back();
  boxed.top = boxed.left = 4;
  boxed.bottom = boxed.right = 20;
  return rows;
}

// Images and labels as Stepping makes them, and `rows` for the third input.
inline void load_with_plans(Stepping& step, std::uint64_t number,
                            const std::vector<RowPlan>& rows) {
  step.load(number);
  const Program& program = step.program;
  const int id = program.graph().inputs[2];
  program.backend().write(program.graph().value(id), program.address(id),
                          std::as_bytes(std::span(rows)));
}

}  // namespace warpstep::testing_support
