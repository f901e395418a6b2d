#include "kernels/cuda/runtime.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <utility>

#include "engine/core/error.h"
#include "engine/core/record.h"
#include "kernels/cuda/check.h"

namespace warpstep::cuda {

namespace {
using record::Kind;
const record::Name stream_wait_name{"cudaStreamSynchronize", Kind::sync},
    event_wait_name{"cudaEventSynchronize", Kind::sync},
    graph_launch_name{"cudaGraphLaunch", Kind::host_api};
}  // namespace

void EventDeleter::operator()(cudaEvent_t event) const {
  ignore(cudaEventDestroy(event));
}

EventHandle make_event(bool timing) {
  cudaEvent_t event = nullptr;
  check(cudaEventCreateWithFlags(&event, timing ? cudaEventDefault : cudaEventDisableTiming),
        "cudaEventCreateWithFlags");
  return EventHandle(event);
}

CudaStream::CudaStream(Precedence precedence, Waiting waiting) : waiting_(std::move(waiting)) {
  int last = 0, first = 0;
  check(cudaDeviceGetStreamPriorityRange(&last, &first), "cudaDeviceGetStreamPriorityRange");
  // Non-blocking: it does not wait for the default stream, which steps do not use.
  check(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking,
                                     precedence == Precedence::first    ? first
                                     : precedence == Precedence::second ? (first + last) / 2
                                                                        : last),
        "cudaStreamCreateWithPriority");
}

CudaStream::~CudaStream() {
  dnn_handle.reset();
  ignore(cudaStreamDestroy(stream_));
}

namespace {

// Whether a query says that the work is done.
bool is_done(cudaError_t status, const char* call) {
  if (status != cudaErrorNotReady) check(status, call);
  ignore(cudaGetLastError());  // a query that finds work unfinished leaves an error behind
  return status == cudaSuccess;
}

}  // namespace

void CudaStream::wait() {
  const record::Span span(stream_wait_name);
  if (waiting_)
    return waiting_([&] { return is_done(cudaStreamQuery(stream_), "cudaStreamQuery"); });
  check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
}

CudaStream::Events::Events() {
  for (EventHandle& event : ring_) event = make_event(false);
}

std::uint64_t CudaStream::Events::record(cudaStream_t stream) {
  check(cudaEventRecord(ring_[++count_ % ring_.size()].get(), stream), "cudaEventRecord");
  return count_;
}

void CudaStream::wait_for(std::uint64_t mark) {
  const record::Span span(event_wait_name);
  if (waiting_)
    return waiting_([&] { return is_done(cudaEventQuery(marks_.at(mark)), "cudaEventQuery"); });
  check(cudaEventSynchronize(marks_.at(mark)), "cudaEventSynchronize");
}

void CudaStream::after(Stream& other, std::uint64_t signal) {
  check(cudaStreamWaitEvent(stream_, static_cast<CudaStream&>(other).signals_.at(signal), 0),
        "cudaStreamWaitEvent");
}

void copy_now(void* to, const void* from, std::size_t bytes) {
  check(cudaMemcpy(to, from, bytes, cudaMemcpyDefault), "cudaMemcpy");
  check(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize");
}

void fill_now(void* memory, std::uint8_t byte, std::size_t bytes) {
  check(cudaMemset(memory, byte, bytes), "cudaMemset");
  check(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize");
}

namespace {
constexpr double mib = 1 << 20;
}

std::shared_ptr<std::byte> allocate_device(std::size_t bytes) {
  void* memory = nullptr;
  const std::size_t wanted = std::max<std::size_t>(bytes, 1);
  const cudaError_t status = cudaMalloc(&memory, wanted);
  if (status == cudaErrorMemoryAllocation) {
    ignore(cudaGetLastError());
    std::size_t free = 0, total = 0;
    ignore(cudaMemGetInfo(&free, &total));
    fail<OutOfDeviceMemory>(
        "cuda: cannot allocate {:.1f} MiB of device memory: {:.1f} of {:.1f} MiB are free; use a "
        "smaller --batch, or another device with --device cuda:N",
        static_cast<double>(bytes) / mib, static_cast<double>(free) / mib,
        static_cast<double>(total) / mib);
  }
  check(status, "cudaMalloc");
  std::shared_ptr<std::byte> owner(static_cast<std::byte*>(memory),
                                   [](std::byte* p) { ignore(cudaFree(p)); });
  fill_now(memory, 0, wanted);
  return owner;
}

std::uint64_t free_device_bytes() {
  std::size_t free = 0, total = 0;
  check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
  return free;
}

bool is_nearly_full() {
  constexpr std::size_t little = std::size_t{64} << 20;
  std::size_t free = 0, total = 0;
  if (cudaMemGetInfo(&free, &total) == cudaSuccess) return free < little;
  ignore(cudaGetLastError());  // of a lost device, for one
  return false;
}

std::shared_ptr<std::byte> allocate_pinned(std::size_t bytes) {
  void* memory = nullptr;
  const std::size_t wanted = std::max<std::size_t>(bytes, 1);
  const cudaError_t status = cudaHostAlloc(&memory, wanted, cudaHostAllocDefault);
  if (status == cudaErrorMemoryAllocation) {  // of the host, which may limit what is pinned
    ignore(cudaGetLastError());
    fail<DeviceError>(
        "cuda: cannot pin {:.1f} MiB of host memory; use a smaller --batch or --prefetch",
        static_cast<double>(bytes) / mib);
  }
  check(status, "cudaHostAlloc");
  std::shared_ptr<std::byte> owner(static_cast<std::byte*>(memory),
                                   [](std::byte* p) { ignore(cudaFreeHost(p)); });
  std::fill_n(owner.get(), wanted, std::byte{0});
  return owner;
}

void GraphExecDeleter::operator()(cudaGraphExec_t graph) const {
  ignore(cudaGraphExecDestroy(graph));
}

namespace {

struct GraphDeleter {
  void operator()(cudaGraph_t graph) const { ignore(cudaGraphDestroy(graph)); }
};

class CudaRecording final : public Recording {
 public:
  explicit CudaRecording(GraphExecHandle graph) : graph_(std::move(graph)) {}
  void launch(Stream& stream) override {
    const record::Span span(graph_launch_name);
    check(cudaGraphLaunch(graph_.get(), static_cast<CudaStream&>(stream).handle()),
          "cudaGraphLaunch");
  }

 private:
  GraphExecHandle graph_;
};

// Ends the capture on every path, so that an error in it does not leave the stream unusable.
class Capture {
 public:
  explicit Capture(cudaStream_t stream) : stream_(stream) {
    // Thread-local: the loader's threads continue to call CUDA during the capture.
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal),
          "cudaStreamBeginCapture");
  }
  ~Capture() {
    if (!stream_) return;
    cudaGraph_t graph = nullptr;
    ignore(cudaStreamEndCapture(stream_, &graph));
    if (graph) ignore(cudaGraphDestroy(graph));
    ignore(cudaGetLastError());
  }
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

  std::unique_ptr<CUgraph_st, GraphDeleter> end() {
    cudaGraph_t graph = nullptr;
    const cudaError_t status = cudaStreamEndCapture(stream_, &graph);
    stream_ = nullptr;
    std::unique_ptr<CUgraph_st, GraphDeleter> owner(graph);
    check(status, "cudaStreamEndCapture");
    return owner;
  }

 private:
  cudaStream_t stream_;
};

}  // namespace

GraphExecHandle capture(CudaStream& stream, const std::function<void()>& enqueue) {
  Capture capture(stream.handle());
  enqueue();
  const auto graph = capture.end();
  cudaGraphExec_t executable = nullptr;
  // Without this flag all kernels have the priority of the stream that the graph is launched to.
  check(cudaGraphInstantiate(&executable, graph.get(), cudaGraphInstantiateFlagUseNodePriority),
        "cudaGraphInstantiate");
  return GraphExecHandle(executable);
}

std::unique_ptr<Recording> record(CudaStream& stream, const std::function<void()>& enqueue) try {
  GraphExecHandle graph = capture(stream, enqueue);
  // Uploaded here, not by the first launch, whose time would count as the first step's.
  check(cudaGraphUpload(graph.get(), stream.handle()), "cudaGraphUpload");
  return std::make_unique<CudaRecording>(std::move(graph));
} catch (const OutOfDeviceMemory&) {
  return nullptr;
}

}  // namespace warpstep::cuda
