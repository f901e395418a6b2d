// Graphs, contexts, and what CUPTI itself does.
#include <cstdlib>

#include "profiler/sources/cupti_testing.h"

namespace warpstep::profiler::testing {

void FakeCupti::tell(CUpti_CallbackId event, const void* data) {
  if (callback_ && callbacks_.contains(event))
    callback_(callback_data_, CUPTI_CB_DOMAIN_RESOURCE, event, data);
}

void FakeCupti::tell_graph(CUpti_CallbackId event, FakeNode* node, FakeNode* original) {
  CUpti_GraphData graph{};
  graph.node = reinterpret_cast<CUgraphNode>(node);
  graph.originalNode = reinterpret_cast<CUgraphNode>(original);
  CUpti_ResourceData data{};
  data.resourceDescriptor = &graph;
  tell(event, &data);
}

void FakeCupti::capture(FakeGraph& graph, const char* kernel) {
  graph.nodes.push_back(std::make_unique<FakeNode>(FakeNode{next_node_++, kernel}));
  tell_graph(CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED, graph.nodes.back().get(), nullptr);
}

FakeGraph FakeCupti::instantiate(const FakeGraph& graph) {
  next_node_ = ((next_node_ >> 32) + 1) << 32 | 1;  // the upper half is the graph
  FakeGraph executable;
  tell_graph(CUPTI_CBID_RESOURCE_GRAPHEXEC_CREATE_STARTING, nullptr, nullptr);
  for (const auto& node : graph.nodes) {
    executable.nodes.push_back(std::make_unique<FakeNode>(FakeNode{next_node_++, node->kernel}));
    FakeNode* clone = executable.nodes.back().get();
    tell_graph(CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED, clone, nullptr);
    tell_graph(CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED, clone, node.get());
  }
  tell_graph(CUPTI_CBID_RESOURCE_GRAPHEXEC_CREATED, nullptr, nullptr);
  return executable;
}

void FakeCupti::update(FakeGraph& executable, const FakeGraph& graph) {
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    executable.nodes[i]->kernel = graph.nodes[i]->kernel;
    tell_graph(CUPTI_CBID_RESOURCE_GRAPH_NODE_UPDATED, executable.nodes[i].get(),
               graph.nodes[i].get());
  }
}

std::uint32_t FakeCupti::launch(const FakeGraph& executable, std::uint32_t streams) {
  const std::lock_guard lock(mutex_);
  const std::uint32_t correlation = next_correlation_++;
  put_call(CUPTI_ACTIVITY_KIND_RUNTIME, CUPTI_RUNTIME_TRACE_CBID_cudaGraphLaunch_v10000,
           correlation);
  std::uint32_t stream = 0;
  for (const auto& node : executable.nodes) {
    put_kernel(node->kernel, 7 + stream++ % streams, correlation, node->id, 700);
    pass(400);  // branches overlap
  }
  pass(1000);
  return correlation;
}

void FakeCupti::create_context(std::uintptr_t context) {
  CUpti_ResourceData data{};
  data.context = reinterpret_cast<CUcontext>(context);
  tell(CUPTI_CBID_RESOURCE_CONTEXT_CREATED, &data);
}

void FakeCupti::destroy_context(std::uintptr_t context) {
  CUpti_ResourceData data{};
  data.context = reinterpret_cast<CUcontext>(context);
  tell(CUPTI_CBID_RESOURCE_CONTEXT_DESTROY_STARTING, &data);
}

void FakeCupti::overhead(CUpti_ActivityOverheadKind kind) {
  const std::lock_guard lock(mutex_);
  CUpti_ActivityOverhead3 record{};
  record.kind = CUPTI_ACTIVITY_KIND_OVERHEAD;
  record.overheadKind = kind;
  record.objectKind = CUPTI_ACTIVITY_OBJECT_THREAD;
  record.objectId.pt.threadId = 77;
  record.start = device_now();
  record.end = record.start + 900;
  if (kind == CUPTI_ACTIVITY_OVERHEAD_COMMAND_BUFFER_FULL)  // its reader frees it
    record.overheadData = std::calloc(1, sizeof(CUpti_ActivityOverheadCommandBufferFullData));
  if (enabled_.contains(record.kind))
    put(&record, sizeof record);
  else
    std::free(record.overheadData);
  pass(1000);
}

void FakeCupti::whole_graph(std::uint32_t graph) {
  const std::lock_guard lock(mutex_);
  CUpti_ActivityGraphTrace2 record{};
  record.kind = CUPTI_ACTIVITY_KIND_GRAPH_TRACE;
  record.start = device_now();
  record.end = record.start + 5000;
  record.graphId = graph;
  record.streamId = 7;
  record.correlationId = next_correlation_++;
  put(&record, sizeof record);
  pass(6000);
}

bool FakeCupti::any_enabled() {
  const std::lock_guard lock(mutex_);
  return !enabled_.empty() || !driver_.empty();
}

}  // namespace warpstep::profiler::testing
