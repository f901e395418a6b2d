#include "tests/trial.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <new>
#include <ostream>

#include "engine/core/error.h"
#include "engine/run/runner.h"
#include "tests/tolerance.h"

namespace warpstep::cases {
void PrintTo(const Case& c, std::ostream* out) {
  *out << c.name;
}
}  // namespace warpstep::cases

namespace warpstep::testing_support {
namespace {

// Values as the plain layout of `type` holds them.
std::vector<std::byte> plain_bytes(const Type& type, const std::vector<float>& values) {
  std::vector<std::byte> bytes;
  const auto append = [&](auto element) {
    const auto raw = std::as_bytes(std::span(&element, 1));
    bytes.insert(bytes.end(), raw.begin(), raw.end());
  };
  for (const float value : values) {
    if (type.dtype == DType::u8)
      append(static_cast<std::uint8_t>(value));
    else if (type.dtype == DType::i32)
      append(static_cast<std::int32_t>(value));
    else
      append(value);
  }
  return bytes;
}

}  // namespace

std::string test_name(const testing::TestParamInfo<cases::Case>& info) {
  std::string name = info.param.name;
  for (char& c : name)
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  return name;
}

bool lacks_engine(const cases::Case& c, const Backend& backend) {
  return std::ranges::any_of(c.graph.nodes, [&](const Node& node) {
    const auto* const conv = std::get_if<Conv>(&node.op);
    const auto* const dgrad = std::get_if<ConvDataGrad>(&node.op);
    const bool may_be_declined = (conv != nullptr && conv->pool) ||
                                 (dgrad != nullptr && dgrad->relu) ||
                                 std::holds_alternative<NormConv>(node.op) ||
                                 std::holds_alternative<NormConvDataGrad>(node.op) ||
                                 std::holds_alternative<NormConvWeightGrad>(node.op);
    return may_be_declined && !backend.computes(node.op, c.graph.types(node.in));
  });
}

std::shared_ptr<std::byte> guarded_memory(std::size_t bytes, Guarded guarded) {
  constexpr std::size_t line = 64;  // to which every operand is aligned
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  const std::size_t lines = (bytes + line - 1) / line * line;
  const std::size_t inner = std::max(page, (lines + page - 1) / page * page);
  const std::size_t mapped = inner + 2 * page;
  void* memory = mmap(nullptr, mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  auto* begin = static_cast<std::byte*>(memory) + page;
  std::byte* at = guarded == Guarded::begin ? begin : begin + inner - lines;
  std::shared_ptr<std::byte> owner(at, [memory, mapped](std::byte*) { munmap(memory, mapped); });
  if (mprotect(begin, inner, PROT_READ | PROT_WRITE) != 0) throw std::bad_alloc();
  return owner;
}

Trial::Trial(const cases::Case& c, std::shared_ptr<Backend> backend, std::uint64_t seed,
             Guarded guarded)
    : backend_(backend), nodes_(c.graph.nodes), program_(c.graph, std::move(backend)) {
  const bool on_cpu = backend_->name() == "cpu";
  for (const int id : program_.graph().inputs) {
    const std::size_t bytes = program_.graph().value(id).layout.bytes;
    slots_.push_back(on_cpu ? guarded_memory(bytes, guarded) : backend_->allocate(bytes));
    slot_addresses_.push_back(slots_.back().get());
  }
  program_.set_inputs(slot_addresses_);
  fill(c, seed);
}

void Trial::fill(const cases::Case& c, std::uint64_t seed) {
  const Graph& graph = program_.graph();
  for (const int id : graph.inputs) {
    const std::vector<std::byte> plain =
        plain_bytes(graph.value(id).type, cases::values(c, id, seed));
    backend_->write(graph.value(id), program_.address(id), plain);
  }
  fill_store(c, seed);
}

void Trial::fill_store(const cases::Case& c, std::uint64_t seed) {
  using Section = Store::Section;
  Store& store = program_.store();
  const auto write = [&](int id, std::size_t parameter, Section section) {
    store.write(parameter, cases::values(c, id, seed), section);
  };
  for (std::size_t p = 0; p < c.graph.parameters.size(); ++p) {
    const Parameter& parameter = c.graph.parameters[p];
    write(parameter.value, p, Section::parameter);
    const std::vector<int> producers = c.graph.producers();
    if (parameter.gradient >= 0 && producers[idx(parameter.gradient)] < 0)
      write(parameter.gradient, p, Section::gradient);
    for (std::size_t m = 0; m < parameter.moments.size(); ++m)
      write(parameter.moments[m], p, m == 0 ? Section::moment1 : Section::moment2);
    if (parameter.accumulator >= 0) write(parameter.accumulator, p, Section::accumulator);
    if (parameter.average >= 0) write(parameter.average, p, Section::average);
  }
  for (std::size_t b = 0; b < c.graph.buffers.size(); ++b)
    store.write_buffer(b, cases::values(c, c.graph.buffers[b].value, seed));
  StepState state;
  state.seed = seed;
  state.step = 3;  // as in the middle of a run: Adam's corrections differ from those of a start
  state.draw = (std::int64_t{1} << 33) + 3;  // draws whose counters have more than 32 bits
  if (c.midway) state.update = 0;
  store.set_step_state(state);
}

void Trial::replace(int id, const Result& by) {
  const Value& value = program_.graph().value(id);
  const std::vector<float> numbers(by.integers.begin(), by.integers.end());
  const bool floats = is_float(value.type.dtype);
  backend_->write(value, program_.address(id),
                  plain_bytes(value.type, floats ? by.floats : numbers));
}

Result Trial::read(int id, DType between, double depth) const {
  const Value& value = program_.graph().value(id);
  Result result{value.name + " " + value.type.text(), value.type.dtype, depth, between, {}, {}};
  if (is_float(value.type.dtype)) {
    result.floats = program_.read(id);
    return result;
  }
  program_.wait();
  std::vector<std::byte> plain(value.type.bytes());
  backend_->read(value, program_.address(id), plain);
  for (std::size_t i = 0; i < plain.size(); i += size_bytes(value.type.dtype)) {
    std::int32_t element = 0;
    std::memcpy(&element, &plain[i], size_bytes(value.type.dtype));  // little-endian
    result.integers.push_back(element);
  }
  return result;
}

void Trial::read_sections(std::vector<Result>& results) const {
  using Section = Store::Section;
  const Store& store = program_.store();
  const Graph& graph = program_.graph();
  for (std::size_t b = 0; b < store.buffers().size(); ++b)
    results.push_back(
        {store.buffers()[b].name, DType::f32, 1, DType::f32, store.read_buffer(b), {}});
  if (store.moment_count() == 0 && graph.state < 0) return;
  for (std::size_t p = 0; p < store.parameters().size(); ++p) {
    const auto keep = [&](Section section, DType dtype) {
      results.push_back(
          {fmt::format("{} section {}", store.parameters()[p].name, static_cast<int>(section)),
           dtype,
           1,
           DType::f32,
           store.read(p, section),
           {}});
    };
    keep(Section::parameter, DType::f32);
    const auto dtype_of = [&](int m) {
      return graph.value(graph.parameters[p].moments[idx(m)]).type.dtype;
    };
    if (store.moment_count() > 0) keep(Section::moment1, dtype_of(0));
    if (store.moment_count() > 1) keep(Section::moment2, dtype_of(1));
    if (graph.parameters[p].accumulator >= 0) keep(Section::accumulator, DType::f32);
    if (graph.parameters[p].average >= 0) keep(Section::average, DType::f32);
    if (const int copy = graph.parameters[p].copy; copy >= 0)
      keep(Section::copy, graph.value(copy).type.dtype);
  }
}

void Trial::read_state(std::vector<Result>& results) const {
  const Store& store = program_.store();
  const Graph& graph = program_.graph();
  if (store.moment_count() == 0 && graph.state < 0) return;
  const StepState state = store.step_state();
  results.push_back(
      {"step state",
       DType::f32,
       1,
       DType::f32,
       {static_cast<float>(state.step), state.learning_rate, state.loss_scale,
        state.bias_correction1, state.bias_correction2, static_cast<float>(state.overflow)},
       {}});
  results.push_back({"factor and norm",
                     DType::f32,
                     1,
                     DType::f32,
                     {state.gradient_factor, state.gradient_norm,
                      static_cast<float>(state.micro_step), static_cast<float>(state.update)},
                     {}});
  double depth = 0;
  for (const Node& node : graph.nodes) depth += graph.cost(node).depth;
  for (std::size_t b = 0; b < graph.blocks.size(); ++b) {
    const BlockSums& row = store.block_sums(state.step)[b];
    for (const auto& [name, sum] : {std::pair{"gradient squares", row.gradient_squares},
                                    {"parameter squares", row.parameter_squares},
                                    {"update squares", row.update_squares},
                                    {"sum", row.sum},
                                    {"squares", row.squares},
                                    {"largest", row.largest},
                                    {"nonzero", row.nonzero}})
      results.push_back({fmt::format("{} of {}", name, graph.blocks[b].name),
                         DType::f32,
                         depth,
                         DType::f32,
                         {static_cast<float>(sum)},
                         {}});
  }
  if (graph.report < 0) return;
  const StepReport report = store.report(state.step);
  results.push_back({"report",
                     DType::f32,
                     1,
                     DType::f32,
                     {report.loss, static_cast<float>(report.correct), report.learning_rate},
                     {}});
}

std::vector<Result> Trial::run(bool poison) {
  return run(poison, nullptr);
}

std::vector<Result> Trial::run_beside(const std::vector<Result>& other) {
  return run(false, &other);
}

std::vector<Result> Trial::run(bool poison, const std::vector<Result>* other) {
  const StepScope scope(*backend_);
  std::vector<Result> results;
  const Graph& graph = program_.graph();
  std::size_t call = 0, expected = 0;
  double depth = 0;
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& node = graph.nodes[n];
    std::size_t done = program_.calls().size();
    if (!is_view(node.op)) program_.enqueue(done = call++);
    if (expected < nodes_.size() && node.op == nodes_[expected].op) {
      ++expected;
      depth += graph.cost(node).depth;
      const auto keep = [&](int id, double of_depth) {
        results.push_back(read(id, rounded_between(graph, node), of_depth));
        if (other != nullptr) replace(id, other->at(results.size() - 1));
      };
      for (const int id : node.out)
        if (program_.address(id) && graph.value(id).role != Role::mask) keep(id, depth);
      for (const int id : node.in)
        if (is_float(graph.value(id).type.dtype) && changes(node.op, graph.value(id).role))
          keep(id, graph.cost(node).depth);
    }
    program_.wait();
    if (poison && done < program_.calls().size()) program_.poison_dead_buffers(done);
  }
  if (expected != nodes_.size())
    fail<Error>("{} of the case's {} nodes were found in the program", expected, nodes_.size());
  read_state(results);
  if (other == nullptr) read_sections(results);
  return results;
}

std::vector<double> Trial::exact(int value) const {
  const auto* numbers = static_cast<const double*>(program_.address(value));
  return {numbers, numbers + program_.graph().value(value).type.shape.count()};
}

std::map<int, std::vector<double>> Trial::exact_results() {
  std::map<int, std::vector<double>> results;
  std::size_t call = 0;
  for (const Node& node : program_.graph().nodes) {
    if (!is_view(node.op)) program_.enqueue(call++);
    for (const int id : node.out)
      if (is_float(program_.graph().value(id).type.dtype)) results[id] = exact(id);
  }
  return results;
}

void Trial::set_exact(int value, std::span<const double> numbers) {
  std::copy(numbers.begin(), numbers.end(), static_cast<double*>(program_.address(value)));
}

void Trial::enqueue_all() {
  const StepScope scope(*backend_);
  for (std::size_t i = 0; i < program_.calls().size(); ++i) program_.enqueue(i);
}

void Trial::record_all() {
  backend_->record(program_.stream(), [&] { enqueue_all(); });
}

}  // namespace warpstep::testing_support
