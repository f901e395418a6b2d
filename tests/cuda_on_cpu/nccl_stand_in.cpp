// A libnccl.so.2 for machines without several GPUs: means over ranks that are processes of one
// machine, through POSIX shared memory, added in the order of the ranks. All work is put on streams
// by the emulated runtime (copy, exchange, copy), so that it is captured as NCCL's is. As NCCL's,
// ncclCommAbort and ncclCommDestroy wait until no captured graph has an exchange any more.
//
// Faults to plant, by environment: NCCL_STAND_IN_FAIL=RANK:FUNCTION:CALL:RESULT, that rank's
// CALL-th call of FUNCTION (from 1) returns RESULT, or never returns if RESULT is -1; several are
// separated by commas. NCCL_STAND_IN_ASYNC=RANK:RUN:RESULT, the rank's RUN-th exchange on the
// device does not happen and ncclCommGetAsyncError reports RESULT. A rank whose peer has died or
// given up reports ncclRemoteError.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime_api.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/cuda_on_cpu/fake_runtime.h"

namespace {

enum Result { success = 0, system_error = 2, invalid_argument = 4, remote_error = 6 };
enum Type { u8 = 1, f16 = 6, f32 = 7, bf16 = 9 };
enum class Kind { mean, mean_at_root, broadcast, gather };
constexpr int average = 4;
constexpr int most_ranks = 16;
constexpr std::size_t window_bytes = std::size_t{1} << 20;  // of a rank
using Clock = std::chrono::steady_clock;

struct UniqueId {
  char name[128];
};

// At the head of the shared memory; the windows of the ranks follow.
struct Shared {
  std::atomic<int> arrived, generation, given_up, ended;
  std::array<std::atomic<int>, most_ranks> process;
};

// How long a rank is waited for: NCCL_STAND_IN_PATIENCE seconds.
std::chrono::seconds patience() {
  const char* text = std::getenv("NCCL_STAND_IN_PATIENCE");
  return std::chrono::seconds(text ? std::atoi(text) : 30);
}

// For calls that name no communicator: by the launcher's environment.
int rank_of_process() {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "RANK"})
    if (const char* text = std::getenv(name)) return std::atoi(text);
  return 0;
}

// What a call is to return instead of being made; success: it is to be made.
int planted_failure(const char* function, int rank) {
  static std::mutex mutex;
  static std::map<std::pair<int, std::string>, int> calls;
  const char* text = std::getenv("NCCL_STAND_IN_FAIL");
  if (!text) return success;
  int call = 0;
  {
    const std::lock_guard lock(mutex);
    call = ++calls[{rank, function}];
  }
  for (const char* one = text; one; one = std::strchr(one, ',')) {
    if (*one == ',') ++one;
    int at_rank = 0, at_call = 0, result = 0;
    std::array<char, 64> name{};
    if (std::sscanf(one, "%d:%63[^:]:%d:%d", &at_rank, name.data(), &at_call, &result) != 4 ||
        at_rank != rank || at_call != call || std::strcmp(name.data(), function) != 0)
      continue;
    while (result < 0) std::this_thread::sleep_for(std::chrono::hours(1));
    return result;
  }
  return success;
}

bool planted_on_device(int rank, int run, int& result) {
  const char* text = std::getenv("NCCL_STAND_IN_ASYNC");
  int at_rank = 0, at = 0, code = 0;
  if (!text || std::sscanf(text, "%d:%d:%d", &at_rank, &at, &code) != 3) return false;
  if (at_rank != rank || at != run) return false;
  result = code;
  return true;
}

float load(const std::byte* at, int type) {
  if (type == f32) {
    float value = 0;
    std::memcpy(&value, at, sizeof value);
    return value;
  }
  if (type == f16) {
    __half half;
    std::memcpy(&half, at, sizeof half);
    return __half2float(half);
  }
  __nv_bfloat16 half;
  std::memcpy(&half, at, sizeof half);
  return __bfloat162float(half);
}

void store(std::byte* at, int type, float value) {
  if (type == f32) {
    std::memcpy(at, &value, sizeof value);
  } else if (type == f16) {
    const __half half = __float2half(value);
    std::memcpy(at, &half, sizeof half);
  } else {
    const __nv_bfloat16 half = __float2bfloat16(value);
    std::memcpy(at, &half, sizeof half);
  }
}

std::size_t size_of(int type) {
  return type == u8 ? 1 : type == f32 ? 4 : 2;
}

struct Exchange {  // of one call; a captured one runs many times
  Kind kind = Kind::mean;
  int type = f32, root = 0;
  std::size_t count = 0;            // of a rank
  std::vector<std::byte> values;    // what it gives
  std::vector<std::byte> gathered;  // what it gets, unless that is in `values`
};

struct Comm {
  Shared* shared = nullptr;
  std::byte* windows = nullptr;
  std::size_t mapped = 0;
  int rank = 0, size = 0, runs = 0;
  std::atomic<int> error{success};
  std::atomic<int> exchanges{0};  // that run, or that a captured graph has

  ~Comm() {
    while (exchanges > 0) std::this_thread::sleep_for(std::chrono::microseconds(100));
    munmap(shared, mapped);
  }

  bool lost() const {
    if (shared->given_up) return true;
    for (int r = 0; r < size; ++r)
      if (kill(shared->process[static_cast<std::size_t>(r)], 0) != 0) return true;
    return false;
  }

  // Waits until all ranks are here; false if one never will be.
  bool meet() {
    const int generation = shared->generation;
    if (shared->arrived.fetch_add(1) + 1 == size) {
      shared->arrived = 0;
      shared->generation.fetch_add(1);
      return true;
    }
    const auto since = Clock::now();
    while (true) {
      // Before the look at the generation: one that left after the meeting has been there.
      const bool in_vain = lost() || Clock::now() - since > patience();
      if (shared->generation != generation) return true;
      if (in_vain) return false;
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
  }

  void run(Exchange& exchange) {
    int result = success;
    if (planted_on_device(rank, ++runs, result)) give_up(result);
    if (error != success) return;
    const std::size_t bytes = size_of(exchange.type), most = window_bytes / bytes;
    for (std::size_t begin = 0; begin < exchange.count; begin += most) {
      const std::size_t count = std::min(most, exchange.count - begin);
      std::byte* own = exchange.values.data() + begin * bytes;
      std::memcpy(windows + static_cast<std::size_t>(rank) * window_bytes, own, count * bytes);
      if (!meet()) return give_up(remote_error);
      finish(exchange, begin, count);
      if (!meet()) return give_up(remote_error);
    }
  }

  // What `count` elements from `begin` on become, from the windows of all ranks.
  void finish(Exchange& exchange, std::size_t begin, std::size_t count) const {
    const std::size_t bytes = size_of(exchange.type);
    const auto window = [&](int r) { return windows + static_cast<std::size_t>(r) * window_bytes; };
    std::byte* own = exchange.values.data() + begin * bytes;
    if (exchange.kind == Kind::broadcast) std::memcpy(own, window(exchange.root), count * bytes);
    if (exchange.kind == Kind::gather)
      for (int r = 0; r < size; ++r)
        std::memcpy(exchange.gathered.data() +
                        (static_cast<std::size_t>(r) * exchange.count + begin) * bytes,
                    window(r), count * bytes);
    if (exchange.kind != Kind::mean &&
        (exchange.kind != Kind::mean_at_root || exchange.root != rank))
      return;
    for (std::size_t i = 0; i < count; ++i) {
      float sum = 0;
      for (int r = 0; r < size; ++r) sum += load(window(r) + i * bytes, exchange.type);
      store(own + i * bytes, exchange.type, sum / static_cast<float>(size));
    }
  }

  void give_up(int result) {
    error = result;
    shared->given_up = 1;
  }
};

// Copies to the host, exchanges there, copies back.
int enqueue(const char* function, void* handle, Exchange made, const void* from, void* to,
            cudaStream_t stream) {
  auto& comm = *static_cast<Comm*>(handle);
  if (const int result = planted_failure(function, comm.rank)) return result;
  if (made.type != u8 && made.type != f32 && made.type != f16 && made.type != bf16)
    return invalid_argument;
  made.values.resize(made.count * size_of(made.type));
  if (made.kind == Kind::gather)
    made.gathered.resize(made.values.size() * static_cast<std::size_t>(comm.size));
  ++comm.exchanges;
  const std::shared_ptr<Exchange> exchange(new Exchange(std::move(made)), [&comm](Exchange* over) {
    delete over;
    --comm.exchanges;
  });
  std::vector<std::byte>& results =
      exchange->kind == Kind::gather ? exchange->gathered : exchange->values;
  if (cudaMemcpyAsync(exchange->values.data(), from, exchange->values.size(),
                      cudaMemcpyDeviceToHost, stream) != cudaSuccess ||
      warpstep::fake_cuda::enqueue(stream, "exchange",
                                   [exchange, &comm] { comm.run(*exchange); }) != cudaSuccess ||
      cudaMemcpyAsync(to, results.data(), results.size(), cudaMemcpyHostToDevice, stream) !=
          cudaSuccess)
    return 1;  // ncclUnhandledCudaError
  return success;
}

}  // namespace

extern "C" {

int ncclGetVersion(int* version) {
  if (const int result = planted_failure("ncclGetVersion", rank_of_process())) return result;
  *version = 22809;
  return success;
}

int ncclGetUniqueId(UniqueId* id) {
  if (const int result = planted_failure("ncclGetUniqueId", rank_of_process())) return result;
  std::memset(id, 0, sizeof *id);
  std::snprintf(id->name, sizeof id->name, "/nccl-stand-in-%d-%lld", getpid(),
                static_cast<long long>(Clock::now().time_since_epoch().count()));
  return success;
}

int ncclCommInitRank(void** comm, int size, UniqueId id, int rank) {
  if (size < 1 || size > most_ranks || rank < 0 || rank >= size) return invalid_argument;
  if (const int result = planted_failure("ncclCommInitRank", rank)) return result;
  // NCCL would connect peers in their first exchange.
  if (!std::getenv("NCCL_RUNTIME_CONNECT")) return invalid_argument;
  auto made = std::make_unique<Comm>();
  made->rank = rank;
  made->size = size;
  made->mapped = sizeof(Shared) + window_bytes * static_cast<std::size_t>(size);
  const int file = shm_open(id.name, O_CREAT | O_RDWR, 0600);
  if (file < 0 || ftruncate(file, static_cast<off_t>(made->mapped)) != 0) return system_error;
  void* memory = mmap(nullptr, made->mapped, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (memory == MAP_FAILED) return system_error;
  made->shared = static_cast<Shared*>(memory);
  made->windows = static_cast<std::byte*>(memory) + sizeof(Shared);
  made->shared->process[static_cast<std::size_t>(rank)] = getpid();
  const auto since = Clock::now();
  for (const auto& process : made->shared->process) {
    if (&process - made->shared->process.data() >= size) break;
    while (process == 0) {
      if (Clock::now() - since > patience()) return system_error;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  const bool all = made->meet();
  if (rank == 0) shm_unlink(id.name);
  if (!all) return remote_error;
  *comm = made.release();
  return success;
}

int ncclAllReduce(const void* from, void* to, std::size_t count, int type, int operation,
                  void* handle, cudaStream_t stream) {
  if (operation != average) return invalid_argument;
  return enqueue("ncclAllReduce", handle, {.kind = Kind::mean, .type = type, .count = count}, from,
                 to, stream);
}

int ncclReduce(const void* from, void* to, std::size_t count, int type, int operation, int root,
               void* handle, cudaStream_t stream) {
  if (operation != average) return invalid_argument;
  return enqueue("ncclReduce", handle,
                 {.kind = Kind::mean_at_root, .type = type, .root = root, .count = count}, from, to,
                 stream);
}

int ncclBroadcast(const void* from, void* to, std::size_t count, int type, int root, void* handle,
                  cudaStream_t stream) {
  return enqueue("ncclBroadcast", handle,
                 {.kind = Kind::broadcast, .type = type, .root = root, .count = count}, from, to,
                 stream);
}

int ncclAllGather(const void* from, void* to, std::size_t count, int type, void* handle,
                  cudaStream_t stream) {
  return enqueue("ncclAllGather", handle, {.kind = Kind::gather, .type = type, .count = count},
                 from, to, stream);
}

int ncclGroupStart() {
  return planted_failure("ncclGroupStart", rank_of_process());
}
int ncclGroupEnd() {
  return planted_failure("ncclGroupEnd", rank_of_process());
}
int ncclCommGetAsyncError(void* handle, int* error) {
  const int rank = static_cast<Comm*>(handle)->rank;
  if (const int result = planted_failure("ncclCommGetAsyncError", rank)) return result;
  *error = static_cast<Comm*>(handle)->error;
  return success;
}
int ncclCommDestroy(void* handle) {
  const std::unique_ptr<Comm> comm(static_cast<Comm*>(handle));
  if (const int result = planted_failure("ncclCommDestroy", comm->rank)) return result;
  comm->shared->ended.fetch_add(1);  // as NCCL may, it waits for all ranks
  const auto since = Clock::now();
  while (comm->shared->ended < comm->size && !comm->lost() && Clock::now() - since < patience())
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  return success;
}
int ncclCommAbort(void* handle) {
  const std::unique_ptr<Comm> comm(static_cast<Comm*>(handle));
  if (const int result = planted_failure("ncclCommAbort", comm->rank)) return result;
  comm->give_up(remote_error);
  return success;
}
const char* ncclGetErrorString(int result) {
  return result == success        ? "no error"
         : result == remote_error ? "remote process exited or there was a network error"
         : result == system_error ? "unhandled system error"
                                  : "internal error";
}
const char* ncclGetLastError(void*) {
  return "";
}

}  // extern "C"
