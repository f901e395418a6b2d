// A step, ready to run: the flat list of calls with their kernels and buffers.
#pragma once

#include <array>
#include <compare>
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
  // Of the kernel's algorithm where it needs fewer than the op's definition, else those of `cost`.
  double executed_flops() const;
};

// What may differ between two steps of a program: the device addresses of its inputs, and which of
// its calls run.
struct StepVariant {
  std::vector<const void*> slots;  // in the order of Graph::inputs
  bool measures = false, accumulates = false;

  auto operator<=>(const StepVariant&) const = default;
};

class Program {
 public:
  // Chooses layouts, binds kernels, plans and allocates the arena. Parameters are in `store`, in
  // its layouts; without one the program creates its own. Throws UsageError for a store of another
  // backend, OutOfMemory, naming the peak, if the step does not fit into memory (see
  // engine/run/step_memory.h). Without `allocates` there is no arena: it can be explained, not run.
  Program(Graph graph, std::shared_ptr<Backend> backend, std::shared_ptr<Store> store = nullptr,
          bool allocates = true);

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
  // What a step needs: UsageError where one of these slots is null, or there is no arena, Error for
  // another number of slots than the step has inputs.
  void require_ready(std::span<const void* const> slots) const;
  // Every call of a step must be enqueued, in order; the first one does require_ready(). Those of a
  // side lane go to a stream of its own; the first stream waits for them where the plan requires
  // it, at the latest after the last call.
  void enqueue(std::size_t call);
  // Whether the next steps run the calls that measure (OpKind::measure); at first they do not, and
  // enqueue() does nothing for such a call.
  void measure(bool measures) { measures_ = measures; }
  bool measures() const { return measures_; }
  // Whether the next steps only accumulate gradients: they leave out the exchanges between ranks.
  // At first they do not.
  void accumulate(bool accumulates) { accumulates_ = accumulates; }
  bool accumulates() const { return accumulates_; }
  bool runs(std::size_t call) const;
  // The three above together.
  StepVariant variant() const { return {slots_, measures_, accumulates_}; }
  void set_variant(const StepVariant& variant);
  void wait() const;  // until everything enqueued is done
  const Lanes& lanes() const { return lanes_; }

  void* address(int value) const;  // null for a value that is not computed; UsageError for none
  std::vector<float> read(
      int value) const;  // a float value in the plain layout; waits for the streams. UsageError
                         // for another value, or one without memory
  float loss() const;    // of the last step; waits. UsageError if the graph has none
  std::int32_t correct() const;  // 0 if the graph does not count them

  // Fills every buffer whose last reader was this call with NaN patterns, so that a later read
  // shows in the result. The streams must be idle.
  void poison_dead_buffers(std::size_t call) const;

 private:
  const Call& call_at(std::size_t index) const;  // UsageError beyond the last
  void make_calls();
  void allocate(bool arena);
  void begin_in(int lane);
  Precedence precedence_of(int lane) const;
  void wait_for_lanes(int node);
  void find_addresses();

  Graph graph_;
  std::shared_ptr<Backend> backend_;
  std::shared_ptr<Store> store_;
  std::unique_ptr<Stream> stream_;
  Lanes lanes_;
  struct Pending {
    int waited_at = 0;
    std::uint64_t signal = 0;
  };
  struct SideLane {
    std::unique_ptr<Stream> stream;  // null where no call is in this lane
    std::vector<Pending> pending;    // oldest first
  };
  std::array<SideLane, Lanes::count> side_;  // the first is the step's own stream_, and unused
  MemoryPlan plan_;
  std::shared_ptr<std::byte> arena_;
  std::vector<Call> calls_;
  std::vector<const void*> slots_;
  bool measures_ = false, accumulates_ = false;
};

}  // namespace warpstep
