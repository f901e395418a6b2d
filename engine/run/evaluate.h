// Mean loss and accuracy of a model over a data set, and what evaluations share with training.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "engine/core/batch.h"
#include "engine/run/program.h"
#include "engine/run/runner.h"

namespace warpstep {

// Sums over samples, from which means follow exactly.
struct Score {
  double loss_sum = 0;  // of per-sample losses, each by its class weight
  std::int64_t correct = 0;
  std::int64_t count = 0;
  double weight = 0;  // the sum of class weights: `count` without them

  double loss() const { return weight > 0 ? loss_sum / weight : 0; }
  double accuracy() const {
    return count ? static_cast<double>(correct) / static_cast<double>(count) : 0;
  }
  Score& operator+=(const Score& other);
};

// Of a step with this loss: the mean by class weights, or the sum of the rows' losses where those
// of all labels are 0.
Score score_of(double loss, std::int64_t correct, std::int64_t count, double weight);

// Evaluates `program` (a step without training) on one pass of `source` from its start.
Score evaluate(Program& program, BatchSource& source, std::uint64_t limit_batches = 0,
               Runner* runner = nullptr);  // limit 0: all batches; runner null: eager

// The same, abandoned once `stops`, which is asked before each batch: returns nothing then.
std::optional<Score> evaluate_until(Program& program, BatchSource& source,
                                    std::uint64_t limit_batches, const std::function<bool()>& stops,
                                    Runner* runner = nullptr);

// Sets the inputs that the step reads, by their names: UsageError for two of one name. Throws Error
// for one that the batch does not have, or that is of another size or number format than the step
// reads. Where the step reads the host's memory, also DataError for what a kernel would take as an
// index and is out of bounds: labels of a cross-entropy, tokens, their order and position, and the
// images and pairs of row plans.
void give_batch(Program& program, const Batch& batch);

// Copies the averaged weights, the buffers and the step's state of `from` to `to`, the store of an
// evaluation, through host memory. Throws Error where the models differ.
void take_average(const Store& from, Store& to);

}  // namespace warpstep
