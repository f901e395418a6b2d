// The emulated runtime: capture of streams into graphs, and their replay.
#include <algorithm>
#include <memory>

#include "tests/cuda_on_cpu/fake_state.h"

namespace warpstep::fake_cuda {
namespace {

cudaError_t begin(State& s, cudaStream_t stream, cudaStreamCaptureMode mode) {
  if (is_default(stream)) return cudaErrorStreamCaptureUnsupported;
  if (!s.streams.contains(stream)) return cudaErrorInvalidResourceHandle;
  if (stream->capture) return cudaErrorIllegalState;
  auto capture = std::make_shared<Capture>();
  capture->id = ++s.last_capture;
  capture->mode = mode;
  capture->thread = std::this_thread::get_id();
  capture->origin = stream;
  capture->graph = std::make_unique<CUgraph_st>();
  s.captures.insert(capture);
  stream->capture = std::move(capture);
  stream->tips.clear();
  return cudaSuccess;
}

// Whether the origin's last work comes after all other work of the capture.
bool is_joined(const Nodes& nodes, const Tips& last) {
  std::vector<bool> reached(nodes.size());
  for (const std::size_t tip : last) reached[tip] = true;
  for (std::size_t n = nodes.size(); n-- > 0;)
    if (reached[n])
      for (const std::size_t before : nodes[n]->after) reached[before] = true;
  return std::ranges::all_of(reached, [](bool r) { return r; });
}

cudaError_t end(State& s, cudaStream_t stream, cudaGraph_t* graph) {
  if (!s.streams.contains(stream)) return cudaErrorInvalidResourceHandle;
  const auto capture = stream->capture;
  if (!capture) return cudaErrorIllegalState;
  *graph = nullptr;
  if (capture->mode != cudaStreamCaptureModeRelaxed &&
      capture->thread != std::this_thread::get_id())
    return cudaErrorStreamCaptureWrongThread;
  if (capture->origin != stream) {
    capture->invalid = true;
    return cudaErrorStreamCaptureUnmatched;
  }
  const bool joined = is_joined(capture->graph->nodes, stream->tips);
  s.leave(capture);
  if (capture->invalid) return cudaErrorStreamCaptureInvalidated;
  if (!joined) return cudaErrorStreamCaptureUnjoined;
  *graph = capture->graph.release();
  s.graphs.insert(*graph);
  return cudaSuccess;
}

cudaError_t status(const State& s, cudaStream_t stream, cudaStreamCaptureStatus* status,
                   unsigned long long* id) {
  *status = cudaStreamCaptureStatusNone;
  if (is_default(stream)) return cudaSuccess;
  if (!s.streams.contains(stream)) return cudaErrorInvalidResourceHandle;
  if (!stream->capture) return cudaSuccess;
  *status =
      stream->capture->invalid ? cudaStreamCaptureStatusInvalidated : cudaStreamCaptureStatusActive;
  if (id != nullptr) *id = stream->capture->id;
  return cudaSuccess;
}

cudaError_t launch(State& s, cudaGraphExec_t executable, cudaStream_t stream) {
  if (!s.executables.contains(executable)) return cudaErrorInvalidValue;
  // A copy: a capture of the launch outlives the executable, as a child graph does.
  return issue(s, stream, "graph", [nodes = executable->nodes] { replay(nodes); });
}

}  // namespace
}  // namespace warpstep::fake_cuda

namespace fake = warpstep::fake_cuda;
using fake::call;
using fake::State;

extern "C" {

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  return call("cudaStreamBeginCapture", [=](State& s) { return fake::begin(s, stream, mode); });
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  const cudaError_t status =
      call("cudaStreamEndCapture", [=](State& s) { return fake::end(s, stream, graph); });
  State& s = fake::state();
  const std::lock_guard lock(s.mutex);
  // A failure requested by a test ends the capture as any other does.
  if (status != cudaSuccess && s.streams.contains(stream) && stream->capture &&
      stream->capture->origin == stream && status != cudaErrorStreamCaptureWrongThread)
    s.leave(stream->capture);
  return status;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  return call("cudaStreamIsCapturing",
              [=](State& s) { return fake::status(s, stream, status, nullptr); });
}
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus* status,
                                     unsigned long long* id, cudaGraph_t* graph,
                                     const cudaGraphNode_t** dependencies,
                                     const cudaGraphEdgeData** edges, std::size_t* count) {
  return call("cudaStreamGetCaptureInfo", [=](State& s) {
    // Models only the status that distinguishes captures.
    if (graph != nullptr || dependencies != nullptr || edges != nullptr || count != nullptr)
      return cudaErrorNotSupported;
    return fake::status(s, stream, status, id);
  });
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph,
                                 unsigned long long flags) {
  return call("cudaGraphInstantiate", [=](State& s) {
    if (executable == nullptr || !s.graphs.contains(graph)) return cudaErrorInvalidValue;
    if ((flags & ~std::uint64_t{cudaGraphInstantiateFlagUseNodePriority}) != 0)
      return cudaErrorNotSupported;
    *executable = std::make_unique<CUgraphExec_st>(CUgraphExec_st{graph->nodes}).release();
    s.executables.insert(*executable);
    return cudaSuccess;
  });
}
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, std::size_t* count) {
  return call("cudaGraphGetNodes", [=](State& s) {
    if (count == nullptr || !s.graphs.contains(graph)) return cudaErrorInvalidValue;
    const std::size_t all = graph->nodes.size();
    for (std::size_t n = 0; nodes != nullptr && n < *count; ++n)
      nodes[n] = n < all ? graph->nodes[n].get() : nullptr;
    *count = nodes == nullptr ? all : std::min(all, *count);
    return cudaSuccess;
  });
}
cudaError_t cudaGraphUpload(cudaGraphExec_t executable, cudaStream_t stream) {
  return call("cudaGraphUpload", [=](State& s) {
    const bool known = s.executables.contains(executable) &&
                       (fake::is_default(stream) || s.streams.contains(stream));
    return known ? cudaSuccess : cudaErrorInvalidValue;
  });
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  return call("cudaGraphLaunch", [=](State& s) { return fake::launch(s, executable, stream); });
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  return call("cudaGraphDestroy", [=](State& s) {
    if (s.graphs.erase(graph) == 0) return cudaErrorInvalidValue;
    delete graph;
    return cudaSuccess;
  });
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  return call("cudaGraphExecDestroy", [=](State& s) {
    if (s.executables.erase(executable) == 0) return cudaErrorInvalidValue;
    delete executable;
    return cudaSuccess;
  });
}

}  // extern "C"
