#include "engine/graph/ops/statistics.h"

namespace warpstep {

Types infer(const ActivationStatistics& op, const Types& in) {
  require_inputs(op.name, in, 3, 3);
  return {};
}
Cost cost(const ActivationStatistics&, const Types& in, const Types&) {
  const auto elements = static_cast<double>(in[2].shape.count());
  return {5 * elements, static_cast<double>(in[2].bytes()), elements};
}
std::string text(const ActivationStatistics&) {
  return {};
}

Types infer(const UpdateStatistics& op, const Types& in) {
  require_inputs(op.name, in, 4 + idx(op.optimizer.moments()), 4 + idx(op.optimizer.moments()));
  return {};
}
Cost cost(const UpdateStatistics&, const Types& in, const Types&) {
  Cost cost{0, 0, static_cast<double>(in[2].shape.count())};
  for (std::size_t i = 2; i < in.size(); ++i) cost.bytes += static_cast<double>(in[i].bytes());
  cost.flops = 20 * static_cast<double>(in[2].shape.count());
  return cost;
}
std::string text(const UpdateStatistics& op) {
  return std::string(name(op.optimizer.kind));
}

}  // namespace warpstep
