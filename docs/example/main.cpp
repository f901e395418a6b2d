// A program that uses an installed Warpstep: a model, its training step, and the listing of the
// step.
#include <fmt/format.h>

#include "engine/explain/explain.h"
#include "engine/graph/layers.h"
#include "engine/passes/compile.h"

using namespace warpstep;

int main() {
  Graph graph;
  const Tensor images = graph.input("images", {DType::u8, {32, 28, 28, 1}});
  const Tensor labels = graph.input("labels", {DType::i32, {32}});
  Tensor x = normalize(images, std::array{0.5F}, std::array{0.25F});
  x = max_pool(relu(conv("conv1", x, {.out = 8, .padding = 1})));
  cross_entropy(linear("fc1", flatten(x), {.out = 10}), labels);
  const std::shared_ptr<Backend> backend = open_backend("cpu");
  const StepOptions options = options_for(*backend, {.schedule = {.peak = 1e-3}});
  const Program step(compile_step(std::move(graph), options), backend);
  fmt::print("{}", explain(step));
}
