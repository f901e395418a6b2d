#include "engine/run/store.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <ranges>

#include "engine/core/cpus.h"
#include "engine/core/error.h"
#include "engine/core/thread.h"
#include "engine/passes/memory.h"
#include "engine/run/initial_values.h"

namespace warpstep {
namespace {

// Calls work(begin, end) for shares of [0, count) in parallel, where each of the `count` pieces of
// work is of `elements`. `work` must not throw. Shares whose threads cannot be started are done
// here.
template <class Work>
void in_parallel(std::int64_t count, std::int64_t elements, const Work& work) {
  constexpr std::int64_t least_elements = 1 << 16;  // worth a thread's start: some 0.1 ms of copies
  const std::int64_t cores = allowed_cores();
  const std::int64_t shares =
      std::clamp<std::int64_t>(count * elements / least_elements, 1, std::min(cores, count + 1));
  const auto end_of = [&](std::int64_t share) { return count * (share + 1) / shares; };
  std::vector<std::thread> threads(idx(shares - 1));
  for (std::int64_t s = 1; s < shares; ++s) {
    const auto part = [&work, begin = end_of(s - 1), end = end_of(s)] { work(begin, end); };
    if (!try_start_thread(threads[idx(s - 1)], "store", part).empty()) part();
  }
  work(std::int64_t{0}, end_of(0));
  for (std::thread& thread : threads)
    if (thread.joinable()) thread.join();
}

// Whether PyTorch's order of a parameter's elements is the engine's.
bool same_order(const Parameter& parameter) {
  return std::ranges::is_sorted(parameter.permutation);
}

struct Axis {
  std::int64_t extent = 1, torch = 0, engine = 0;  // strides
};

// Of a parameter, in PyTorch's order.
std::vector<Axis> axes_of(const Parameter& parameter) {
  std::vector<Axis> axes(parameter.permutation.size());
  std::int64_t stride = 1;
  for (int axis = static_cast<int>(axes.size()) - 1; axis >= 0; --axis) {
    Axis& here =
        axes[idx(std::ranges::find(parameter.permutation, axis) - parameter.permutation.begin())];
    here.extent = parameter.view[axis];
    here.engine = stride;
    stride *= here.extent;
  }
  stride = 1;
  for (Axis& axis : std::views::reverse(axes)) {
    axis.torch = stride;
    stride *= axis.extent;
  }
  return axes;
}

// Calls visit(engine index, torch index) for every element of a parameter with axes, in parallel.
// Squares of 16 x 16 elements use each cache line of both orders at once: the 85 million of
// GPT-2's matrices take 0.2 s of one core, row by row 1.1 s.
template <class Visit>
void for_each_element(const Parameter& parameter, const Visit& visit) {
  constexpr std::int64_t side = 16;
  std::vector<Axis> outer = axes_of(parameter);
  const Axis columns = outer.back();  // adjacent for PyTorch; rows for the engine
  outer.pop_back();
  Axis rows;
  const auto found = std::ranges::find(outer, 1, &Axis::engine);
  if (columns.engine != 1 && found != outer.end()) {
    rows = *found;
    outer.erase(found);
  }
  const std::int64_t strips = (rows.extent + side - 1) / side;
  std::int64_t count = strips;
  for (const Axis& axis : outer) count *= axis.extent;
  in_parallel(count, side * columns.extent, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t strip = begin; strip < end; ++strip) {
      std::int64_t engine = 0, torch = 0, rest = strip / strips;
      for (const Axis& axis : outer) {
        engine += rest % axis.extent * axis.engine;
        torch += rest % axis.extent * axis.torch;
        rest /= axis.extent;
      }
      const std::int64_t first = strip % strips * side, last = std::min(first + side, rows.extent);
      for (std::int64_t column = 0; column < columns.extent; column += side)
        for (std::int64_t row = first; row < last; ++row)
          for (std::int64_t c = column; c < std::min(column + side, columns.extent); ++c)
            visit(idx(engine + row * rows.engine + c * columns.engine),
                  idx(torch + row * rows.torch + c));
    }
  });
}

std::size_t section_bytes_of(const Graph& graph, std::size_t parameter) {
  const std::size_t bytes = graph.value(graph.parameters[parameter].value).layout.bytes;
  return align_up(bytes);
}

// Of a store without this section, and why.
std::string_view what_is_missing(Store::Section section) {
  switch (section) {
    case Store::Section::parameter: return "parameters: its model has none";
    case Store::Section::gradient: return "gradients: it does not train";
    case Store::Section::moment1: return "moments: it does not train, or its optimiser has none";
    case Store::Section::moment2:
      return "second moments: it does not train, or its optimiser has none";
    case Store::Section::copy: return "copies: its step computes with the parameters";
    case Store::Section::accumulator:
      return "sums of gradients: it does not train, or each of its steps makes an update";
    case Store::Section::average: return "averages: its step keeps none of the parameters";
  }
  return "such section";
}

}  // namespace

Sections sections(const Graph& graph) {
  Sections result;
  result.offsets.resize(graph.parameters.size());
  for (const std::size_t p : graph.section_order()) {
    result.offsets[p] = result.bytes;
    result.bytes += section_bytes_of(graph, p);
  }
  return result;
}

std::int64_t section_elements(const Graph& graph, std::size_t element_bytes) {
  return static_cast<std::int64_t>(sections(graph).bytes / element_bytes);
}

std::int64_t section_elements(const Graph& graph, const Node& update_all,
                              std::size_t element_bytes) {
  std::size_t bytes = 0;
  for (const int id : update_all.in)
    if (const Value& value = graph.value(id); value.role == Role::parameter)
      bytes += section_bytes_of(graph, idx(value.owner));
  return static_cast<std::int64_t>(bytes / element_bytes);
}

namespace {

// Where the share of each rank ends in a section, in elements.
std::vector<std::int64_t> share_ends(const Graph& graph) {
  const std::int64_t elements = section_elements(graph);
  const std::int64_t chunks = (elements + shard_elements - 1) / shard_elements;
  std::vector<std::int64_t> ends;
  for (std::int64_t r = 1; r <= graph.shards.ranks; ++r)
    ends.push_back(std::min(elements, chunks * r / graph.shards.ranks * shard_elements));
  return ends;
}

}  // namespace

std::vector<SectionRun> section_runs(const Graph& graph, const Node& node) {
  const std::vector<std::size_t> order = graph.section_order();
  std::vector<std::size_t> place(order.size());
  for (std::size_t i = 0; i < order.size(); ++i) place[order[i]] = i;
  const Sections all = sections(graph);
  std::vector<SectionRun> runs;
  std::size_t next = order.size();  // the place that would continue the last run
  for (std::size_t i = 0; i < node.in.size(); ++i) {
    const auto p = idx(graph.value(node.in[i]).owner);
    if (place[p] != next)
      runs.push_back({i, static_cast<std::int64_t>(all.offsets[p] / sizeof(float)), 0, {}});
    runs.back().elements += static_cast<std::int64_t>(section_bytes_of(graph, p) / sizeof(float));
    next = place[p] + 1;
  }
  for (SectionRun& run : runs)
    for (const std::int64_t end : share_ends(graph))
      run.ends.push_back(idx(std::clamp<std::int64_t>(end - run.begin, 0, run.elements)));
  return runs;
}

OwnPart own_part(const Graph& graph, const SectionRun& run) {
  if (graph.shards.ranks < 2) return {.begin = 0, .elements = run.elements, .moments = 0};
  const std::vector<std::int64_t> ends = share_ends(graph);
  const auto rank = idx(graph.shards.rank);
  const std::int64_t share = rank == 0 ? 0 : ends[rank - 1];
  const std::int64_t begin = std::clamp<std::int64_t>(share - run.begin, 0, run.elements);
  const std::int64_t end = std::clamp<std::int64_t>(ends[rank] - run.begin, 0, run.elements);
  return {.begin = begin,
          .elements = end - begin,
          .moments = end > begin ? run.begin + begin - share : 0};
}

SectionRun update_run(const Graph& graph, const Node& update, std::int64_t elements,
                      std::size_t element_bytes) {
  const auto p = idx(graph.value(update.in[0]).owner);
  return {0, static_cast<std::int64_t>(sections(graph).offsets[p] / element_bytes), elements, {}};
}

namespace {

std::shared_ptr<const Backend> given(std::shared_ptr<const Backend> backend, const Graph& graph) {
  if (!backend) fail<UsageError>("a store of no backend: the pointer is null; see open_backend()");
  for (const Parameter& parameter : graph.parameters)
    if (graph.value(parameter.value).layout.bytes == 0)
      fail<UsageError>("{}: its layout is not chosen; call the backend's choose_layouts() first",
                       parameter.name);
  return backend;
}

}  // namespace

Store::Store(std::shared_ptr<const Backend> backend, const Graph& graph)
    : backend_(given(std::move(backend), graph)),
      parameters_(graph.parameters),
      set_(graph.parameters.size()),
      sections_(sections(graph)) {
  if (graph.shards.ranks > 1) {
    for (const std::int64_t end : share_ends(graph)) shard_ends_.push_back(idx(end));
    rank_ = idx(graph.shards.rank);
  }
  add_part(Section::parameter, graph, &Parameter::value);
  add_part(Section::gradient, graph, &Parameter::gradient);
  add_moments(graph);
  add_part(Section::copy, graph, &Parameter::copy);
  add_part(Section::accumulator, graph, &Parameter::accumulator);
  add_part(Section::average, graph, &Parameter::average);
  add_buffers(graph);
  memory_ = backend_->allocate(bytes_);
  state_value_.type = {DType::u8, {sizeof(StepState)}};
  state_value_.role = Role::state;
  state_value_.layout.bytes = sizeof(StepState);
  state_ = backend_->allocate(sizeof(StepState));
  reports_ = backend_->allocate_host(report_ring * sizeof(StepReport));
  blocks_ = graph.blocks.size();
  if (blocks_ > 0) block_sums_ = backend_->allocate_host(report_ring * blocks_ * sizeof(BlockSums));
  set_step_state({});
}

void Store::add_part(Section section, const Graph& graph, int Parameter::*value) {
  if (parameters_.empty() || parameters_[0].*value < 0) return;
  for (const Parameter& parameter : parameters_)
    part(section).values.push_back(graph.value(parameter.*value));
  place(part(section));
}

void Store::add_moments(const Graph& graph) {
  if (parameters_.empty()) return;
  moments_ = static_cast<int>(parameters_[0].moments.size());
  for (int m = 0; m < moments_; ++m) {
    Part& moments = part(moments_section(m));
    for (const Parameter& parameter : parameters_)
      moments.values.push_back(graph.value(parameter.moments[idx(m)]));
    place(moments, shard_ends_.empty() ? sections_.bytes : share().elements * sizeof(float));
  }
}

void Store::add_buffers(const Graph& graph) {
  buffers_ = graph.buffers;
  for (const Buffer& buffer : buffers_) {
    buffer_values_.push_back(graph.value(buffer.value));
    buffer_offsets_.push_back(bytes_);
    bytes_ += align_up(buffer_values_.back().layout.bytes);
  }
}

void Store::place(Part& added) {
  place(added, sections_.bytes);
}

void Store::place(Part& added, std::size_t bytes) {
  const std::size_t parameter_bytes = part(Section::parameter).values[0].layout.bytes;
  added.shrink = std::max<std::size_t>(1, parameter_bytes / added.values[0].layout.bytes);
  added.begin = bytes_;
  bytes_ += align_up(bytes / added.shrink);
}

std::int64_t Store::parameter_count() const {
  std::int64_t count = 0;
  for (const Parameter& parameter : parameters_) count += parameter.view.count();
  return count;
}

std::size_t Store::bytes() const {
  return bytes_;
}

std::size_t Store::section_bytes(Section section) const {
  const Part& p = part(section);
  if (p.values.empty()) return 0;
  return (is_shared_out(section) ? share().elements * sizeof(float) : sections_.bytes) / p.shrink;
}

std::byte* Store::section_address(std::size_t parameter, Section section) const {
  require(parameter, parameters_.size(), "parameter");
  const Part& p = part(section);
  if (p.values.empty()) fail<Error>("this store has no {}", what_is_missing(section));
  if (!is_shared_out(section))
    return memory_.get() + p.begin + sections_.offsets[parameter] / p.shrink;
  std::byte* all = all_moments_[section == Section::moment1 ? 0 : 1].get();
  if (!all) fail<Error>("this rank has only its share of the optimiser's moments");
  return all + sections_.offsets[parameter] / p.shrink;
}

bool Store::is_shared_out(Section section) const {
  return !shard_ends_.empty() && (section == Section::moment1 || section == Section::moment2);
}

Store::Share Store::share(std::size_t rank) const {
  const std::size_t begin = rank == 0 ? 0 : shard_ends_[rank - 1];
  return {begin, shard_ends_[rank] - begin};
}

// Bytes as they are stored.
Value Store::raw(std::size_t bytes) const {
  Value value = state_value_;
  value.type.shape = {static_cast<std::int64_t>(bytes)};
  value.layout.bytes = bytes;
  return value;
}

void Store::begin_moments() {
  for (int m = 0; m < moments_; ++m)
    if (!all_moments_[idx(m)])
      all_moments_[idx(m)] = backend_->allocate_host(sections_.bytes / moments_part(m).shrink);
}

// A piece of each rank's share at a time: rank 0 alone has memory for all.
void Store::gather_moments(Communicator& communicator) {
  constexpr std::size_t piece_bytes = std::size_t{4} << 20;  // of all ranks together
  if (shard_ends_.empty() || moments_ == 0) return;
  const std::size_t ranks = shard_ends_.size();
  const std::size_t most = std::max<std::size_t>(1, piece_bytes / sizeof(float) / ranks);
  if (rank_ == 0) begin_moments();
  std::vector<std::byte> bytes;
  for (int m = 0; m < moments_; ++m) {
    const Part& moments = moments_part(m);
    const std::size_t element = sizeof(float) / moments.shrink;
    for (std::size_t at = 0; at < sections_.bytes / sizeof(float); at += most) {
      const auto piece = [&](std::size_t rank) {
        return element * (std::clamp(share(rank).elements, at, at + most) - at);
      };
      std::vector<std::size_t> ends;
      for (std::size_t r = 0; r < ranks; ++r) ends.push_back((r == 0 ? 0 : ends.back()) + piece(r));
      if (ends.back() == 0) break;
      bytes.resize(ends.back());
      const auto of = [&](std::size_t rank) {
        return std::span(bytes).subspan(ends[rank] - piece(rank), piece(rank));
      };
      if (const std::span own = of(rank_); !own.empty())
        backend_->read(raw(own.size()), memory_.get() + moments.begin + at * element, own);
      communicator.all_gather(bytes, ends);
      for (std::size_t r = 0; rank_ == 0 && r < ranks; ++r)
        if (const std::span got = of(r); !got.empty())
          backend_->write(raw(got.size()),
                          all_moments_[idx(m)].get() + (share(r).begin + at) * element, got);
    }
  }
}

void Store::keep_own_moments() {
  for (int m = 0; m < moments_; ++m) {
    if (!all_moments_[idx(m)]) continue;
    const Part& moments = moments_part(m);
    const std::size_t element = sizeof(float) / moments.shrink;
    std::vector<std::byte> bytes(share().elements * element);
    backend_->read(raw(bytes.size()), all_moments_[idx(m)].get() + share().begin * element, bytes);
    backend_->write(raw(bytes.size()), memory_.get() + moments.begin, bytes);
    all_moments_[idx(m)] = nullptr;
  }
}

void* Store::address(const Value& value) const {
  if (value.role == Role::state) return state_.get();
  if (value.role == Role::report) return reports_.get();
  if (value.role == Role::sums) return block_sums_.get();
  const std::size_t p = idx(value.owner);
  switch (value.role) {
    case Role::parameter: return section_address(p, Section::parameter);
    case Role::gradient: return section_address(p, Section::gradient);
    case Role::copy: return section_address(p, Section::copy);
    case Role::accumulator: return section_address(p, Section::accumulator);
    case Role::average: return section_address(p, Section::average);
    case Role::buffer:
      require(p, buffers_.size(), "buffer");
      return memory_.get() + buffer_offsets_[p];
    case Role::moment: {
      const Section section = moments_section(value.moment);
      return is_shared_out(section) ? memory_.get() + part(section).begin
                                    : section_address(p, section);
    }
    default: fail<Error>("{} does not persist", value.name);
  }
}

void Store::fix_layouts(Graph& graph) const {
  if (graph.parameters.size() != parameters_.size())
    fail<Error>("a graph with {} parameters cannot use a store of {}", graph.parameters.size(),
                parameters_.size());
  for (std::size_t p = 0; p < parameters_.size(); ++p) {
    Value& value = graph.value(graph.parameters[p].value);
    const Value& kept = part(Section::parameter).values[p];
    if (graph.parameters[p].name != parameters_[p].name || value.type != kept.type)
      fail<Error>("parameter {} is {} {} in the graph, {} {} in the store", p,
                  graph.parameters[p].name, value.type.text(), parameters_[p].name,
                  kept.type.text());
    value.layout = kept.layout;
    const int copy = graph.parameters[p].copy;
    const bool copies = !part(Section::copy).values.empty();
    if ((copy >= 0) != copies ||
        (copies && graph.value(copy).type != part(Section::copy).values[p].type))
      fail<Error>("the graph and the store of {} differ in precision", parameters_[p].name);
    if (copies) graph.value(copy).layout = part(Section::copy).values[p].layout;
  }
  require_buffers(graph);
}

void Store::require_buffers(const Graph& graph) const {
  if (graph.buffers.size() != buffers_.size())
    fail<Error>("a graph with {} buffers cannot use a store of {}", graph.buffers.size(),
                buffers_.size());
  for (std::size_t b = 0; b < buffers_.size(); ++b)
    if (graph.buffers[b].name != buffers_[b].name ||
        graph.value(graph.buffers[b].value).type != buffer_values_[b].type)
      fail<Error>("buffer {} is {} in the graph, {} in the store", b, graph.buffers[b].name,
                  buffers_[b].name);
}

// What earlier steps have left. Fresh memory is zero, and its pages belong to whom first uses them.
void Store::forget_steps() {
  const bool is_used = step_state().step > 0 || std::ranges::find(set_, true) != set_.end();
  for (const Section section : {Section::moment1, Section::moment2, Section::accumulator})
    if (const std::size_t bytes = section_bytes(section); is_used && bytes > 0)
      backend_->fill(memory_.get() + part(section).begin, 0, bytes);
  all_moments_ = {};
}

void Store::initialize(std::uint64_t seed) {
  forget_steps();
  std::vector<float> values;  // of the largest parameter so far: fresh memory costs page faults
  for (std::size_t p = 0; p < parameters_.size(); ++p) {
    const std::int64_t count = parameters_[p].view.count();
    if (values.size() < idx(count)) values.resize(idx(count));
    const InitialDraws of{parameters_[p].initial, seed, static_cast<std::uint32_t>(p)};
    in_parallel((count + 3) / 4, 4, [&](std::int64_t begin, std::int64_t end) {
      initial_values(of, begin, std::min(4 * end, count) - 4 * begin, values.data() + 4 * begin);
    });
    write(p, std::span(values).first(idx(count)));
  }
  initialize_buffers();
  StepState state;
  state.seed = seed;
  set_step_state(state);
}

int Store::first_unset() const {
  const auto found = std::ranges::find(set_, false);
  return found == set_.end() ? -1 : static_cast<int>(found - set_.begin());
}

void Store::initialize_buffers() {
  for (std::size_t b = 0; b < buffers_.size(); ++b) {
    const std::vector<float>& initial = buffers_[b].initial;
    const auto count = idx(buffer_shape(b).count());
    write_buffer(b, initial.size() == count ? initial : std::vector<float>(count, initial[0]));
  }
}

void Store::require(std::size_t index, std::size_t count, std::string_view what) {
  if (index >= count) fail<UsageError>("{} {} of a store of {}", what, index, count);
}

const Shape& Store::buffer_shape(std::size_t buffer) const {
  require(buffer, buffers_.size(), "buffer");
  return buffer_values_[buffer].type.shape;
}

std::vector<float> Store::read_buffer(std::size_t buffer) const {
  require(buffer, buffers_.size(), "buffer");
  const Value& value = buffer_values_[buffer];
  std::vector<float> values(idx(value.type.shape.count()));
  backend_->read(value, memory_.get() + buffer_offsets_[buffer],
                 std::as_writable_bytes(std::span(values)));
  return values;
}

void Store::write_buffer(std::size_t buffer, std::span<const float> values) {
  require(buffer, buffers_.size(), "buffer");
  const Value& value = buffer_values_[buffer];
  if (values.size() != idx(value.type.shape.count()))
    fail<Error>("{}: {} values for {}", buffers_[buffer].name, values.size(), value.type.text());
  backend_->write(value, memory_.get() + buffer_offsets_[buffer], std::as_bytes(values));
}

Shape Store::torch_shape(std::size_t parameter) const {
  require(parameter, parameters_.size(), "parameter");
  return parameters_[parameter].torch_shape(part(Section::parameter).values[parameter].type.shape);
}

std::vector<float> Store::read(std::size_t parameter, Section section) const {
  section_address(parameter, section);  // throws if the store has no such section
  std::vector<float> values(idx(part(section).values[parameter].type.shape.count()));
  read(parameter, section, values);
  return values;
}

void Store::read(std::size_t parameter, Section section, std::span<float> values) const {
  Scratch scratch;
  read(parameter, section, values, scratch);
}

void Store::read(std::size_t parameter, Section section, std::span<float> values,
                 Scratch& scratch) const {
  const std::byte* stored = section_address(parameter, section);
  const Value& value = part(section).values[parameter];
  if (values.size() != idx(value.type.shape.count()))
    fail<Error>("{}: room for {} values of {}", parameters_[parameter].name, values.size(),
                value.type.text());
  if (same_order(parameters_[parameter])) {
    backend_->read(value, stored, std::as_writable_bytes(values));
    return;
  }
  const std::span<float> plain = scratch.floats(values.size());
  backend_->read(value, stored, std::as_writable_bytes(plain));
  for_each_element(parameters_[parameter],
                   [&](std::size_t e, std::size_t t) { values[t] = plain[e]; });
}

void Store::write(std::size_t parameter, std::span<const float> torch, Section section) {
  require(parameter, parameters_.size(), "parameter");
  const Value& value = part(Section::parameter).values[parameter];
  if (torch.size() != idx(value.type.shape.count()))
    fail<Error>("{}: {} values for {}", parameters_[parameter].name, torch.size(),
                value.type.text());
  std::vector<float> reordered;
  if (!same_order(parameters_[parameter])) {
    reordered.resize(torch.size());
    for_each_element(parameters_[parameter],
                     [&](std::size_t e, std::size_t t) { reordered[e] = torch[t]; });
  }
  const std::span<const float> plain = reordered.empty() ? torch : reordered;
  if (is_shared_out(section)) begin_moments();
  write_plain(parameter, plain, section);
  if (section == Section::parameter) set_[parameter] = true;
  if (section == Section::parameter && !part(Section::copy).values.empty())
    write_plain(parameter, plain, Section::copy);
  if (section == Section::parameter && !part(Section::average).values.empty())
    write_plain(parameter, plain, Section::average);
}

void Store::write_plain(std::size_t parameter, std::span<const float> plain, Section section) {
  std::byte* stored = section_address(parameter, section);
  backend_->write(part(section).values[parameter], stored, std::as_bytes(plain));
}

StepReport Store::report(std::int64_t step) const {
  if (!reports_ || step < 0)
    fail<DeviceError>("{}: no report of step {} arrived", backend_->name(), step);
  const StepReport found = reinterpret_cast<const StepReport*>(reports_.get())[step % report_ring];
  if (found.step != step)
    fail<DeviceError>("{}: no report of step {} arrived; the last one is of step {}",
                      backend_->name(), step, found.step);
  return found;
}

std::span<const BlockSums> Store::block_sums(std::int64_t step) const {
  if (blocks_ == 0) return {};
  if (step < 0) fail<UsageError>("the sums of step {}", step);
  const auto* ring = reinterpret_cast<const BlockSums*>(block_sums_.get());
  return {ring + idx(step % report_ring) * blocks_, blocks_};
}

StepState Store::step_state() const {
  StepState state;
  backend_->read(state_value_, state_.get(), std::as_writable_bytes(std::span(&state, 1)));
  return state;
}

void Store::set_step_state(const StepState& state) {
  backend_->write(state_value_, state_.get(), std::as_bytes(std::span(&state, 1)));
}

}  // namespace warpstep
