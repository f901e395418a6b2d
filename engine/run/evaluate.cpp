#include "engine/run/evaluate.h"

#include <algorithm>
#include <array>
#include <limits>

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

std::string stored_text(const Value& value) {
  return fmt::format("{}, {} bytes", value.type.text(), value.layout.bytes);
}

// Whether `given` is in the device's memory already, outside of what a batch brings: a set.
bool is_resident_set(const Value& slot, const Batch& batch, std::span<const std::byte> given) {
  const std::byte *begin = batch.slot.data(), *end = begin + batch.slot.size();
  return slot.role == Role::resident && (given.data() < begin || given.data() >= end);
}

// What kernels take as indices. Data sets have checked theirs; those of a device are not in the
// host's memory.
class Indices {
 public:
  Indices(const Program& program, const Batch& batch) : program_(program), batch_(batch) {}

  // Throws DataError for one that is out of bounds.
  void require() const {
    for (const Node& node : program_.graph().nodes) {
      if (std::holds_alternative<SoftmaxXent>(node.op) || std::holds_alternative<Nll>(node.op) ||
          std::holds_alternative<Top1>(node.op))
        require_labels(node);
      else if (std::holds_alternative<Embed>(node.op) || std::holds_alternative<EmbedAt>(node.op))
        require_below("token", given<std::int32_t>(node.in[0]), 0, extent(node.in[2], 0), "tokens");
      else if (std::holds_alternative<EmbedGrad>(node.op))
        require_order(node);
      else if (const auto* augment = std::get_if<Augment>(&node.op))
        require_images(node, augment->plan);
      if (const auto* embed = std::get_if<EmbedAt>(&node.op))
        require_position(node.in[1], extent(node.in[3], 0), embed->sequence);
      else if (const auto* attention = std::get_if<CachedAttention>(&node.op))
        require_position(node.in[2], extent(node.in[1], 1), attention->sequence);
    }
  }

 private:
  std::int64_t extent(int value, int axis) const {
    return program_.graph().value(value).type.shape[axis];
  }
  // Nothing for a value that is no input of the step.
  template <class T>
  std::span<const T> given(int value) const {
    const Value& slot = program_.graph().value(program_.plan().storage_of_value[idx(value)]);
    if (!is_given(slot.role)) return {};
    return batch_.get<T>(slot.name);
  }
  static void require_below(std::string_view what, std::span<const std::int32_t> numbers,
                            std::int64_t least, std::int64_t count, std::string_view counted) {
    for (std::size_t row = 0; row < numbers.size(); ++row)
      if (numbers[row] < least || numbers[row] >= count)
        refuse(what, numbers[row], row, fmt::format("the model has {} {}", count, counted));
  }
  [[noreturn]] static void refuse(std::string_view what, std::int64_t number, std::size_t row,
                                  const std::string& limit) {
    fail<DataError>("{} {} in row {} of a batch, but {}", what, number, row, limit);
  }
  // The gradient of a token's row of the table is the sum over its neighbours there.
  void require_order(const Node& node) const {
    const auto order = given<std::int32_t>(node.in[2]), tokens = given<std::int32_t>(node.in[1]);
    require_below("order", order, 0, extent(node.in[2], 0), "rows");
    if (tokens.size() != order.size()) return;
    for (std::size_t row = 1; row < order.size(); ++row)
      if (const auto before = idx(order[row - 1]), at = idx(order[row]);
          tokens[before] > tokens[at] || (tokens[before] == tokens[at] && before >= at))
        refuse("order", order[row], row,
               fmt::format("that row's token {} does not follow token {} of row {}: the order is "
                           "that of a stable sort of the rows by their tokens",
                           tokens[at], tokens[before], before));
  }
  // Of the first of `sequence` tokens.
  void require_position(int value, std::int64_t positions, std::int64_t sequence) const {
    require_below("position", given<std::int32_t>(value), 0, positions - sequence + 1,
                  "positions for the first of the step's tokens");
  }
  // A label below 0 is none.
  void require_labels(const Node& node) const {
    const std::int64_t classes = extent(node.in[0], 1);
    require_below("label", given<std::int32_t>(node.in[1]),
                  std::numeric_limits<std::int32_t>::min(), classes, "classes");
    if (node.in.size() < 3) return;
    const Type& third = program_.graph().value(node.in[2]).type;
    if (third != row_plans_type(extent(node.in[0], 0))) return;
    const auto rows = given<RowPlan>(node.in[2]);
    for (std::size_t row = 0; row < rows.size(); ++row)
      if (rows[row].weight < 1 && rows[row].pair_label >= classes)
        refuse("the pair's label", rows[row].pair_label, row,
               fmt::format("the model has {} classes", classes));
  }
  void require_images(const Node& node, const PixelPlan& plan) const {
    const Shape& shape = program_.graph().value(node.in[0]).type.shape;  // of u8; a set has more
    const auto pixels = given<std::uint8_t>(node.in[0]);
    if (pixels.empty()) return;
    const std::size_t images = pixels.size() / idx(shape[1] * shape[2] * shape[3]);
    const auto rows = given<RowPlan>(node.in[1]);
    for (std::size_t row = 0; row < rows.size(); ++row) {
      const RowPlan& its = rows[row];
      if (its.source >= images)
        refuse("image", its.source, row, fmt::format("there are {}", images));
      if (plan.mix && its.weight < 1 && its.pair >= rows.size())
        refuse("the pair", its.pair, row, fmt::format("it has {} rows", rows.size()));
    }
  }

  const Program& program_;
  const Batch& batch_;
};

// A kernel reads as many bytes as the slot has, whatever arrives. A set may have more.
void require_bytes(const Value& slot, const Batch& batch, std::span<const std::byte> given) {
  const std::size_t bytes = given.size();
  if (bytes == slot.layout.bytes) return;
  if (bytes > slot.layout.bytes && is_resident_set(slot, batch, given)) return;
  const bool as_f32 =
      is_float(slot.type.dtype) && bytes == idx(slot.type.shape.count()) * size_bytes(DType::f32);
  if (as_f32 && slot.type.dtype != DType::f32)
    fail<Error>(
        "in this precision the step reads '{}' as {}, but its source gives f32, {} bytes; let the "
        "model read it with convert(), which takes f32 in every precision",
        slot.name, stored_text(slot), bytes);
  if (as_f32)
    fail<Error>(
        "the step reads '{}' as {} in this backend, but its source gives f32, {} bytes; use "
        "another --device, or give u8 images (--normalize device)",
        slot.name, stored_text(slot), bytes);
  fail<Error>("the step reads '{}' as {}, but its source gives {} bytes", slot.name,
              stored_text(slot), bytes);
}

}  // namespace

Score& Score::operator+=(const Score& other) {
  loss_sum += other.loss_sum;
  correct += other.correct;
  count += other.count;
  weight += other.weight;
  return *this;
}

Score score_of(double loss, std::int64_t correct, std::int64_t count, double weight) {
  return {weight > 0 ? loss * weight : loss, correct, count, weight};
}

Score evaluate(Program& program, BatchSource& source, std::uint64_t limit_batches, Runner* runner) {
  return *evaluate_until(
      program, source, limit_batches, [] { return false; }, runner);
}

std::optional<Score> evaluate_until(Program& program, BatchSource& source,
                                    std::uint64_t limit_batches, const std::function<bool()>& stops,
                                    Runner* runner) {
  std::unique_ptr<Runner> own;
  if (!runner) runner = (own = eager_runner(program)).get();
  source.seek({});
  const std::uint64_t all = source.steps_per_epoch();
  const std::uint64_t batches = limit_batches == 0 ? all : std::min(all, limit_batches);
  Score total;
  for (std::uint64_t i = 0; i < batches; ++i) {
    if (stops()) return std::nullopt;
    const Batch& batch = next_batch(source);
    const record::PhasePart time(kernels_name);
    give_batch(program, batch);
    runner->step();
    total += score_of(static_cast<double>(program.loss()), program.correct(), batch.count,
                      batch.loss_weight());
  }
  return total;
}

void give_batch(Program& program, const Batch& batch) {
  const Graph& graph = program.graph();
  std::array<const void*, most_inputs> slots{};
  if (graph.inputs.size() > slots.size())
    fail<Error>("the step has {} inputs, more than {}", graph.inputs.size(), slots.size());
  for (std::size_t i = 0; i < graph.inputs.size(); ++i) {
    const Value& slot = graph.value(graph.inputs[i]);
    for (std::size_t other = 0; other < i; ++other)
      if (graph.value(graph.inputs[other]).name == slot.name)
        fail<UsageError>(
            "two inputs of the step are called '{0}', and a batch gives one '{0}'; give each its "
            "own name, or use Program::set_inputs()",
            slot.name);
    const std::span<const std::byte> given = batch.get<std::byte>(slot.name);
    slots[i] = given.data();
    if (!slots[i])
      fail<Error>("the step reads '{}' of each batch, but its source provides none", slot.name);
    require_bytes(slot, batch, given);
  }
  if (program.backend().steps_in_flight() == 0) Indices(program, batch).require();
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
