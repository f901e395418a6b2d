// Owners of the CUDA runtime's objects. Each is made or throws DeviceError, and frees itself.
#pragma once

#include <driver_types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "engine/run/backend.h"

namespace warpstep::cuda {

struct EventDeleter {
  void operator()(cudaEvent_t event) const;
};
using EventHandle = std::unique_ptr<CUevent_st, EventDeleter>;
EventHandle make_event(bool timing);

// An in-order queue of the device. All kernels of one lane of a step go to one stream.
class CudaStream final : public Stream {
 public:
  CudaStream();
  ~CudaStream() override;
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;

  cudaStream_t handle() const { return stream_; }
  void wait() override;
  std::uint64_t mark() override { return marks_.record(stream_); }
  void wait_for(std::uint64_t mark) override;
  std::uint64_t signal() override { return signals_.record(stream_); }
  void after(Stream& other, std::uint64_t signal) override;

 private:
  // The last eight events, numbered. An event that was recorded anew stands for a later number,
  // which implies the earlier one.
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
  Events marks_;    // that the host waits for
  Events signals_;  // that streams wait for; apart, because those of a capture are not the host's
};

// The runtime's plain copies and fills go to the default stream, which our streams do not wait for,
// and may return before they are done. These do not return earlier.
void copy_now(void* to, const void* from, std::size_t bytes);
void fill_now(void* memory, std::uint8_t byte, std::size_t bytes);

// Zero-filled device memory, or memory of the host that the device reads and writes in place. Too
// much is a DeviceError that says how much there is.
std::shared_ptr<std::byte> allocate_device(std::size_t bytes);
std::shared_ptr<std::byte> allocate_pinned(std::size_t bytes);
std::uint64_t free_device_bytes();

// What `enqueue` gives to the stream, and to streams that wait for it and that it waits for in the
// end, captured as a CUDA graph and instantiated; nothing of it runs. Nothing in `enqueue` may
// allocate or wait: the runtime refuses that, as a DeviceError.
std::unique_ptr<Recording> record(CudaStream& stream, const std::function<void()>& enqueue);

}  // namespace warpstep::cuda
