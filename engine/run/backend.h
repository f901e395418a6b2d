// The boundary between what is computed and how. A backend is a module, libwarpstep_NAME.so, loaded
// when it is asked for: a machine without a GPU, or without oneDNN, still runs the others.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/graph/graph.h"
#include "engine/passes/compile.h"

namespace warpstep {

// An in-order queue of device work. Backends derive their own.
struct Stream {
  virtual ~Stream();
  virtual void wait() = 0;  // until everything enqueued is done
  // A mark behind everything that was enqueued so far, and the host's wait for one of the last
  // eight.
  virtual std::uint64_t mark() { return 0; }
  virtual void wait_for(std::uint64_t) { wait(); }
  // A signal behind everything that was enqueued so far; after it, what `this` is given from now on
  // begins when `other` has come to its signal, one of the last eight.
  virtual std::uint64_t signal() { return 0; }
  virtual void after(Stream& other, std::uint64_t) { other.wait(); }
};

// A step's calls, captured once: launched as one.
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
  // Never allocates, never waits, never looks at data from the host.
  virtual void enqueue(Stream& stream, const Buffers& buffers) const = 0;
  virtual std::string implementation() const {
    return {};
  }  // "jit_wino_4x3:avx512_core", for listings
};

struct BackendOptions {
  int threads = 0;          // CPU threads of the kernels; 0: all this process may run on
  bool exact_math = false;  // no algorithm that trades accuracy for speed (Winograd)
  // The CUDA backend's own.
  int device = 0;              // ordinal
  bool tf32 = false;           // fp32 products on tensor cores, inputs rounded to tf32
  bool deterministic = false;  // only algorithms that give the same bits every time
  bool autotune = false;       // measure algorithms instead of trusting heuristics
  std::size_t workspace_cap = std::size_t{256} << 20;  // bytes a call
  std::filesystem::path plan_cache;  // a folder for plans and measured choices; empty: none
  std::string assumed_device;        // "sm_90": plan for such a device, without one; cannot run
};

class Backend : public std::enable_shared_from_this<Backend> {
 public:
  virtual ~Backend();
  virtual std::string_view name() const = 0;  // "ref", "cpu", "cuda"
  virtual std::string describe()
      const = 0;  // one line: device, libraries, instruction set, threads
  // What there is besides, for information; may load libraries that nothing else here loads.
  virtual std::string describe_surroundings() const { return {}; }

  // Chooses how every value is stored (Layout::bytes is above 0 afterwards) and inserts Reorder
  // nodes where two neighbours want different layouts. Layouts that are already chosen (parameters
  // of another program) are kept. A parameter, its gradient and its moments always share one
  // layout.
  virtual void choose_layouts(Graph& graph) const = 0;
  virtual std::unique_ptr<Kernel> bind(const Graph& graph, const Node& node) const = 0;
  // Whether a row of fusion_table() pays here; bind() may refuse what a row makes that does not.
  virtual bool wants(std::string_view /*fusion*/) const { return true; }
  // Whether bind() computes an op of engine/graph/ops/norm_conv.h on such inputs: libraries have
  // engines for some of them.
  virtual bool computes(const AnyOp&, const Types& /*in*/) const { return false; }

  virtual std::shared_ptr<std::byte> allocate(
      std::size_t bytes) const = 0;  // zero-filled; DeviceError when too large
  // Zero-filled memory that both the host and the device read and write in place.
  virtual std::shared_ptr<std::byte> allocate_host(std::size_t bytes) const {
    return allocate(bytes);
  }
  virtual std::unique_ptr<Stream> make_stream() const = 0;
  // Around the calls of a step, in the thread that enqueues them: the CPU's floating-point mode.
  virtual void begin_step() const {}
  virtual void end_step() const {}
  // Streams that may run side by side in one step; 1: the calls of a step run one after the other.
  virtual int lanes() const { return 1; }
  // Steps that may be on their way when the next one is enqueued; 0: enqueue() computes at once.
  virtual int steps_in_flight() const { return 0; }
  // Enqueues a copy of host memory into memory of allocate(): from allocate_host() at the speed of
  // the bus and beside everything else. May be called from a thread of its own.
  virtual void upload(Stream& stream, void* to, const void* from, std::size_t bytes) const;
  // Of the device's own memory, what is not taken; 0 where it has none.
  virtual std::uint64_t free_bytes() const { return 0; }
  // Sets memory of allocate() to one byte; the streams must be idle.
  virtual void fill(void* memory, std::uint8_t byte, std::size_t bytes) const;
  // Captures what `enqueue` gives to `stream`, without running it; null where nothing is gained.
  virtual std::unique_ptr<Recording> record(Stream&, const std::function<void()>& enqueue) const;
  // Between the plain layout on the host (rows of the value's shape; floating-point numbers of any
  // dtype as f32) and the stored one. The streams must be idle.
  virtual void write(const Value& value, void* stored, std::span<const std::byte> plain) const = 0;
  virtual void read(const Value& value, const void* stored, std::span<std::byte> plain) const = 0;
};

// Loads the backend; DeviceError with the reason when it cannot work here. The modules lie beside
// libwarpstep_engine. "cuda:1" is the CUDA device 1.
std::shared_ptr<Backend> open_backend(const std::string& name, const BackendOptions& options = {});
// Loads a backend from a module of any name.
std::shared_ptr<Backend> load_backend(const std::filesystem::path& module,
                                      const BackendOptions& options = {});

struct BackendStatus {
  std::string name;
  bool available = false;
  std::string text;  // describe(), or why not
};
std::vector<BackendStatus> backend_statuses();

// What a module exports: extern "C" warpstep::Backend* warpstep_backend(const
// warpstep::BackendOptions&).
using BackendEntry = Backend* (*)(const BackendOptions&);

// `options` without the fusions that do not pay on `backend`, and with those that it computes.
StepOptions options_for(const Backend& backend, StepOptions options);

}  // namespace warpstep
