// State shared by the functions of the emulated runtime; see fake_runtime.h.
#pragma once

#include <cuda_runtime_api.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tests/cuda_on_cpu/fake_runtime.h"

namespace warpstep::fake_cuda {
struct Capture;
using Nodes = std::vector<std::shared_ptr<CUgraphNode_st>>;
using Tips = std::set<std::size_t>;  // indices of the nodes that precede the next one

inline constexpr int greatest_priority = -5;  // of streams; the least is 0

// Work of a stream that has not run yet; only while work is deferred (set_deferral).
struct Queue;
struct Point {  // the first `number` pieces of a queue
  std::shared_ptr<Queue> queue;
  std::uint64_t number = 0;
};
struct Piece {
  std::string name;  // empty: it only waits
  std::function<void()> work;
  std::vector<Point> after;
};
struct Queue {
  std::deque<Piece> pieces;
  std::uint64_t issued = 0, done = 0;
};

}  // namespace warpstep::fake_cuda

// CUDA's names for the objects of its handles.
struct CUgraphNode_st {
  std::string name;
  std::function<void()> work;
  warpstep::fake_cuda::Tips after;  // of the same graph, all of a lower index
};
struct CUgraph_st {
  warpstep::fake_cuda::Nodes nodes;
};
struct CUgraphExec_st {
  warpstep::fake_cuda::Nodes nodes;
};
struct CUstream_st {
  bool blocking = true;  // synchronises with the default stream
  int priority = 0;
  std::shared_ptr<warpstep::fake_cuda::Capture> capture;
  warpstep::fake_cuda::Tips tips;
  std::shared_ptr<warpstep::fake_cuda::Queue> queue =
      std::make_shared<warpstep::fake_cuda::Queue>();
};
struct CUevent_st {
  bool timing = true;
  bool recorded = false;
  std::chrono::steady_clock::time_point time;
  std::shared_ptr<warpstep::fake_cuda::Capture>
      capture;  // in which it was last recorded, if in one
  warpstep::fake_cuda::Tips tips;
  warpstep::fake_cuda::Point point;  // what it was last recorded after
};

namespace warpstep::fake_cuda {

struct Capture {
  unsigned long long id = 0;
  cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  std::thread::id thread;
  CUstream_st* origin = nullptr;
  std::unique_ptr<CUgraph_st> graph;
  bool invalid = false, ended = false;
};

struct Failure {
  std::string function;
  cudaError_t status = cudaSuccess;
  std::size_t skipped = 0;
};

struct Memory {
  std::size_t bytes = 0;
  bool pinned = false;
  int device = 0;  // where it lies, or current when it was pinned
};

struct State {
  std::map<std::string, std::size_t> calls, runs;
  std::vector<Failure> failures;
  std::map<std::byte*, Memory> memory;
  std::set<CUstream_st*> streams;
  std::set<CUevent_st*> events;
  std::set<CUgraph_st*> graphs;
  std::set<CUgraphExec_st*> executables;
  std::set<std::shared_ptr<Capture>> captures;  // that have not ended
  int devices = 1;                              // of a program: WARPSTEP_FAKE_DEVICES
  std::size_t device_bytes = std::size_t{8} << 30, used_bytes = 0;
  int compiled = 90;
  std::uint64_t deferral = 0;  // of a program: WARPSTEP_FAKE_DEFERRAL
  std::mt19937_64 draws;
  std::shared_ptr<Queue> default_queue = std::make_shared<Queue>();
  std::vector<std::shared_ptr<Queue>> queues;  // that have had work
  unsigned long long last_capture = 0;
  std::recursive_mutex mutex;  // held while work runs: the device does one thing at a time

  cudaError_t injected(const std::string& function);
  // For a call that CUDA does not allow during a capture: fails it and invalidates the captures.
  cudaError_t unsafe_in_capture();
  void leave(std::shared_ptr<Capture> capture);  // it ends, with or without a graph
  // Whether [address, address+bytes) lies in one block of memory that the device can reach.
  bool reachable(const void* address, std::size_t bytes) const;
};
State& state();
int& current_device();                     // of this thread
cudaError_t remember(cudaError_t status);  // for cudaGetLastError, of this thread

// Counts a call; fails it if a test requested that, else runs it: Body is cudaError_t(State&).
template <class Body>
cudaError_t call(const char* function, Body body) {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  ++s.calls[function];
  const cudaError_t failure = s.injected(function);
  return remember(failure != cudaSuccess ? failure : body(s));
}

// A null handle, cudaStreamLegacy and cudaStreamPerThread are the default stream.
bool is_default(cudaStream_t stream);
cudaError_t issue(State& s, cudaStream_t stream, const std::string& name,
                  std::function<void()> work);
void replay(const Nodes& nodes);

// Where work is deferred: what a stream has so far, whether that has run, and running it.
Point so_far(State& s, cudaStream_t stream);
bool is_done(const Point& point);
void finish(State& s, const Point& point);
void finish_all(State& s);
void run_some(State& s);  // a few pieces of any queue
void defer(State& s, cudaStream_t stream, Piece piece);

}  // namespace warpstep::fake_cuda
