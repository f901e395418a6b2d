// Assigns device work to the program's calls: the call that a thread is enqueuing, from spans of
// Kind::call, and the call that each node of a CUDA graph came from, from CUPTI's resource
// callbacks.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "profiler/session/session.h"
#include "profiler/sources/cupti_api.h"

namespace warpstep::profiler::calls {

// 1 + the index of the call that this thread is enqueuing; 0: none.
std::uint64_t current() noexcept;

// Follows spans of Kind::call until ignore(); `api` must live until then. False: record has no room
// for another listener.
bool follow(const CuptiApi& api);
void ignore();

// Whether calls are passed to CUPTI as external correlation ids: in windows.
void push_to_cupti(bool on);

}  // namespace warpstep::profiler::calls

namespace warpstep::profiler {

// The call of each node of CUDA graphs, and the existing contexts.
class ResourceMap {
 public:
  explicit ResourceMap(const CuptiApi& api) : api_(api) {}

  // The callbacks that on_event() needs.
  static std::vector<CUpti_CallbackId> events();
  // Called by CUPTI on the thread that causes the event; must not call CUDA.
  void on_event(CUpti_CallbackId event, const CUpti_ResourceData& data) noexcept;

  std::unordered_map<std::uint64_t, std::uint64_t> calls() const;  // by node
  std::vector<CUcontext> contexts() const;
  std::uint64_t forgotten() const { return forgotten_; }  // events lost for lack of memory

 private:
  void on_graph_event(CUpti_CallbackId event, const CUpti_GraphData& data);
  void inherit(const CUpti_GraphData& data, bool replaces);
  void on_context_event(CUpti_CallbackId event, CUcontext context);

  const CuptiApi& api_;
  mutable std::mutex mutex_;
  std::unordered_map<std::uint64_t, std::uint64_t> calls_;
  std::vector<CUcontext> contexts_;
  std::atomic<std::uint64_t> forgotten_{0};
};

}  // namespace warpstep::profiler
