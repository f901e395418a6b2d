// A libnccl.so.2 for machines without several GPUs: means over ranks that are processes of one
// machine, through POSIX shared memory, added in the order of the ranks. All work is put on streams
// by the runtime alone (copy, host function, copy), so that it is captured as NCCL's is.
//
// Faults to plant, by environment: NCCL_STAND_IN_FAIL=RANK:CALL:RESULT, the CALL-th collective call
// of that rank (from 1) returns RESULT; NCCL_STAND_IN_ASYNC=RANK:RUN:RESULT, its RUN-th exchange on
// the device does not happen and ncclCommGetAsyncError reports RESULT. A rank whose peer has died
// or given up reports ncclRemoteError.
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
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace {

enum Result { success = 0, system_error = 2, invalid_argument = 4, remote_error = 6 };
enum Type { u8 = 1, f16 = 6, f32 = 7, bf16 = 9 };
enum class Kind { mean, mean_at_root, broadcast, gather };
constexpr int average = 4;
constexpr int most_ranks = 16;
constexpr std::size_t window_bytes = std::size_t{1} << 20;  // of a rank
constexpr auto patience = std::chrono::seconds(30);
using Clock = std::chrono::steady_clock;

struct UniqueId {
  char name[128];
};

// At the head of the shared memory; the windows of the ranks follow.
struct Shared {
  std::atomic<int> arrived, generation, given_up;
  std::array<std::atomic<int>, most_ranks> process;
};

bool planted(const char* variable, int rank, int count, int& result) {
  const char* text = std::getenv(variable);
  int at_rank = 0, at = 0, code = 0;
  if (!text || std::sscanf(text, "%d:%d:%d", &at_rank, &at, &code) != 3) return false;
  if (at_rank != rank || at != count) return false;
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

struct Comm;

std::size_t size_of(int type) {
  return type == u8 ? 1 : type == f32 ? 4 : 2;
}

struct Exchange {  // of one call; a captured one runs many times
  Comm* comm = nullptr;
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
  int rank = 0, size = 0, calls = 0, runs = 0;
  std::atomic<int> error{success};
  std::vector<std::unique_ptr<Exchange>> exchanges;

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
    while (shared->generation == generation) {
      std::this_thread::sleep_for(std::chrono::microseconds(20));
      if (lost() || Clock::now() - since > patience) return false;
    }
    return true;
  }

  void run(Exchange& exchange) {
    int result = success;
    if (planted("NCCL_STAND_IN_ASYNC", rank, ++runs, result)) give_up(result);
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

void run_exchange(void* data) {
  auto* exchange = static_cast<Exchange*>(data);
  exchange->comm->run(*exchange);
}

// Copies to the host, exchanges there, copies back.
int enqueue(void* handle, Exchange made, const void* from, void* to, cudaStream_t stream) {
  auto& comm = *static_cast<Comm*>(handle);
  int result = success;
  if (planted("NCCL_STAND_IN_FAIL", comm.rank, ++comm.calls, result)) return result;
  if (made.type != u8 && made.type != f32 && made.type != f16 && made.type != bf16)
    return invalid_argument;
  made.comm = &comm;
  made.values.resize(made.count * size_of(made.type));
  if (made.kind == Kind::gather)
    made.gathered.resize(made.values.size() * static_cast<std::size_t>(comm.size));
  comm.exchanges.push_back(std::make_unique<Exchange>(std::move(made)));
  Exchange& exchange = *comm.exchanges.back();
  std::vector<std::byte>& results =
      exchange.kind == Kind::gather ? exchange.gathered : exchange.values;
  if (cudaMemcpyAsync(exchange.values.data(), from, exchange.values.size(), cudaMemcpyDeviceToHost,
                      stream) != cudaSuccess ||
      cudaLaunchHostFunc(stream, run_exchange, &exchange) != cudaSuccess ||
      cudaMemcpyAsync(to, results.data(), results.size(), cudaMemcpyHostToDevice, stream) !=
          cudaSuccess)
    return 1;  // ncclUnhandledCudaError
  return success;
}

}  // namespace

extern "C" {

int ncclGetVersion(int* version) {
  *version = 22809;
  return success;
}

int ncclGetUniqueId(UniqueId* id) {
  std::memset(id, 0, sizeof *id);
  std::snprintf(id->name, sizeof id->name, "/nccl-stand-in-%d-%lld", getpid(),
                static_cast<long long>(Clock::now().time_since_epoch().count()));
  return success;
}

int ncclCommInitRank(void** comm, int size, UniqueId id, int rank) {
  if (size < 1 || size > most_ranks || rank < 0 || rank >= size) return invalid_argument;
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
      if (Clock::now() - since > patience) return system_error;
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
  return enqueue(handle, {.kind = Kind::mean, .type = type, .count = count}, from, to, stream);
}

int ncclReduce(const void* from, void* to, std::size_t count, int type, int operation, int root,
               void* handle, cudaStream_t stream) {
  if (operation != average) return invalid_argument;
  return enqueue(handle, {.kind = Kind::mean_at_root, .type = type, .root = root, .count = count},
                 from, to, stream);
}

int ncclBroadcast(const void* from, void* to, std::size_t count, int type, int root, void* handle,
                  cudaStream_t stream) {
  return enqueue(handle, {.kind = Kind::broadcast, .type = type, .root = root, .count = count},
                 from, to, stream);
}

int ncclAllGather(const void* from, void* to, std::size_t count, int type, void* handle,
                  cudaStream_t stream) {
  return enqueue(handle, {.kind = Kind::gather, .type = type, .count = count}, from, to, stream);
}

int ncclGroupStart() {
  return success;
}
int ncclGroupEnd() {
  return success;
}
int ncclCommGetAsyncError(void* handle, int* error) {
  *error = static_cast<Comm*>(handle)->error;
  return success;
}
int ncclCommDestroy(void* handle) {
  const std::unique_ptr<Comm> comm(static_cast<Comm*>(handle));
  munmap(comm->shared, comm->mapped);
  return success;
}
int ncclCommAbort(void* handle) {
  static_cast<Comm*>(handle)->give_up(remote_error);  // kept: work on the device may still use it
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
