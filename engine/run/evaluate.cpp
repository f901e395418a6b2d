#include "engine/run/evaluate.h"

#include <algorithm>
#include <array>

#include "engine/core/error.h"
#include "engine/core/phase.h"

namespace warpstep {
namespace {

constexpr std::size_t most_inputs = 8;  // of a step

const record::Name data_name{"loader wait"}, kernels_name{"kernels"};

const Batch& next_batch(BatchSource& source) {
  const record::PhasePart time(data_name);
  return source.next();
}

}  // namespace

Score& Score::operator+=(const Score& other) {
  loss_sum += other.loss_sum;
  correct += other.correct;
  count += other.count;
  weight += other.weight;
  return *this;
}

Score evaluate(Program& program, BatchSource& source, std::uint64_t limit_batches, Runner* runner) {
  const std::atomic<bool> never{false};
  return *evaluate_until(program, source, limit_batches, never, runner);
}

std::optional<Score> evaluate_until(Program& program, BatchSource& source,
                                    std::uint64_t limit_batches, const std::atomic<bool>& stop,
                                    Runner* runner) {
  std::unique_ptr<Runner> own;
  if (!runner) runner = (own = eager_runner(program)).get();
  source.seek({});
  const std::uint64_t all = source.steps_per_epoch();
  const std::uint64_t batches = limit_batches == 0 ? all : std::min(all, limit_batches);
  Score total;
  for (std::uint64_t i = 0; i < batches; ++i) {
    if (stop) return std::nullopt;
    const Batch& batch = next_batch(source);
    const record::PhasePart time(kernels_name);
    give_batch(program, batch);
    runner->step();
    const double weight = batch.loss_weight();
    total +=
        Score{static_cast<double>(program.loss()) * weight, program.correct(), batch.count, weight};
  }
  return total;
}

void give_batch(Program& program, const Batch& batch) {
  const Graph& graph = program.graph();
  std::array<const void*, most_inputs> slots{};
  if (graph.inputs.size() > slots.size())
    fail<Error>("the step has {} inputs, more than {}", graph.inputs.size(), slots.size());
  for (std::size_t i = 0; i < graph.inputs.size(); ++i) {
    const std::string& name = graph.value(graph.inputs[i]).name;
    slots[i] = batch.get<std::byte>(name).data();
    if (!slots[i])
      fail<Error>("the step reads '{}' of each batch, but its source provides none", name);
  }
  program.set_inputs(std::span(slots).first(graph.inputs.size()));
}

void take_average(const Store& from, Store& to) {
  if (from.parameters().size() != to.parameters().size() ||
      from.buffers().size() != to.buffers().size())
    fail<Error>(
        "an evaluation with {} parameters and {} buffers cannot use the averages of a step with {} "
        "and {}",
        to.parameters().size(), to.buffers().size(), from.parameters().size(),
        from.buffers().size());
  for (std::size_t p = 0; p < from.parameters().size(); ++p)
    to.write(p, from.read(p, Store::Section::average));
  for (std::size_t b = 0; b < from.buffers().size(); ++b) to.write_buffer(b, from.read_buffer(b));
  to.set_step_state(from.step_state());
}

}  // namespace warpstep
