// Owners of the CUDA runtime's objects. Constructors throw DeviceError; destructors free.
#pragma once

#include <driver_types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "engine/core/error.h"
#include "engine/run/backend.h"
#include "engine/run/step_memory.h"

namespace warpstep::cuda {

struct EventDeleter {
  void operator()(cudaEvent_t event) const;
};
using EventHandle = std::unique_ptr<CUevent_st, EventDeleter>;
EventHandle make_event(bool timing);

struct GraphExecDeleter {
  void operator()(cudaGraphExec_t graph) const;
};
using GraphExecHandle = std::unique_ptr<CUgraphExec_st, GraphExecDeleter>;

// An in-order queue of the device. All kernels of one lane of a step go to one stream.
class CudaStream final : public Stream {
 public:
  // Waits until done() is true: for work that other ranks of a job take part in, and that may
  // therefore never end. Empty: the runtime's own waits.
  using Waiting = std::function<void(const std::function<bool()>& done)>;
  // Kernels have the stream's precedence in captured graphs, too.
  explicit CudaStream(Precedence precedence = Precedence::first, Waiting waiting = {});
  ~CudaStream() override;
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;

  cudaStream_t handle() const { return stream_; }
  void wait() override;
  std::uint64_t mark() override { return marks_.record(stream_); }
  void wait_for(std::uint64_t mark) override;
  std::uint64_t signal() override { return signals_.record(stream_); }
  void after(Stream& other, std::uint64_t signal) override;

  // cuDNN's handle for this stream alone (dnn::handle_of), destroyed before it; empty at first.
  std::shared_ptr<void> dnn_handle;

 private:
  // The last eight events, numbered. An event that was recorded again has a later number, and
  // waiting for that implies waiting for the earlier one.
  class Events {
   public:
    Events();
    std::uint64_t record(cudaStream_t stream);
    cudaEvent_t at(std::uint64_t number) const { return ring_[number % ring_.size()].get(); }

   private:
    std::array<EventHandle, 8> ring_;
    std::uint64_t count_ = 0;
  };

  cudaStream_t stream_ = nullptr;
  Waiting waiting_;
  Events marks_;    // the host waits for these
  Events signals_;  // streams wait for these; separate, as the host cannot wait for a capture's
};

// A copy and a fill that are done when they return. The runtime's own may return earlier, and use
// the default stream, which our streams do not wait for.
void copy_now(void* to, const void* from, std::size_t bytes);
void fill_now(void* memory, std::uint8_t byte, std::size_t bytes);

struct OutOfDeviceMemory : OutOfMemory {
  using OutOfMemory::OutOfMemory;
};

// Zero-filled device memory, or host memory that the device reads and writes in place. Throws
// OutOfDeviceMemory with the free bytes, or a DeviceError, if there is too little.
std::shared_ptr<std::byte> allocate_device(std::size_t bytes);
std::shared_ptr<std::byte> allocate_pinned(std::size_t bytes);
std::uint64_t free_device_bytes();
// Whether so little is left that a library may have none for its handle or code: its error need not
// say so, and it has a runtime of its own, whose last error this one's does not know.
bool is_nearly_full();

// Captures all that `enqueue` puts on the stream (and on streams that wait for it, and that it
// waits for in the end) as a CUDA graph and instantiates it, without running it. `enqueue` must
// neither allocate nor wait: the runtime refuses that, as a DeviceError; the stream stays usable.
GraphExecHandle capture(CudaStream& stream, const std::function<void()>& enqueue);
// Likewise, uploaded to the device. Null where there is no memory left for the graph.
std::unique_ptr<Recording> record(CudaStream& stream, const std::function<void()>& enqueue);

}  // namespace warpstep::cuda
