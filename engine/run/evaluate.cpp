#include "engine/run/evaluate.h"

#include <algorithm>
#include <array>

#include "engine/core/error.h"

namespace warpstep {

Score& Score::operator+=(const Score& other) {
  loss_sum += other.loss_sum;
  correct += other.correct;
  count += other.count;
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
    const Batch& batch = source.next();
    give_batch(program, batch);
    runner->step();
    total += Score{static_cast<double>(program.loss()) * static_cast<double>(batch.count),
                   program.correct(), batch.count};
  }
  return total;
}

void give_batch(Program& program, const Batch& batch) {
  const std::size_t inputs = program.graph().inputs.size();
  if (inputs > 2 && batch.rows.empty())
    fail<Error>("the step needs a plan for each row of a batch, but its source provides none");
  const std::array<const void*, 3> slots{batch.images.data(), batch.labels.data(),
                                         batch.rows.data()};
  program.set_inputs(std::span(slots).first(std::min(slots.size(), inputs)));
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
}

}  // namespace warpstep
