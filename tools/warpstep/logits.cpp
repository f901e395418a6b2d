#include "tools/warpstep/logits.h"

#include <utility>

namespace warpstep::tools {
namespace {

// Those of the step that ran last, -1 where there is none: the batch itself may lie on a device.
std::vector<std::int32_t> labels_of(const Program& program) {
  const Graph& graph = program.graph();
  for (const int id : graph.inputs) {
    const Value& value = graph.value(id);
    if (value.name != "labels") continue;
    std::vector<std::int32_t> labels(static_cast<std::size_t>(value.type.shape.count()));
    program.backend().read(value, program.address(id), std::as_writable_bytes(std::span(labels)));
    return labels;
  }
  return {};
}

}  // namespace

const Batch& LogitsKeeper::next() {
  keep();
  const Batch& batch = source_.next();
  pending_ = true;
  return batch;
}

void LogitsKeeper::seek(Position position) {
  source_.seek(position);
  pending_ = false;
  logits_.clear();
  labels_.clear();
}

std::span<const float> LogitsKeeper::finish() {
  keep();
  return logits_;
}

void LogitsKeeper::keep() {
  if (!std::exchange(pending_, false)) return;
  const int id = program_.graph().logits;
  const std::vector<float> values = program_.read(id);
  const std::int64_t classes = program_.graph().value(id).type.shape.back();
  const std::vector<std::int32_t> labels = labels_of(program_);
  for (std::size_t row = 0; row < labels.size(); ++row) {
    if (labels[row] < 0) continue;  // padding
    const auto first = values.begin() + static_cast<std::int64_t>(row) * classes;
    logits_.insert(logits_.end(), first, first + classes);
    labels_.push_back(labels[row]);
  }
}

}  // namespace warpstep::tools
