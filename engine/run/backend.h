// The interface between a step and the code that computes it. A backend is a module,
// libwarpstep_NAME.so, loaded on request: a machine without a GPU and its libraries still runs the
// others.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/dist/communicator.h"
#include "engine/graph/graph.h"
#include "engine/passes/compile.h"

namespace warpstep {

// An in-order queue of device work; backends derive from it.
struct Stream {
  virtual ~Stream();
  virtual void wait() = 0;  // until everything enqueued is done
  // Marks the end of everything enqueued so far; the host can wait for any of the last eight marks.
  virtual std::uint64_t mark() { return 0; }
  virtual void wait_for(std::uint64_t) { wait(); }
  // signal() marks the end of everything enqueued so far for other streams. after(other, signal)
  // makes work enqueued here from now on wait until `other` has reached that signal, one of its
  // last eight.
  virtual std::uint64_t signal() { return 0; }
  virtual void after(Stream& other, std::uint64_t) { other.wait(); }
};

// Whose work a device starts first where that of several streams waits for room.
enum class Precedence { first, second, last };

// A step's calls, captured once and launched as one.
class Recording {
 public:
  virtual ~Recording();
  virtual void launch(Stream& stream) = 0;
};

struct Buffers {
  std::span<void*const> in,
      out;  // in the order of the node's values; null where a value is not computed
  void* workspace = nullptr;
};

// How one backend computes one node; made once, enqueued every step.
class Kernel {
 public:
  virtual ~Kernel();
  virtual std::size_t workspace_bytes() const {
    return 0;
  }  // placed by the memory plan like any value
  // Never allocates, never waits, never reads data on the host.
  virtual void enqueue(Stream& stream, const Buffers& buffers) const = 0;
  virtual std::string implementation() const {
    return {};
  }  // "winograd 4x4, AVX-512", for listings
  // Why a call that is made for tensor cores runs without them, and what to do about it, for a note
  // to the user; empty otherwise.
  virtual std::string without_tensor_cores() const { return {}; }
  // FLOPs of an algorithm that needs fewer than the op's Cost counts: Winograd's, or one that
  // leaves out taps outside of small images. 0: as many.
  virtual double flops() const { return 0; }
};

struct BackendOptions {
  static constexpr int most_threads = 4096;
  int threads = 0;  // CPU threads of the kernels; 0: all this process may run on
  std::shared_ptr<Communicator> communicator;  // of a data-parallel job; null: none
  // Only to learn whether it opens: does nothing that the ranks of a job do together.
  bool is_trial = false;
  // No algorithm that trades accuracy for speed (Winograd), nor one that makes NaN of what is not
  // finite in another group of a convolution.
  bool exact_math = false;
  // For the CUDA backend only.
  // Ordinal; none: device 0, or in a data-parallel job one for each rank of this machine.
  std::optional<int> device = {};
  bool tf32 = false;           // fp32 products on tensor cores, inputs rounded to tf32
  bool deterministic = false;  // only algorithms that give the same bits every time
  bool autotune = false;       // measure algorithms instead of trusting heuristics
  std::size_t workspace_cap = std::size_t{256} << 20;  // bytes per call
  std::filesystem::path plan_cache;  // a folder for plans and measured choices; empty: none
  std::string assumed_device;  // "sm_90": plan for such a device without having one; cannot run
};

// The device of its own that a backend computes on.
struct Accelerator {
  int ordinal = 0;
  std::string bus;  // its place in the machine, "0000:1b:00.0"; empty: not known
};

class Backend : public std::enable_shared_from_this<Backend> {
 public:
  virtual ~Backend();
  virtual std::string_view name() const = 0;  // "ref", "cpu", "cuda"
  virtual std::string describe()
      const = 0;  // one line: device, libraries, instruction set, threads
  virtual int threads() const { return 0; }  // of a CPU, that compute; 0: there is no such team
  // Further libraries and devices, for information; may load libraries only to report them.
  virtual std::string describe_surroundings() const { return {}; }

  // Chooses how every value is stored (Layout::bytes is above 0 afterwards) and inserts Reorder
  // nodes where two neighbours need different layouts. Keeps layouts that are already chosen
  // (parameters of another program). A parameter, its gradient and its moments always share one
  // layout.
  virtual void choose_layouts(Graph& graph) const = 0;
  virtual std::unique_ptr<Kernel> bind(const Graph& graph, const Node& node) const = 0;
  // While on, bind() and computes() run nothing on the device, allocate nothing there and keep no
  // plans; what bind() returns then tells its workspace, and cannot run. Calls nest.
  virtual void only_plan(bool /*on*/) const {}
  // Whether a row of fusion_table() makes a step faster here; bind() may refuse ops of other rows.
  virtual bool wants(std::string_view /*fusion*/) const { return true; }
  // Whether bind() computes this op of engine/graph/ops/norm_conv.h or norm_pool.h, or this
  // convolution with its pool (and so its gradients), on such inputs: there are kernels for only
  // some of them.
  virtual bool computes(const AnyOp&, const Types& /*in*/) const { return false; }

  virtual std::shared_ptr<std::byte> allocate(
      std::size_t bytes) const = 0;  // zero-filled; DeviceError when too large
  // Zero-filled memory that both the host and the device read and write in place.
  virtual std::shared_ptr<std::byte> allocate_host(std::size_t bytes) const {
    return allocate(bytes);
  }
  virtual std::unique_ptr<Stream> make_stream(Precedence precedence) const = 0;
  // Called before and after the calls of a step in the thread that enqueues them, to set what is a
  // thread's own: the CPU's floating-point mode, which is restored, or the current device, which
  // stays.
  virtual void begin_step() const {}
  virtual void end_step() const {}
  // Whether streams run in parallel, so that a step may use several (Lanes); else its calls run one
  // after the other.
  virtual bool has_side_lanes() const { return false; }
  // How gradients are summed over the ranks of a job.
  virtual Exchange exchange() const { return {}; }
  // Another rank failed: the device must not wait for the others any longer, or memory that it uses
  // could not be freed. What it computes from then on is wrong. Any thread may call it.
  virtual void give_up_exchanges(const RankError&) const {}
  // Steps that may be unfinished when the next one is enqueued; 0: enqueue() computes at once.
  virtual int steps_in_flight() const { return 0; }
  // Enqueues a copy of host memory into memory of allocate(). From allocate_host() it runs at the
  // speed of the bus and in parallel with everything else. May be called from another thread.
  virtual void upload(Stream& stream, void* to, const void* from, std::size_t bytes) const;
  // Free bytes of the device's own memory; 0 if it has none.
  virtual std::uint64_t free_bytes() const { return 0; }
  // Sets memory of allocate() to one byte; the streams must be idle.
  virtual void fill(void* memory, std::uint8_t byte, std::size_t bytes) const;
  // Captures the work that `enqueue` enqueues to `stream` without running it; null where a capture
  // gains nothing, or the device has no memory for it.
  virtual std::unique_ptr<Recording> record(Stream&, const std::function<void()>& enqueue) const;
  // Convert between the plain layout on the host (rows of the value's shape; floating-point numbers
  // of any dtype as f32) and the stored one. The streams must be idle.
  virtual void write(const Value& value, void* stored, std::span<const std::byte> plain) const = 0;
  virtual void read(const Value& value, const void* stored, std::span<std::byte> plain) const = 0;
  // None where the host computes, or nothing can.
  virtual std::optional<Accelerator> accelerator() const { return std::nullopt; }
};

// Loads the backend; DeviceError with the reason when it cannot work here. The modules are in the
// folder of libwarpstep_engine. "cuda:1" is CUDA device 1.
std::shared_ptr<Backend> open_backend(const std::string& name, const BackendOptions& options = {});
// Loads a backend from a module with any file name.
std::shared_ptr<Backend> load_backend(const std::filesystem::path& module,
                                      const BackendOptions& options = {});

struct BackendStatus {
  std::string name;
  bool available = false;
  std::string text;  // describe(), or the reason why it is not available
};
std::vector<BackendStatus> backend_statuses();

// The function that a module exports: extern "C" warpstep::Backend* warpstep_backend(const
// warpstep::BackendOptions&).
using BackendEntry = Backend* (*)(const BackendOptions&);

// `options` adapted to a backend: without the fusions that make its steps slower, with the ops of
// engine/graph/ops/norm_conv.h that it computes, and with its way to sum over ranks.
StepOptions options_for(const Backend& backend, StepOptions options);

}  // namespace warpstep
