// Which of a program's calls a thread enqueues now, as record::Span tells it.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "profiler/session/session.h"
#include "profiler/sources/cupti_api.h"

namespace warpstep::profiler {

// Which call each node of a CUDA graph came from, and which contexts there are: what CUPTI's
// resource callbacks tell.

class ResourceMap {
 public:
  explicit ResourceMap(const CuptiApi& api) : api_(api) {}

  // The callbacks that on_event() wants.
  static std::vector<CUpti_CallbackId> events();
  // From CUPTI, on the thread that does it; must not call CUDA.
  void on_event(CUpti_CallbackId event, const CUpti_ResourceData& data) noexcept;

  std::unordered_map<std::uint64_t, std::uint64_t> calls() const;  // by node
  std::vector<CUcontext> contexts() const;
  std::uint64_t forgotten() const { return forgotten_; }  // events, for lack of memory

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

std::vector<GraphNode> sorted_nodes(const std::unordered_map<std::uint64_t, std::uint64_t>& calls);

}  // namespace warpstep::profiler

namespace warpstep::profiler::calls {

// 1 + the call's index; 0: none.
std::uint64_t current() noexcept;

// From now on spans of Kind::call are followed; false: record has no room for another listener.
bool follow(const CuptiApi& api);  // which must stay until ignore()
void ignore();

// Whether CUPTI is told, by external correlation ids: in windows.
void tell_cupti(bool on);

}  // namespace warpstep::profiler::calls
