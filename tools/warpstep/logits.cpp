#include "tools/warpstep/logits.h"

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

}  // namespace warpstep::tools
