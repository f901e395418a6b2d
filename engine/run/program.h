// A step, ready to run: the flat list of calls with their kernels and buffers.
#pragma once

#include <memory>
#include <vector>

#include "engine/passes/memory.h"
#include "engine/run/backend.h"
#include "engine/run/store.h"

namespace warpstep {

struct Call {
  int node = -1;  // index into Program::graph().nodes
  std::string title;
  Phase phase = Phase::forward;
  Cost cost;
  std::unique_ptr<Kernel> kernel;
  std::vector<void*> in, out;
  void* workspace = nullptr;

  Buffers buffers() const { return {in, out, workspace}; }
};

class Program {
 public:
  // Chooses layouts, binds kernels, plans and allocates the arena. Parameters are in `store`, in
  // its layouts; without one the program creates its own. Throws OutOfMemory, naming the peak, if
  // the step does not fit into memory (see engine/run/step_memory.h).
  Program(Graph graph, std::shared_ptr<Backend> backend, std::shared_ptr<Store> store = nullptr);

  const Graph& graph() const { return graph_; }
  const MemoryPlan& plan() const { return plan_; }
  std::span<const Call> calls() const { return calls_; }
  Backend& backend() const { return *backend_; }
  Store& store() const { return *store_; }
  std::shared_ptr<Store> shared_store() const { return store_; }
  Stream& stream() const { return *stream_; }

  // Sets the device addresses of the input slots for the next steps, in the order of Graph::inputs.
  void set_inputs(std::span<const void* const> slots);
  std::span<const void* const> inputs() const { return slots_; }
  // Every call of a step must be enqueued, in order. Those of the second lane go to the second
  // stream; the first stream waits for them where the plan requires it, at the latest after the
  // last call.
  void enqueue(std::size_t call);
  // Whether the next steps run the calls that measure (OpKind::measure); at first they do not, and
  // enqueue() does nothing for such a call.
  void measure(bool measures) { measures_ = measures; }
  bool measures() const { return measures_; }
  bool runs(std::size_t call) const {
    return measures_ || !is_measure(graph_.nodes[idx(calls_[call].node)].op);
  }
  void wait() const;  // until everything enqueued is done
  const Lanes& lanes() const { return lanes_; }

  void* address(int value) const;  // null for a value that is not computed
  std::vector<float> read(
      int value) const;          // a float value in the plain layout; waits for the streams
  float loss() const;            // of the last step; waits
  std::int32_t correct() const;  // 0 if the graph does not count them

  // Fills every buffer whose last reader was this call with NaN patterns, so that a later read
  // shows in the result. The streams must be idle.
  void poison_dead_buffers(std::size_t call) const;

 private:
  void make_calls();
  void allocate();
  void wait_for_lane(int node);
  void find_addresses();

  Graph graph_;
  std::shared_ptr<Backend> backend_;
  std::shared_ptr<Store> store_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<Stream> second_stream_;  // of the second lane, if there is one
  Lanes lanes_;
  struct Pending {
    int waited_at = 0;
    std::uint64_t signal = 0;
  };
  std::vector<Pending> pending_;  // of the second lane, oldest first
  MemoryPlan plan_;
  std::shared_ptr<std::byte> arena_;
  std::vector<Call> calls_;
  std::vector<const void*> slots_;
  bool measures_ = false;
};

}  // namespace warpstep
