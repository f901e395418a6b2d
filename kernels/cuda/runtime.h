// Owners of the CUDA runtime's objects. Each is made or throws DeviceError, and frees itself.
#pragma once

#include <driver_types.h>

#include <cstddef>
#include <cstdint>
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

 private:
  cudaStream_t stream_ = nullptr;
  EventHandle event_;  // what others wait for
};

// Zero-filled device memory, or memory of the host that the device reads and writes in place. Too
// much is a DeviceError that says how much there is.
std::shared_ptr<std::byte> allocate_device(std::size_t bytes);
std::shared_ptr<std::byte> allocate_pinned(std::size_t bytes);

}  // namespace warpstep::cuda
