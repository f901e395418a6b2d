#include "tools/warpstep/logits.h"

#include <nlohmann/json.hpp>

#include "engine/core/error.h"
#include "engine/safetensors.h"

namespace warpstep::tools {

const Batch& LogitsKeeper::next() {
  keep();
  const Batch& batch = source_.next();
  rows_ = batch.count;
  return batch;
}

void LogitsKeeper::seek(Position position) {
  source_.seek(position);
  rows_ = 0;
  logits_.clear();
}

std::span<const float> LogitsKeeper::finish() {
  keep();
  return logits_;
}

void LogitsKeeper::keep() {
  if (rows_ == 0) return;
  const int id = program_.graph().logits;
  const std::vector<float> values = program_.read(id);
  const std::int64_t classes = program_.graph().value(id).type.shape.back();
  logits_.insert(logits_.end(), values.begin(), values.begin() + rows_ * classes);
  rows_ = 0;
}

void check_logits_path(const std::string& path, const RunOptions& options) {
  if (path.empty()) return;
  if (!path.ends_with(".safetensors"))
    fail<UsageError>("--logits {}: is written as safetensors, so name it X.safetensors", path);
  if (options.data_errors != "fail")
    fail<UsageError>(
        "--logits has a row for every image, but --data-errors {} may leave some out; add "
        "--data-errors fail",
        options.data_errors);
}

void write_logits(const std::filesystem::path& path, std::span<const float> logits,
                  const data::Dataset& dataset) {
  const std::size_t classes = dataset.classes().size();
  const std::size_t rows = logits.size() / classes;
  std::vector<std::int64_t> labels;
  for (std::uint64_t i = 0; i < rows; ++i) labels.push_back(dataset.label(i));
  const std::vector<TensorToStore> tensors{
      {"label", StoredType::i64, {rows}, std::as_bytes(std::span(labels))},
      {"logits", StoredType::f32, {rows, classes}, std::as_bytes(logits)}};
  write_safetensors(
      path, tensors,
      {{"classes", nlohmann::json(dataset.classes()).dump()}, {"data", dataset.path()}});
}

}  // namespace warpstep::tools
