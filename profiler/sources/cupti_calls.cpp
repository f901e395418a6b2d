#include "profiler/sources/cupti_calls.h"

#include <algorithm>
#include <array>

#include "engine/core/record.h"

namespace warpstep::profiler::calls {
namespace {

std::atomic<const CuptiApi*> followed{nullptr};
std::atomic<bool> pushes{false};

struct OpenCall {
  std::uint64_t call = 0;
  bool pushed = false;  // to CUPTI; it must then be popped, even after the end of the window
};
struct CallStack {
  std::array<OpenCall, 16> open;  // calls do not nest today; deeper ones count as the 16th
  std::size_t depth = 0;
};
thread_local CallStack stack;

void on_begin(std::uint32_t, record::Kind kind, std::uint64_t arg) noexcept {
  if (kind != record::Kind::call) return;
  if (stack.depth++ >= stack.open.size()) return;
  OpenCall& open = stack.open[stack.depth - 1];
  open = {arg + 1, false};
  const CuptiApi* api = followed.load(std::memory_order_acquire);
  if (api && pushes.load(std::memory_order_relaxed))
    open.pushed =
        api->push_external(CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0, open.call) == CUPTI_SUCCESS;
}

void on_end(record::Kind kind) noexcept {
  if (kind != record::Kind::call || stack.depth == 0) return;  // 0: began before follow()
  --stack.depth;
  if (stack.depth >= stack.open.size() || !stack.open[stack.depth].pushed) return;
  if (const CuptiApi* api = followed.load(std::memory_order_acquire))
    api->pop_external(CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0, nullptr);
}

constexpr record::Listener listener{&on_begin, &on_end};

}  // namespace

std::uint64_t current() noexcept {
  if (stack.depth == 0) return 0;
  return stack.open[std::min(stack.depth, stack.open.size()) - 1].call;
}

bool follow(const CuptiApi& api) {
  followed.store(&api, std::memory_order_release);
  if (record::add_listener(listener)) return true;
  followed.store(nullptr);
  return false;
}

void ignore() {
  record::remove_listener(listener);
  pushes.store(false);
  followed.store(nullptr);
}

void push_to_cupti(bool on) {
  pushes.store(on, std::memory_order_relaxed);
}

}  // namespace warpstep::profiler::calls

namespace warpstep::profiler {
namespace {

// True between the two callbacks around an instantiation: nodes created then are copies, each of
// which is also reported as a clone.
thread_local bool instantiating = false;

}  // namespace

std::vector<CUpti_CallbackId> ResourceMap::events() {
  return {CUPTI_CBID_RESOURCE_GRAPHEXEC_CREATE_STARTING, CUPTI_CBID_RESOURCE_GRAPHEXEC_CREATED,
          CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED,         CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED,
          CUPTI_CBID_RESOURCE_GRAPH_NODE_UPDATED,        CUPTI_CBID_RESOURCE_CONTEXT_CREATED,
          CUPTI_CBID_RESOURCE_CONTEXT_DESTROY_STARTING};
}

void ResourceMap::on_event(CUpti_CallbackId event, const CUpti_ResourceData& data) noexcept {
  try {
    switch (event) {
      case CUPTI_CBID_RESOURCE_GRAPHEXEC_CREATE_STARTING: instantiating = true; return;
      case CUPTI_CBID_RESOURCE_GRAPHEXEC_CREATED: instantiating = false; return;
      case CUPTI_CBID_RESOURCE_CONTEXT_CREATED:
      case CUPTI_CBID_RESOURCE_CONTEXT_DESTROY_STARTING:
        return on_context_event(event, data.context);
      default:
        if (data.resourceDescriptor)
          on_graph_event(event, *static_cast<const CUpti_GraphData*>(data.resourceDescriptor));
    }
  } catch (...) {  // the caller is C
    ++forgotten_;
  }
}

void ResourceMap::on_graph_event(CUpti_CallbackId event, const CUpti_GraphData& data) {
  switch (event) {
    case CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED: {
      std::uint64_t node = 0;
      const std::uint64_t call = calls::current();
      if (instantiating || call == 0) return;
      if (api_.get_graph_node_id(data.node, &node) != CUPTI_SUCCESS) return;
      const std::lock_guard lock(mutex_);
      calls_[node] = call - 1;
      return;
    }
    case CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED: return inherit(data, false);
    // A graph in use adopts another's parameters: the node stays, its call may change.
    case CUPTI_CBID_RESOURCE_GRAPH_NODE_UPDATED: return inherit(data, true);
    default: return;
  }
}

void ResourceMap::inherit(const CUpti_GraphData& data, bool replaces) {
  std::uint64_t node = 0, origin = 0;
  if (api_.get_graph_node_id(data.node, &node) != CUPTI_SUCCESS ||
      api_.get_graph_node_id(data.originalNode, &origin) != CUPTI_SUCCESS)
    return;
  const std::lock_guard lock(mutex_);
  const auto from = calls_.find(origin);
  if (from != calls_.end()) {
    const std::uint64_t call = from->second;
    calls_[node] = call;
  } else if (replaces) {
    calls_.erase(node);
  }
}

void ResourceMap::on_context_event(CUpti_CallbackId event, CUcontext context) {
  const std::lock_guard lock(mutex_);
  std::erase(contexts_, context);
  if (event == CUPTI_CBID_RESOURCE_CONTEXT_CREATED) contexts_.push_back(context);
}

std::unordered_map<std::uint64_t, std::uint64_t> ResourceMap::calls() const {
  const std::lock_guard lock(mutex_);
  return calls_;
}

std::vector<CUcontext> ResourceMap::contexts() const {
  const std::lock_guard lock(mutex_);
  return contexts_;
}

}  // namespace warpstep::profiler
