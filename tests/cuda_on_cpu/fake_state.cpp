#include "tests/cuda_on_cpu/fake_state.h"

#include <algorithm>
#include <cstdlib>
#include <random>
#include <utility>

#include "tests/cuda_on_cpu/simt.h"

namespace warpstep::fake_cuda {

State& state() {
  static State& instance = []() -> State& {
    auto* made = new State;  // handles are destroyed while a program ends, too
    if (const char* devices = std::getenv("WARPSTEP_FAKE_DEVICES"))
      made->devices = std::atoi(devices);
    if (const char* seed = std::getenv("WARPSTEP_FAKE_DEFERRAL"))
      made->draws.seed(made->deferral = std::strtoull(seed, nullptr, 10));
    return *made;
  }();
  return instance;
}

cudaError_t State::injected(const std::string& function) {
  const auto found = std::ranges::find(failures, function, &Failure::function);
  if (found == failures.end()) return cudaSuccess;
  if (found->skipped > 0) {
    --found->skipped;
    return cudaSuccess;
  }
  const cudaError_t status = found->status;
  failures.erase(found);
  return status;
}

cudaError_t State::unsafe_in_capture() {
  cudaError_t status = cudaSuccess;
  for (const auto& capture : captures) {
    const bool forbids = capture->mode == cudaStreamCaptureModeGlobal ||
                         (capture->mode == cudaStreamCaptureModeThreadLocal &&
                          capture->thread == std::this_thread::get_id());
    if (!forbids) continue;
    capture->invalid = true;
    status = cudaErrorStreamCaptureUnsupported;
  }
  return status;
}

void State::leave(std::shared_ptr<Capture> capture) {
  capture->ended = true;
  captures.erase(capture);
  for (auto* stream : streams)
    if (stream->capture == capture) {
      stream->capture.reset();
      stream->tips.clear();  // of streams that only joined it too
    }
}

bool State::reachable(const void* address, std::size_t bytes) const {
  auto* begin = const_cast<std::byte*>(static_cast<const std::byte*>(address));
  auto after = memory.upper_bound(begin);
  if (after == memory.begin()) return false;
  const auto& [first, block] = *std::prev(after);
  return begin + bytes <= first + block.bytes;
}

bool is_default(cudaStream_t stream) {
  return stream == nullptr || stream == cudaStreamLegacy || stream == cudaStreamPerThread;
}

cudaError_t issue(State& s, cudaStream_t stream, const std::string& name,
                  std::function<void()> work) {
  if (is_default(stream)) {
    // The default stream would wait for the blocking streams, but a capture cannot be waited for.
    for (const auto& capture : s.captures)
      if (capture->origin != nullptr && capture->origin->blocking) {
        capture->invalid = true;
        return cudaErrorStreamCaptureImplicit;
      }
  } else if (!s.streams.contains(stream)) {
    return cudaErrorInvalidResourceHandle;
  } else if (const auto& capture = stream->capture) {
    if (capture->invalid) return cudaErrorStreamCaptureInvalidated;
    auto& nodes = capture->graph->nodes;
    nodes.push_back(
        std::make_shared<CUgraphNode_st>(CUgraphNode_st{name, std::move(work), stream->tips}));
    stream->tips = {nodes.size() - 1};
    return cudaSuccess;
  }
  if (s.deferral != 0) {
    defer(s, stream, {name, std::move(work), {}});
    return cudaSuccess;
  }
  ++s.runs[name];
  work();
  return cudaSuccess;
}

void replay(const Nodes& nodes) {
  const auto seed = simt::schedule();
  std::mt19937 random(static_cast<std::mt19937::result_type>(seed));
  std::vector<std::size_t> waiting(nodes.size());
  for (std::size_t n = 0; n < nodes.size(); ++n) waiting[n] = n;
  std::vector<bool> done(nodes.size());
  while (!waiting.empty()) {
    std::vector<std::size_t> ready;  // as positions in `waiting`; the first always is
    for (std::size_t w = 0; w < (seed == 0 ? 1 : waiting.size()); ++w)
      if (std::ranges::all_of(nodes[waiting[w]]->after, [&](std::size_t n) { return done[n]; }))
        ready.push_back(w);
    const std::size_t chosen = ready[random() % ready.size()];
    const std::size_t node = waiting[chosen];
    ++state().runs[nodes[node]->name];
    nodes[node]->work();
    done[node] = true;
    waiting.erase(waiting.begin() + static_cast<std::ptrdiff_t>(chosen));
  }
}

// ---- functions for tests

std::size_t calls(const std::string& function) {
  const std::lock_guard lock(state().mutex);
  return state().calls[function];
}
std::size_t runs(const std::string& work) {
  const std::lock_guard lock(state().mutex);
  return state().runs[work];
}
void reset_counts() {
  const std::lock_guard lock(state().mutex);
  state().calls.clear();
  state().runs.clear();
}

void fail_next(const std::string& function, cudaError_t status, std::size_t skipped) {
  const std::lock_guard lock(state().mutex);
  state().failures.push_back({function, status, skipped});
}

Live live() {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  Live live{.bytes = s.used_bytes,
            .streams = s.streams.size(),
            .events = s.events.size(),
            .graphs = s.graphs.size(),
            .executables = s.executables.size()};
  for (const auto& [address, block] : s.memory) ++(block.pinned ? live.pinned : live.allocations);
  return live;
}

void set_device_memory(std::size_t bytes) {
  const std::lock_guard lock(state().mutex);
  state().device_bytes = bytes;
}

void set_devices(int count) {
  const std::lock_guard lock(state().mutex);
  state().devices = count;
}

void set_compiled(int capability) {
  const std::lock_guard lock(state().mutex);
  state().compiled = capability;
}

int device_of(const void* memory) {
  const std::lock_guard lock(state().mutex);
  for (const auto& [begin, block] : state().memory)
    if (memory >= begin && memory < begin + block.bytes) return block.device;
  return -1;
}

std::vector<std::string> node_names(cudaGraph_t graph) {
  const std::lock_guard lock(state().mutex);
  std::vector<std::string> names;
  for (const auto& node : graph->nodes) names.push_back(node->name);
  return names;
}

cudaError_t enqueue(cudaStream_t stream, const std::string& name, std::function<void()> work) {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  return remember(issue(s, stream, name, std::move(work)));
}

}  // namespace warpstep::fake_cuda
