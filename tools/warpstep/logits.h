// The logits of all images or tokens of an evaluation.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/core/batch.h"
#include "engine/run/program.h"

namespace warpstep::tools {

// A source of batches that stores the logits of the previous batch when the next one is requested;
// an evaluation has computed it by then. Its source must not be shuffled.
class LogitsKeeper final : public BatchSource {
 public:
  LogitsKeeper(BatchSource& source, const Program& program) : source_(source), program_(program) {}

  std::int64_t batch_size() const override { return source_.batch_size(); }
  std::uint64_t samples() const override { return source_.samples(); }
  std::uint64_t steps_per_epoch() const override { return source_.steps_per_epoch(); }
  int held() const override { return source_.held(); }
  Position position() const override { return source_.position(); }
  const Batch& next() override;
  void seek(Position position) override;

  // After the last batch was computed: [labels, classes], one row for each label, in the data's
  // order.
  std::span<const float> finish();
  std::span<const std::int64_t> labels() const { return labels_; }

 private:
  void keep();

  BatchSource& source_;
  const Program& program_;
  bool pending_ = false;  // a batch is being computed
  std::vector<float> logits_;
  std::vector<std::int64_t> labels_;
};

}  // namespace warpstep::tools
