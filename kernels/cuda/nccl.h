// NCCL: sums over the GPUs of a data-parallel job. The library is loaded when a job has several
// ranks; nothing else needs it.
#pragma once

#include <driver_types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <shared_mutex>
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
  static void require_library();  // throws DeviceError where it is not found
  Nccl(const Nccl&) = delete;
  Nccl& operator=(const Nccl&) = delete;

  const World& world() const { return communicator_->world(); }
  std::string version() const;  // "NCCL 2.28.9"

  struct Piece {
    void* data = nullptr;
    std::int64_t elements = 0;
    DType dtype = DType::f32;  // f32, f16 or bf16
    int owner = 0;             // the rank that updates it, where ranks share that out
  };
  // These enqueue, captured like any other work of the stream; all ranks must enqueue the same.
  // The elements of all pieces become their means over the ranks, or only those of the owner's.
  void mean(std::span<const Piece> pieces, bool to_owners, cudaStream_t stream) const;
  // Every rank gets each piece of its owner.
  void share(std::span<const Piece> pieces, cudaStream_t stream) const;
  // `all` has a part of `bytes` for each rank, in order: each gives its own.
  void all_gather(void* all, std::size_t bytes, cudaStream_t stream) const;

  // Waits until done() is true, which says whether the device has finished some work. Throws
  // RankError when another rank failed or the job's timeout passed; the device then waits for other
  // ranks no longer, and mean() throws the same. Any thread may call it.
  void wait_until(const std::function<bool()>& done);
  // Ends what waits on the device for other ranks, which would never end by itself. From then on
  // all exchanges throw this error. Any thread may call it; later calls do nothing.
  void give_up(const RankError& error);

 private:
  struct Library;

  void require_sound() const;
  template <class Call>
  void group(std::span<const Piece> pieces, const char* name, Call call) const;

  std::shared_ptr<Communicator> communicator_;
  const Library& library_;
  void* comm_ = nullptr;  // ncclComm_t
  // Held shared by calls of NCCL with comm_, which ncclCommAbort() frees.
  std::shared_ptr<std::shared_timed_mutex> in_use_ = std::make_shared<std::shared_timed_mutex>();
  mutable std::mutex mutex_;
  std::string failure_;      // the first error, after which nothing more is exchanged
  bool of_another_ = false;  // whether another rank caused it
};

}  // namespace warpstep::cuda
