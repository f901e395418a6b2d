#include "engine/run/program.h"

#include <algorithm>

#include "engine/core/caught.h"
#include "engine/core/error.h"
#include "engine/run/step_memory.h"

namespace warpstep {

namespace {

std::shared_ptr<Backend> given(std::shared_ptr<Backend> backend) {
  if (!backend)
    fail<UsageError>("a program of no backend: the pointer is null; see open_backend()");
  return backend;
}

}  // namespace

double Call::executed_flops() const {
  const double own = kernel->flops();
  return own > 0 ? std::min(own, cost.flops) : cost.flops;
}

Program::Program(Graph graph, std::shared_ptr<Backend> backend, std::shared_ptr<Store> store,
                 bool allocates)
    : graph_(std::move(graph)),
      backend_(given(std::move(backend))),
      store_(std::move(store)),
      stream_(backend_->make_stream(Precedence::first)) {
  if (store_ && store_->backend().name() != backend_->name())
    fail<UsageError>(
        "a program of {} cannot use the memory of a store of {}; create its own, and copy the "
        "parameters with read() and write()",
        backend_->name(), store_->backend().name());
  if (store_) store_->fix_layouts(graph_);
  backend_->choose_layouts(graph_);
  store_sums_like_parameters(graph_);
  make_calls();
  allocate(allocates);
  slots_.assign(graph_.inputs.size(), nullptr);
  if (allocates) find_addresses();
}

namespace {

constexpr std::size_t most_workspace = std::size_t{1} << 60;  // sums of them do not overflow

bool is_exchange(const AnyOp& op) {
  return std::holds_alternative<AllReduce>(op) || std::holds_alternative<AllGather>(op);
}

}  // namespace

// What runs beside the chain of calls that a step's time is made of must not delay it; sums over
// ranks, which take few multiprocessors and long, must not be delayed.
Precedence Program::precedence_of(int lane) const {
  if (lane == Lanes::weight_gradients) return Precedence::second;
  for (std::size_t n = 0; n < graph_.nodes.size(); ++n)
    if (lanes_.lane[n] == lane && is_exchange(graph_.nodes[n].op)) return Precedence::first;
  return Precedence::last;
}

void Program::make_calls() {
  std::vector<std::size_t> workspaces(graph_.nodes.size());
  for (std::size_t n = 0; n < graph_.nodes.size(); ++n) {
    const Node& node = graph_.nodes[n];
    if (is_view(node.op)) continue;
    Call call;
    call.node = static_cast<int>(n);
    call.title = node.title();
    call.phase = node.phase;
    call.cost = naming(call.title, "cost()", [&] { return graph_.cost(node); });
    call.kernel = naming(call.title, "bind()", [&] { return backend_->bind(graph_, node); });
    workspaces[n] = call.kernel->workspace_bytes();
    if (workspaces[n] > most_workspace)
      fail<Error>("{}: its kernel asks for {} bytes of workspace", call.title, workspaces[n]);
    calls_.push_back(std::move(call));
  }
  LanePlan planned = plan_lanes(graph_, *backend_, workspaces);
  lanes_ = std::move(planned.lanes);
  plan_ = std::move(planned.memory);
  for (int lane = 1; lane < Lanes::count; ++lane)
    if (lanes_.used(lane)) side_[idx(lane)].stream = backend_->make_stream(precedence_of(lane));
}

void Program::allocate(bool arena) {
  try {
    if (!store_) store_ = std::make_shared<Store>(backend_, graph_);
    if (arena) arena_ = backend_->allocate(plan_.arena_bytes);
  } catch (const DeviceLost&) {
    throw;
  } catch (const DeviceError& error) {
    fail<OutOfMemory>("{}; {}", error.what(), memory_text(graph_, plan_));
  }
}

const Call& Program::call_at(std::size_t index) const {
  if (index >= calls_.size()) fail<UsageError>("call {} of a step of {}", index, calls_.size());
  return calls_[index];
}

// A kernel would read at address 0.
void Program::require_ready(std::span<const void* const> slots) const {
  if (slots.size() != graph_.inputs.size())
    fail<Error>("the step has {} inputs, not {}", graph_.inputs.size(), slots.size());
  for (std::size_t i = 0; i < slots.size(); ++i)
    if (!slots[i])
      fail<UsageError>(
          "the step's input '{}' was never given: call give_batch() or Program::set_inputs() "
          "before the first step",
          graph_.value(graph_.inputs[i]).name);
  for (const Call& call : calls_)
    if (call.out.size() != graph_.nodes[idx(call.node)].out.size())
      fail<UsageError>("this program was made without memory: it can be explained, not run");
}

bool Program::runs(std::size_t call) const {
  const AnyOp& op = graph_.nodes[idx(call_at(call).node)].op;
  return (measures_ || !is_measure(op)) && !(accumulates_ && is_exchange(op));
}

void Program::enqueue(std::size_t index) {
  const Call& call = call_at(index);
  if (index == 0) {
    require_ready(slots_);
    for (SideLane& side : side_) side.pending.clear();  // of a step or a capture that failed
  }
  if (!runs(index)) return;  // never the last call, which is the report
  const int lane = lanes_.lane[idx(call.node)];
  const auto enqueue_in = [&](Stream& stream) {
    naming(call.title, "kernel", [&] { call.kernel->enqueue(stream, call.buffers()); });
  };
  if (lane == 0) {
    wait_for_lanes(call.node);
    enqueue_in(*stream_);
  } else {
    SideLane& side = side_[idx(lane)];
    begin_in(lane);
    enqueue_in(*side.stream);
    side.pending.push_back({lanes_.waited_at[idx(call.node)], side.stream->signal()});
  }
  if (index + 1 == calls_.size()) wait_for_lanes(static_cast<int>(graph_.nodes.size()));
}

// What a side lane enqueues next begins after everything that lower lanes have enqueued.
void Program::begin_in(int lane) {
  Stream& stream = *side_[idx(lane)].stream;
  stream.after(*stream_, stream_->signal());
  for (int lower = 1; lower < lane; ++lower)
    if (const SideLane& side = side_[idx(lower)]; !side.pending.empty())
      stream.after(*side.stream, side.pending.back().signal);
}

// Waits for the last call of each lane that is due; the earlier ones are finished before it.
void Program::wait_for_lanes(int node) {
  for (SideLane& side : side_) {
    const auto due = std::find_if(side.pending.rbegin(), side.pending.rend(),
                                  [&](const Pending& p) { return p.waited_at <= node; });
    if (due == side.pending.rend()) continue;
    stream_->after(*side.stream, due->signal);
    side.pending.erase(side.pending.begin(), due.base());
  }
}

void Program::wait() const {
  stream_->wait();
  for (const SideLane& side : side_)
    if (side.stream) side.stream->wait();
}

void* Program::address(int id) const {
  if (id < 0 || idx(id) >= graph_.values.size())
    fail<UsageError>("value {} of a step of {}: its model sets none of this kind", id,
                     graph_.values.size());
  const int storage = plan_.storage_of_value[idx(id)];
  const Value& value = graph_.value(storage);
  if (is_persistent(value.role)) return store_->address(value);
  for (std::size_t i = 0; i < graph_.inputs.size(); ++i)
    if (graph_.inputs[i] == storage) return const_cast<void*>(slots_[i]);
  const int buffer = plan_.buffer_of_value[idx(storage)];
  return buffer < 0 || !arena_ ? nullptr : arena_.get() + plan_.buffers[idx(buffer)].offset;
}

void Program::find_addresses() {
  for (Call& call : calls_) {
    const Node& node = graph_.nodes[idx(call.node)];
    call.in.clear();
    call.out.clear();
    for (const int id : node.in) call.in.push_back(address(id));
    for (const int id : node.out) call.out.push_back(address(id));
    const int workspace = plan_.workspace_of_node[idx(call.node)];
    call.workspace = workspace < 0 ? nullptr : arena_.get() + plan_.buffers[idx(workspace)].offset;
  }
}

void Program::set_inputs(std::span<const void* const> slots) {
  if (slots.size() != graph_.inputs.size())
    fail<Error>("the step has {} inputs, not {}", graph_.inputs.size(), slots.size());
  if (std::equal(slots.begin(), slots.end(), slots_.begin())) return;
  slots_.assign(slots.begin(), slots.end());
  for (Call& call : calls_) {
    if (call.in.empty()) continue;  // without an arena calls have no addresses
    const Node& node = graph_.nodes[idx(call.node)];
    for (std::size_t i = 0; i < node.in.size(); ++i)
      if (is_given(graph_.value(plan_.storage_of_value[idx(node.in[i])]).role))
        call.in[i] = address(node.in[i]);
  }
}

void Program::set_variant(const StepVariant& variant) {
  set_inputs(variant.slots);
  measure(variant.measures);
  accumulate(variant.accumulates);
}

std::vector<float> Program::read(int id) const {
  void* const stored = address(id);
  const Value& value = graph_.value(id);
  if (!is_float(value.type.dtype))
    fail<UsageError>("{} is {}; only floating-point values are read", value.name,
                     value.type.text());
  if (!stored)
    fail<UsageError>(
        "{} has no memory: the step does not compute it, or no batch was given (give_batch)",
        value.name);
  wait();
  std::vector<float> plain(idx(value.type.shape.count()));
  backend_->read(value, stored, std::as_writable_bytes(std::span(plain)));
  return plain;
}

float Program::loss() const {
  if (graph_.loss < 0)
    fail<UsageError>("the step has no loss; end the model with cross_entropy() or set_loss()");
  return read(graph_.loss)[0];
}

std::int32_t Program::correct() const {
  if (graph_.correct < 0) return 0;
  void* const stored = address(graph_.correct);
  if (!stored) fail<UsageError>("this program was made without memory: it has no counts");
  wait();
  std::int32_t count = 0;
  backend_->read(graph_.value(graph_.correct), stored,
                 std::as_writable_bytes(std::span(&count, 1)));
  return count;
}

void Program::poison_dead_buffers(std::size_t call) const {
  const int node = call_at(call).node;
  if (!arena_) return;
  for (const MemoryPlan::Buffer& buffer : plan_.buffers)
    if (buffer.lifetime.last == node && node + 1 < static_cast<int>(graph_.nodes.size()))
      backend_->fill(arena_.get() + buffer.offset, 0xFF, buffer.lifetime.bytes);
}

}  // namespace warpstep
