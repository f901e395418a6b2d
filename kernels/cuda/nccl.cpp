#include "kernels/cuda/nccl.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <future>

#include "engine/core/error.h"
#include "engine/core/file.h"
#include "engine/core/thread.h"
#include "engine/core/wheels.h"
#include "kernels/cuda/check.h"

namespace warpstep::cuda {
namespace {

// What nccl.h declares, as far as it is used: the toolkit does not have that header. Its binary
// interface is the same in all of NCCL 2; ncclAvg came with 2.10, ncclGetLastError() with 2.13.
constexpr int success = 0, remote_error = 6, in_progress = 7;
constexpr int mean_of_ranks = 4;  // ncclAvg
constexpr int type_bytes = 1;     // ncclUint8
constexpr int type_f16 = 6, type_f32 = 7, type_bf16 = 9;
constexpr int oldest_version = 21300;

int nccl_type(DType dtype) {
  switch (dtype) {
    case DType::f32: return type_f32;
    case DType::f16: return type_f16;
    case DType::bf16: return type_bf16;
    default: fail<Error>("NCCL sums floating-point numbers only");
  }
}

std::string host_name() {
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  return name.data();
}

// Of a start of the machine; empty where there is none. Virtual machines that were made from one
// image may have the same host name and the same places on the bus.
std::string boot_id() {
  try {
    return read_file("/proc/sys/kernel/random/boot_id");
  } catch (const DataError&) {
    return {};
  }
}

// NCCL refuses two ranks on one device with a message that names neither.
void require_own_device(Communicator& communicator, const Settings& settings) {
  std::array<char, 32> bus{};
  check(cudaDeviceGetPCIBusId(bus.data(), static_cast<int>(bus.size()), settings.ordinal),
        "cudaDeviceGetPCIBusId");
  const std::string place = fmt::format("{} on {}", bus.data(), host_name());
  const std::vector<std::string> devices =
      communicator.gather(fmt::format("{}\n{}", place, boot_id()));
  for (std::size_t b = 0; b < devices.size(); ++b)
    for (std::size_t a = 0; a < b; ++a)
      if (devices[a] == devices[b])
        fail<DeviceError>(
            "ranks {} and {} both use the GPU at {}, but NCCL needs one for each rank; start as "
            "many ranks on a machine as it has GPUs, or give --device cpu",
            a, b, devices[a].substr(0, devices[a].find('\n')));
}

}  // namespace

struct Nccl::Library {
  struct UniqueId {
    std::array<char, 128> bytes;
  };
  int (*get_version)(int*) = nullptr;
  int (*get_unique_id)(UniqueId*) = nullptr;
  int (*init_rank)(void**, int, UniqueId, int) = nullptr;
  int (*all_reduce)(const void*, void*, std::size_t, int, int, void*, cudaStream_t) = nullptr;
  int (*reduce)(const void*, void*, std::size_t, int, int, int, void*, cudaStream_t) = nullptr;
  int (*broadcast)(const void*, void*, std::size_t, int, int, void*, cudaStream_t) = nullptr;
  int (*all_gather)(const void*, void*, std::size_t, int, void*, cudaStream_t) = nullptr;
  int (*group_start)() = nullptr;
  int (*group_end)() = nullptr;
  int (*get_async_error)(void*, int*) = nullptr;
  int (*abort)(void*) = nullptr;
  int (*destroy)(void*) = nullptr;
  const char* (*get_error_string)(int) = nullptr;
  const char* (*get_last_error)(void*) = nullptr;
  int version = 0;

  static const Library& get();
  void check(int result, const char* call) const {
    if (result == success || result == in_progress) return;
    const char* more = get_last_error(nullptr);
    const std::string text =
        fmt::format("NCCL: {} failed: {}{}{}; NCCL_DEBUG=WARN prints more", call,
                    get_error_string(result), more && *more ? ": " : "", more ? more : "");
    if (result == remote_error) throw PeerError(text);
    throw RankError(text);
  }
  void* connect(const Communicator& communicator, const UniqueId& id,
                const Settings& settings) const;

 private:
  Library();
};

const Nccl::Library& Nccl::Library::get() {
  static const Library library;
  return library;
}

Nccl::Library::Library() {
  const char* chosen = std::getenv("WARPSTEP_NCCL");
  std::string why;
  void* handle =
      open_library(chosen ? chosen : "libnccl.so.2", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE, &why);
  if (!handle)
    fail<DeviceError>(
        "GPUs of several ranks need NCCL: {}; install libnccl2, or set WARPSTEP_NCCL to the "
        "library's file (PyTorch's wheels have nvidia/nccl/lib/libnccl.so.2)",
        why);
  const auto load = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(handle, name));
    if (!function)
      fail<DeviceError>("libnccl.so.2 has no {}; it must be of version 2.13 or later", name);
  };
  load(get_version, "ncclGetVersion");
  load(get_unique_id, "ncclGetUniqueId");
  load(init_rank, "ncclCommInitRank");
  load(all_reduce, "ncclAllReduce");
  load(reduce, "ncclReduce");
  load(broadcast, "ncclBroadcast");
  load(all_gather, "ncclAllGather");
  load(group_start, "ncclGroupStart");
  load(group_end, "ncclGroupEnd");
  load(get_async_error, "ncclCommGetAsyncError");
  load(abort, "ncclCommAbort");
  load(destroy, "ncclCommDestroy");
  load(get_error_string, "ncclGetErrorString");
  load(get_last_error, "ncclGetLastError");
  check(get_version(&version), "ncclGetVersion");
  if (version < oldest_version)
    fail<DeviceError>("libnccl.so.2 is of version {}, but 2.13 or later is needed", version);
}

// ncclCommInitRank() returns when all ranks have called it, and never where one cannot: it has a
// thread of its own, which is left to the end of the process then.
void* Nccl::Library::connect(const Communicator& communicator, const UniqueId& id,
                             const Settings& settings) const {
  struct Outcome {
    std::atomic<bool> done{false};
    int result = success;
    void* comm = nullptr;
  };
  const auto outcome = std::make_shared<Outcome>();
  start_thread("nccl init", [outcome, id, init = init_rank, world = communicator.world(),
                             ordinal = settings.ordinal] {
    cudaSetDevice(ordinal);  // as in the thread that waits
    outcome->result = init(&outcome->comm, world.size, id, world.rank);
    outcome->done = true;
  }).detach();
  communicator.wait_until([&] { return outcome->done.load(); });
  check(outcome->result, "ncclCommInitRank");
  return outcome->comm;
}

Nccl::Nccl(std::shared_ptr<Communicator> communicator, const Settings& settings)
    : communicator_(std::move(communicator)), library_(Library::get()) {
  require_own_device(*communicator_, settings);
  // Since NCCL 2.22 peers connect in their first exchange, where nothing would end the wait for a
  // rank that cannot; with this they connect in ncclCommInitRank().
  ::setenv("NCCL_RUNTIME_CONNECT", "0", 0);
  Library::UniqueId id{};
  if (communicator_->world().rank == 0)
    library_.check(library_.get_unique_id(&id), "ncclGetUniqueId");
  communicator_->broadcast(std::as_writable_bytes(std::span(&id, 1)));
  comm_ = library_.connect(*communicator_, id, settings);
}

void Nccl::require_library() {
  Library::get();
}

Nccl::~Nccl() {
  // ncclCommDestroy() may wait for the other ranks. Where an error ends this one they do not come,
  // and it would be printed only after the wait.
  if (comm_ && failure_.empty() && std::uncaught_exceptions() == 0) library_.destroy(comm_);
}

std::string Nccl::version() const {
  return fmt::format("NCCL {}.{}.{}", library_.version / 10000, library_.version / 100 % 100,
                     library_.version % 100);
}

template <class Call>
void Nccl::group(std::span<const Piece> pieces, const char* name, Call call) const {
  const std::shared_lock using_it(*in_use_);
  require_sound();
  library_.check(library_.group_start(), "ncclGroupStart");
  int result = success;
  for (auto piece = pieces.begin(); piece != pieces.end() && result == success; ++piece)
    result = call(*piece);
  const int ended = library_.group_end();
  library_.check(result, name);
  library_.check(ended, "ncclGroupEnd");
}

void Nccl::mean(std::span<const Piece> pieces, bool to_owners, cudaStream_t stream) const {
  if (to_owners)
    return group(pieces, "ncclReduce", [&](const Piece& piece) {
      return library_.reduce(piece.data, piece.data, static_cast<std::size_t>(piece.elements),
                             nccl_type(piece.dtype), mean_of_ranks, piece.owner, comm_, stream);
    });
  group(pieces, "ncclAllReduce", [&](const Piece& piece) {
    return library_.all_reduce(piece.data, piece.data, static_cast<std::size_t>(piece.elements),
                               nccl_type(piece.dtype), mean_of_ranks, comm_, stream);
  });
}

void Nccl::share(std::span<const Piece> pieces, cudaStream_t stream) const {
  group(pieces, "ncclBroadcast", [&](const Piece& piece) {
    return library_.broadcast(piece.data, piece.data, static_cast<std::size_t>(piece.elements),
                              nccl_type(piece.dtype), piece.owner, comm_, stream);
  });
}

void Nccl::all_gather(void* all, std::size_t bytes, cudaStream_t stream) const {
  const std::shared_lock using_it(*in_use_);
  require_sound();
  const auto* own = static_cast<std::byte*>(all) + bytes * static_cast<std::size_t>(world().rank);
  library_.check(library_.all_gather(own, all, bytes, type_bytes, comm_, stream), "ncclAllGather");
}

void Nccl::require_sound() const {
  const std::lock_guard lock(mutex_);
  if (failure_.empty()) return;
  if (of_another_) fail<PeerError>("{}", failure_);
  fail<RankError>("{}", failure_);
}

// ncclCommAbort() has a thread of its own, as it may wait for the network, and waits until all
// captured graphs with exchanges are destroyed: the process ends soon without it. A call that waits
// for another rank in another thread ends by nothing else. Nobody uses the communicator after the
// calls of before, as all later ones throw; the lock is not held for longer, because one of these
// may come from the thread that destroys the graphs.
void Nccl::give_up(const RankError& error) {
  constexpr auto patience = std::chrono::seconds(2), patience_with_calls = patience / 4;
  {
    const std::lock_guard lock(mutex_);
    if (!failure_.empty()) return;
    failure_ = error.what();
    of_another_ = dynamic_cast<const PeerError*>(&error) != nullptr;
  }
  if (!of_another_) communicator_->set_failed(EXIT_FAILURE);  // before the others notice
  const auto aborted = std::make_shared<std::promise<void>>();
  std::thread thread;
  const std::string problem = try_start_thread(
      thread, "nccl abort", [=, abort = library_.abort, comm = comm_, in_use = in_use_] {
        { const std::unique_lock after_calls(*in_use, patience_with_calls); }
        abort(comm);
        aborted->set_value();
      });
  if (!problem.empty()) return;
  thread.detach();
  aborted->get_future().wait_for(patience);
}

void Nccl::wait_until(const std::function<bool()>& done) {
  try {
    communicator_->wait_until([&] {
      int error = success;
      {
        const std::shared_lock using_it(*in_use_);
        require_sound();  // first: after an error the device may be done, with wrong sums
        library_.check(library_.get_async_error(comm_, &error), "ncclCommGetAsyncError");
      }
      try {
        library_.check(error, "an exchange with other ranks");
      } catch (const PeerError& of_another) {
        fail<PeerError>("{}: {}", of_another.what(), communicator_->activities_at_an_end());
      }
      return done();
    });
  } catch (const RankError& error) {
    give_up(error);
    throw;
  }
}

}  // namespace warpstep::cuda
