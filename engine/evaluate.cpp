#include "engine/evaluate.h"

#include <algorithm>
#include <array>

#include "engine/core/error.h"

namespace warpstep {

StepTimes& StepTimes::operator+=(const StepTimes& other) {
  data_ns += other.data_ns;
  copies_ns += other.copies_ns;
  kernels_ns += other.kernels_ns;
  cpu_ns += other.cpu_ns;
  other_ns += other.other_ns;
  return *this;
}

Score& Score::operator+=(const Score& other) {
  loss_sum += other.loss_sum;
  correct += other.correct;
  count += other.count;
  return *this;
}

// Images and labels, and the rows' plans for a step that takes them.
void give_batch(Program& program, const Batch& batch) {
  if (program.graph().inputs.size() > 2 && batch.rows.empty())
    fail<Error>("the step takes a plan for each row of a batch, and its source gives none");
  const std::array<const void*, 3> slots{batch.images.data(), batch.labels.data(),
                                         batch.rows.data()};
  program.set_inputs(std::span(slots).first(std::min(slots.size(), program.graph().inputs.size())));
}

void take_average(const Store& from, Store& to) {
  if (from.parameters().size() != to.parameters().size() ||
      from.buffers().size() != to.buffers().size())
    fail<Error>("an evaluation of {} parameters and {} buffers cannot take a step's {} and {}",
                to.parameters().size(), to.buffers().size(), from.parameters().size(),
                from.buffers().size());
  for (std::size_t p = 0; p < from.parameters().size(); ++p)
    to.write(p, from.read(p, Store::Section::average));
  for (std::size_t b = 0; b < from.buffers().size(); ++b) to.write_buffer(b, from.read_buffer(b));
}

namespace {

Score score_of(const Program& program, const Batch& batch) {
  return {static_cast<double>(program.loss()) * static_cast<double>(batch.count), program.correct(),
          batch.count};
}

}  // namespace

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
    total += score_of(program, batch);
  }
  return total;
}

Score evaluate(Program& program, BatchSource& source, std::uint64_t limit_batches, Runner* runner) {
  const std::atomic<bool> never{false};
  return *evaluate_until(program, source, limit_batches, never, runner);
}

}  // namespace warpstep
