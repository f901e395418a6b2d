// NCCL: sums over the GPUs of a data-parallel job. The library is loaded when a job has several
// ranks; nothing else needs it.
#pragma once

#include <driver_types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>

#include "engine/core/types.h"
#include "engine/dist/communicator.h"
#include "kernels/cuda/settings.h"

namespace warpstep::cuda {

class Nccl {
 public:
  // All ranks of the job call this together, each with a device of its own, which is current.
  // Throws DeviceError where libnccl.so.2 is not found, or two ranks have one device.
  Nccl(std::shared_ptr<Communicator> communicator, const Settings& settings);
  ~Nccl();
  Nccl(const Nccl&) = delete;
  Nccl& operator=(const Nccl&) = delete;

  int ranks() const { return communicator_->world().size; }
  std::string version() const;  // "NCCL 2.28.9"

  struct Piece {
    void* data = nullptr;
    std::int64_t elements = 0;
  };
  // Enqueues: the elements of all pieces become their means over the ranks, in f32, f16 or bf16.
  // Captured like any other work of the stream; all ranks must enqueue the same.
  void mean(std::span<const Piece> pieces, DType dtype, cudaStream_t stream) const;

  // Waits until done() is true, which says whether the device has finished some work. Throws
  // RankError when another rank failed or the job's timeout passed; the device then waits for other
  // ranks no longer, and mean() throws the same. Any thread may call it.
  void wait_until(const std::function<bool()>& done);

 private:
  struct Library;

  void require_sound() const;
  void give_up(const std::string& why);

  std::shared_ptr<Communicator> communicator_;
  const Library& library_;
  void* comm_ = nullptr;  // ncclComm_t
  mutable std::mutex mutex_;
  std::string failure_;  // the first error, after which nothing more is exchanged
};

}  // namespace warpstep::cuda
