// The logits of an evaluation, kept for other programs.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "engine/program.h"
#include "engine/trainer.h"
#include "tools/warpstep/source.h"

namespace warpstep::tools {

// A source of batches that keeps the logits of the batch before whenever the next one is asked for:
// an evaluation computes each batch before it does so. What it reads must not be shuffled.
class LogitsKeeper final : public BatchSource {
 public:
  LogitsKeeper(BatchSource& source, const Program& program) : source_(source), program_(program) {}

  Shape image_shape() const override { return source_.image_shape(); }
  std::int64_t batch_size() const override { return source_.batch_size(); }
  std::uint64_t samples() const override { return source_.samples(); }
  std::uint64_t steps_per_epoch() const override { return source_.steps_per_epoch(); }
  int held() const override { return source_.held(); }
  Position position() const override { return source_.position(); }
  const Batch& next() override;
  void seek(Position position) override;

  // Once the last batch was computed. [images, classes], one row an image in the data's order.
  std::span<const float> finish();

 private:
  void keep();

  BatchSource& source_;
  const Program& program_;
  std::int64_t rows_ = 0;  // of the batch that is being computed
  std::vector<float> logits_;
};

// UsageError for a name that is not *.safetensors, and for data errors that leave images out.
void check_logits_path(const std::string& path, const RunOptions& options);

// A safetensors file: `logits` F32 [images, classes] and `label` I64 [images], in the data's order;
// the classes' names as a JSON array in its metadata.
void write_logits(const std::filesystem::path& path, std::span<const float> logits,
                  const data::Dataset& dataset);

}  // namespace warpstep::tools
