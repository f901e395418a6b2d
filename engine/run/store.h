// What persists from step to step: parameters, their 16-bit copies where the step computes with
// such, and for training gradients and moments, in sections of one allocation. An element lies at
// the same index of every section, so that the optimiser is one pass. And the StepState, and the
// reports.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "engine/graph/step_state.h"
#include "engine/run/backend.h"

namespace warpstep {

// A section begins, and each of its parameters, at a multiple of this; a section of half as wide
// elements at half of it, which still is what the widest loads of a GPU want.
constexpr std::size_t section_alignment = 256;

// Offsets of parameters inside their section; pure arithmetic on the chosen layouts. A section of
// narrower elements has the same indices: offsets and bytes shrink with the element.
struct Sections {
  std::vector<std::size_t> offsets;  // bytes, one a parameter
  std::size_t bytes = 0;             // of the section
};
Sections sections(const Graph& graph);
// Elements of a section, of which each has `element_bytes`. The padding between parameters is zero
// and stays so.
std::int64_t section_elements(const Graph& graph, std::size_t element_bytes = sizeof(float));

class Store {
 public:
  // All hold one element a parameter element.
  enum class Section : std::uint8_t {
    parameter,
    gradient,
    moment1,
    moment2,
    copy,
    accumulator,
    average
  };

  // For `graph`, whose layouts must be chosen: sections of parameters and copies, and of gradients
  // and moments if it trains; and its buffers. Everything is zero.
  Store(std::shared_ptr<const Backend> backend, const Graph& graph);

  void* address(const Value& value)
      const;  // of a persistent value of this or any graph with the same parameters
  // Gives `graph`, a graph of the same model, the layouts of this store; before its own are chosen.
  void fix_layouts(Graph& graph) const;

  // Every parameter and buffer as its `initial` says; an element is a function of (seed, parameter,
  // element in PyTorch's order). The state takes the seed.
  void initialize(std::uint64_t seed);

  const std::vector<Parameter>& parameters() const { return parameters_; }
  Shape torch_shape(std::size_t parameter) const;
  int moment_count() const { return moments_; }
  std::int64_t parameter_count() const;              // elements
  std::size_t bytes() const;                         // of all sections and buffers
  std::size_t section_bytes(Section section) const;  // 0 if there is none

  // In PyTorch's order. Writing parameters writes their copies too, and their average begins there.
  std::vector<float> read(std::size_t parameter, Section section = Section::parameter) const;
  void write(std::size_t parameter, std::span<const float> values,
             Section section = Section::parameter);

  const std::vector<Buffer>& buffers() const { return buffers_; }
  const Shape& buffer_shape(std::size_t buffer) const { return buffer_values_[buffer].type.shape; }
  std::vector<float> read_buffer(std::size_t buffer) const;
  void write_buffer(std::size_t buffer, std::span<const float> values);

  // Of one of the last `report_ring` steps, which must be done; DeviceError if the step never was.
  StepReport report(std::int64_t step) const;

  StepState step_state() const;
  void set_step_state(const StepState& state);

 private:
  // One kind of thing kept for every parameter; absent without values.
  struct Part {
    std::vector<Value> values;  // type and layout, one a parameter
    std::size_t begin = 0;      // bytes, from the start of the allocation
    std::size_t shrink = 1;     // how much narrower than the parameters' its elements are
  };
  Part& part(Section section) { return parts_[static_cast<std::size_t>(section)]; }
  const Part& part(Section section) const { return parts_[static_cast<std::size_t>(section)]; }
  void add_part(Section section, const Graph& graph, int Parameter::*value);
  void add_moments(const Graph& graph);
  void add_buffers(const Graph& graph);
  void require_buffers(const Graph& graph) const;
  void place(Part& part);
  std::byte* section_address(std::size_t parameter, Section section) const;
  void write_plain(std::size_t parameter, std::span<const float> plain, Section section);

  std::shared_ptr<const Backend> backend_;
  std::vector<Parameter> parameters_;
  std::array<Part, 7> parts_;
  std::vector<Buffer> buffers_;
  std::vector<Value> buffer_values_;
  std::vector<std::size_t> buffer_offsets_;  // bytes, from the start of the allocation
  Value state_value_;
  Sections sections_;
  std::size_t bytes_ = 0;
  int moments_ = 0;
  std::shared_ptr<std::byte> memory_;
  std::shared_ptr<std::byte> state_;
  std::shared_ptr<std::byte> reports_;
};

}  // namespace warpstep
