#include "engine/program.h"

#include <cstring>

#include "engine/core/error.h"

namespace warpstep {

Program::Program(Graph graph, std::shared_ptr<Backend> backend, std::shared_ptr<Store> store)
    : graph_(std::move(graph)),
      backend_(std::move(backend)),
      store_(std::move(store)),
      stream_(backend_->make_stream()) {
  if (store_) store_->fix_layouts(graph_);
  backend_->choose_layouts(graph_);
  if (!store_) store_ = std::make_shared<Store>(backend_, graph_);
  make_calls();
  arena_ = backend_->allocate(plan_.arena_bytes);
  slots_.assign(graph_.inputs.size(), nullptr);
  find_addresses();
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
    call.cost = graph_.cost(node);
    call.kernel = backend_->bind(graph_, node);
    workspaces[n] = call.kernel->workspace_bytes();
    calls_.push_back(std::move(call));
  }
  plan_ = plan_memory(graph_, workspaces);
}

void* Program::address(int id) const {
  const int storage = plan_.storage_of_value[idx(id)];
  const Value& value = graph_.value(storage);
  if (is_persistent(value.role)) return store_->address(value);
  for (std::size_t i = 0; i < graph_.inputs.size(); ++i)
    if (graph_.inputs[i] == storage) return const_cast<void*>(slots_[i]);
  const int buffer = plan_.buffer_of_value[idx(storage)];
  return buffer < 0 ? nullptr : arena_.get() + plan_.buffers[idx(buffer)].offset;
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
    fail<Error>("the step takes {} inputs, not {}", graph_.inputs.size(), slots.size());
  if (std::equal(slots.begin(), slots.end(), slots_.begin())) return;
  slots_.assign(slots.begin(), slots.end());
  for (Call& call : calls_) {
    const Node& node = graph_.nodes[idx(call.node)];
    for (std::size_t i = 0; i < node.in.size(); ++i)
      if (graph_.value(plan_.storage_of_value[idx(node.in[i])]).role == Role::input)
        call.in[i] = address(node.in[i]);
  }
}

std::vector<float> Program::read(int id) const {
  const Value& value = graph_.value(id);
  stream_->wait();
  std::vector<float> plain(idx(value.type.shape.count()));
  backend_->read(value, address(id), std::as_writable_bytes(std::span(plain)));
  return plain;
}

float Program::loss() const {
  return read(graph_.loss)[0];
}

std::int32_t Program::correct() const {
  stream_->wait();
  std::int32_t count = 0;
  backend_->read(graph_.value(graph_.correct), address(graph_.correct),
                 std::as_writable_bytes(std::span(&count, 1)));
  return count;
}

void Program::poison_dead_buffers(std::size_t call) const {
  for (const MemoryPlan::Buffer& buffer : plan_.buffers)
    if (buffer.lifetime.last == calls_[call].node &&
        calls_[call].node + 1 < static_cast<int>(graph_.nodes.size()))
      std::memset(arena_.get() + buffer.offset, 0xFF, buffer.lifetime.bytes);
}

}  // namespace warpstep
