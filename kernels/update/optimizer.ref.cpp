// What stands beside the update: norm, sums over steps, LARS, the average of the weights.
#include <cmath>

#include "engine/store.h"
#include "kernels/ref/ref.h"
#include "kernels/update/gradients.h"

namespace warpstep::ref {
namespace {

double squares(const double* x, std::int64_t count) {
  double sum = 0;
  for (std::int64_t i = 0; i < count; ++i) sum += x[i] * x[i];
  return sum;
}

std::vector<std::int64_t> counts_of(const Operands& operands) {
  std::vector<std::int64_t> counts;
  for (std::size_t i = 0; i < operands.node.in.size(); ++i)
    counts.push_back(operands.in_shape(static_cast<int>(i)).count());
  return counts;
}

}  // namespace

std::unique_ptr<Kernel> bind(const CheckGradients& op, const Operands& operands) {
  return host_kernel("loops", [op, counts = counts_of(operands)](const Buffers& b) {
    double sum = 0;
    bool finite = true;
    for (std::size_t p = 1; p < b.in.size(); ++p) {
      const double* g = as<double>(b.in[p]);
      for (std::int64_t i = 0; i < counts[p]; ++i) finite = finite && std::isfinite(g[i]);
      sum += squares(g, counts[p]);
    }
    settle_norm(*as<StepState>(b.in[0]), sum, finite, op.clip_norm);
  });
}

std::unique_ptr<Kernel> bind(const Accumulate& op, const Operands& operands) {
  return host_kernel("loops", [op, counts = counts_of(operands)](const Buffers& b) {
    const bool first = as<StepState>(b.in[0])->micro_step == 0;
    for (std::size_t p = 1; p < b.in.size(); p += 2)
      for (std::int64_t i = 0; i < counts[p]; ++i) {
        double& sum = as<double>(b.in[p + 1])[i];
        sum = (first ? 0 : sum) + as<double>(b.in[p])[i] / static_cast<double>(op.steps);
      }
  });
}

std::unique_ptr<Kernel> bind(const LarsScale& op, const Operands& operands) {
  std::vector<DType> stored;
  for (const int id : operands.node.in) stored.push_back(operands.graph.value(id).type.dtype);
  return host_kernel(
      "loops", [op, stored, counts = counts_of(operands),
                scaled = lars_inputs(operands.graph, operands.node)](const Buffers& b) {
        const auto& state = *as<StepState>(b.in[0]);
        if (!updates(state)) return;
        for (const std::size_t p : scaled) {
          const double* w = as<double>(b.in[p]);
          double* g = as<double>(b.in[p + 1]);
          const LarsFactor f = lars_factor(op, state, squares(w, counts[p]), squares(g, counts[p]));
          for (std::int64_t i = 0; f.factor != 0 && i < counts[p]; ++i)
            g[i] = rounded(f.factor * (g[i] + f.decay * w[i]), stored[p + 1]);
        }
      });
}

std::unique_ptr<Kernel> bind(const Average& op, const Operands& operands) {
  return host_kernel("loops", [op, counts = counts_of(operands)](const Buffers& b) {
    if (!updates(*as<StepState>(b.in[0]))) return;
    for (std::size_t p = 1; p < b.in.size(); p += 2)
      for (std::int64_t i = 0; i < counts[p]; ++i) {
        double& average = as<double>(b.in[p + 1])[i];
        average = op.decay * average + (1 - op.decay) * as<double>(b.in[p])[i];
      }
  });
}

}  // namespace warpstep::ref
