// Memory that persists from step to step: parameters, their 16-bit copies if the step computes with
// such, and for training gradients and moments, in sections of one allocation. An element has the
// same index in every section, so that the optimiser is one pass. Also the StepState and the
// reports of the last steps.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "engine/core/scratch.h"
#include "engine/graph/step_state.h"
#include "engine/run/backend.h"

namespace warpstep {

// Offsets of parameters inside their section; pure arithmetic on the chosen layouts. All are
// multiples of arena_alignment (passes/memory.h). A section of narrower elements has the same
// indices: offsets and bytes shrink with the element, to half, which is still enough for the widest
// loads of a GPU.
struct Sections {
  std::vector<std::size_t> offsets;  // bytes, one per parameter
  std::size_t bytes = 0;             // of the section
};
Sections sections(const Graph& graph);
// Elements of a section with `element_bytes` each. The padding between parameters is always zero.
std::int64_t section_elements(const Graph& graph, std::size_t element_bytes = sizeof(float));
// Of the parameters that an UpdateAll changes, which follow each other in each section: from its
// first input on.
std::int64_t section_elements(const Graph& graph, const Node& update_all,
                              std::size_t element_bytes = sizeof(float));

// Elements that follow each other in a section, padding between parameters included.
struct SectionRun {
  std::size_t input = 0;   // of the node: it begins there
  std::int64_t begin = 0;  // in the section
  std::int64_t elements = 0;
  std::vector<std::size_t> ends = {};  // in the run: where the share of each rank ends, see below
};
// The runs of a node whose inputs are values of a section, in the section's order; of several
// sections one after the other.
std::vector<SectionRun> section_runs(const Graph& graph, const Node& node);

// Where the optimiser's state is shared out among ranks (Graph::shards), each has a share of the
// elements of every section. Shares end where the chunks do that the CPU backend adds squares in,
// so that a norm has the same bits in any number of ranks.
constexpr std::int64_t shard_elements = 16384;
// What this rank updates of a run; all of it without shards. `moments` counts from the address of
// the moments on, which is that of the rank's share.
struct OwnPart {
  std::int64_t begin = 0, elements = 0;  // in the run
  std::int64_t moments = 0;
};
OwnPart own_part(const Graph& graph, const SectionRun& run);
// The run of an Update or an UpdateAll of this many elements.
SectionRun update_run(const Graph& graph, const Node& update, std::int64_t elements,
                      std::size_t element_bytes = sizeof(float));

class Store {
 public:
  // All have one element per parameter element.
  enum class Section : std::uint8_t {
    parameter,
    gradient,
    moment1,
    moment2,
    copy,
    accumulator,
    average
  };

  // Allocates the sections and buffers that `graph` needs, filled with zeros. The graph's layouts
  // must be chosen.
  Store(std::shared_ptr<const Backend> backend, const Graph& graph);

  void* address(const Value& value)
      const;  // of a persistent value of this or any graph with the same parameters
  // Gives `graph`, a graph of the same model, the layouts of this store; call it before the graph's
  // own layouts are chosen.
  void fix_layouts(Graph& graph) const;

  // Sets every parameter and buffer to its `initial`; an element is a function of (seed, parameter,
  // element in PyTorch's order), whatever the number of threads. Stores the seed in the state.
  // Moments, sums of gradients and the state's counts begin again at 0.
  void initialize(std::uint64_t seed);
  void initialize_buffers();  // only these: for parameters that a file has
  // The first parameter that nothing was written to since the store was made; -1 if all were.
  int first_unset() const;

  const Backend& backend() const { return *backend_; }
  const std::vector<Parameter>& parameters() const { return parameters_; }
  Shape torch_shape(std::size_t parameter) const;
  int moment_count() const { return moments_; }
  std::int64_t parameter_count() const;              // elements
  std::size_t bytes() const;                         // of all sections and buffers
  std::size_t section_bytes(Section section) const;  // 0 if there is none

  // In PyTorch's order. Writing parameters also writes their copies and restarts their average
  // there.
  std::vector<float> read(std::size_t parameter, Section section = Section::parameter) const;
  void read(std::size_t parameter, Section section, std::span<float> values) const;
  // The same for many parameters, with memory to put their elements into PyTorch's order.
  void read(std::size_t parameter, Section section, std::span<float> values,
            Scratch& scratch) const;
  void write(std::size_t parameter, std::span<const float> values,
             Section section = Section::parameter);

  // Where ranks share the moments out, read() and write() reach all of them only in a copy.
  // gather_moments() makes it on rank 0, with the moments of all ranks; write() of a moment begins
  // an empty one. keep_own_moments() takes this rank's share from it and drops it.
  void gather_moments(Communicator& communicator);
  void keep_own_moments();

  const std::vector<Buffer>& buffers() const { return buffers_; }
  const Shape& buffer_shape(std::size_t buffer) const;
  std::vector<float> read_buffer(std::size_t buffer) const;
  void write_buffer(std::size_t buffer, std::span<const float> values);

  // The report of one of the last `report_ring` steps, which must be done; DeviceError if there is
  // none.
  StepReport report(std::int64_t step) const;
  // The sums of each block in one of the last `report_ring` steps, which must be done and have
  // measured them.
  std::span<const BlockSums> block_sums(std::int64_t step) const;

  StepState step_state() const;
  void set_step_state(const StepState& state);

 private:
  // One section; absent without values.
  struct Part {
    std::vector<Value> values;  // type and layout, one per parameter
    std::size_t begin = 0;      // bytes, from the start of the allocation
    std::size_t shrink = 1;     // factor by which its elements are narrower than the parameters'
  };
  static void require(std::size_t index, std::size_t count, std::string_view what);
  Part& part(Section section) { return parts_[static_cast<std::size_t>(section)]; }
  const Part& part(Section section) const { return parts_[static_cast<std::size_t>(section)]; }
  static Section moments_section(int moment) {
    return moment == 0 ? Section::moment1 : Section::moment2;
  }
  const Part& moments_part(int moment) const { return part(moments_section(moment)); }
  void add_part(Section section, const Graph& graph, int Parameter::*value);
  void add_moments(const Graph& graph);
  void add_buffers(const Graph& graph);
  void require_buffers(const Graph& graph) const;
  void place(Part& part);
  void place(Part& part, std::size_t bytes);
  std::byte* section_address(std::size_t parameter, Section section) const;
  struct Share {
    std::size_t begin = 0, elements = 0;  // of the sections
  };
  Share share(std::size_t rank) const;
  Share share() const { return share(rank_); }
  bool is_shared_out(Section section) const;
  void begin_moments();
  void forget_steps();
  Value raw(std::size_t bytes) const;
  void write_plain(std::size_t parameter, std::span<const float> plain, Section section);

  std::shared_ptr<const Backend> backend_;
  std::vector<Parameter> parameters_;
  std::array<Part, 7> parts_;
  std::vector<bool> set_;  // by parameter: written to
  std::vector<Buffer> buffers_;
  std::vector<Value> buffer_values_;
  std::vector<std::size_t> buffer_offsets_;  // bytes, from the start of the allocation
  Value state_value_;
  Sections sections_;
  std::size_t bytes_ = 0;
  int moments_ = 0;
  std::vector<std::size_t> shard_ends_;  // of the ranks, in elements; empty: not shared out
  std::size_t rank_ = 0;
  std::array<std::shared_ptr<std::byte>, 2> all_moments_;  // the copy; null without one
  std::shared_ptr<std::byte> memory_;
  std::shared_ptr<std::byte> state_;
  std::shared_ptr<std::byte> reports_;
  std::shared_ptr<std::byte> block_sums_;  // null if the step measures none
  std::size_t blocks_ = 0;
};

}  // namespace warpstep
