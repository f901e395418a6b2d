// Owners of the CUDA runtime's objects. Each is made or throws DeviceError, and frees itself.
#pragma once

#include <driver_types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "engine/backend.h"

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
  void after(Stream& other) override;
  std::uint64_t mark() override;
  void wait_for(std::uint64_t mark) override;

 private:
  cudaStream_t stream_ = nullptr;
  EventHandle event_;                // what others wait for
  std::array<EventHandle, 8> ring_;  // of the last marks
  std::uint64_t marks_ = 0;
};

// Zero-filled device memory, or memory of the host that the device reads and writes in place. Too
// much is a DeviceError that says how much there is.
std::shared_ptr<std::byte> allocate_device(std::size_t bytes);
std::shared_ptr<std::byte> allocate_pinned(std::size_t bytes);

// What `enqueue` gives to the stream, and to streams that wait for it and that it waits for in the
// end, captured as a CUDA graph and instantiated; nothing of it runs. Nothing in `enqueue` may
// allocate or wait: the runtime refuses that, as a DeviceError.
std::unique_ptr<Recording> record(CudaStream& stream, const std::function<void()>& enqueue);

}  // namespace warpstep::cuda
