// What persists from step to step: parameters, and for training their gradients and moments, in
// sections of one allocation at equal offsets, so that the optimiser is one pass; and the
// StepState.
#pragma once

#include <memory>
#include <vector>

#include "engine/backend.h"
#include "engine/step_state.h"

namespace warpstep {

// Offsets of parameters inside a section; pure arithmetic on the chosen layouts.
struct Sections {
  std::vector<std::size_t> offsets;  // bytes, one a parameter
  std::size_t bytes = 0;             // of one section
};
Sections sections(const Graph& graph);

class Store {
 public:
  // For `graph`, whose layouts must be chosen: a section of parameters, and sections of gradients
  // and moments if it trains. Everything is zero.
  Store(std::shared_ptr<const Backend> backend, const Graph& graph);

  void* address(const Value& value)
      const;  // of a persistent value of this or any graph with the same parameters
  // Gives `graph`, a graph of the same model, the layouts of this store; before its own are chosen.
  void fix_layouts(Graph& graph) const;

  // PyTorch's default initialisation, every element a function of (seed, parameter, element in
  // PyTorch's order).
  void initialize(std::uint64_t seed);

  const std::vector<Parameter>& parameters() const { return parameters_; }
  Shape torch_shape(std::size_t parameter) const;
  int moment_count() const { return moments_; }
  std::int64_t parameter_count() const;  // elements
  std::size_t bytes() const;

  // In PyTorch's order. All sections hold one element a parameter element.
  enum class Section : std::uint8_t { parameter, gradient, moment1, moment2 };
  std::vector<float> read(std::size_t parameter, Section section = Section::parameter) const;
  void write(std::size_t parameter, std::span<const float> values,
             Section section = Section::parameter);

  StepState step_state() const;
  void set_step_state(const StepState& state);

 private:
  std::byte* section_address(std::size_t parameter, Section section) const;

  std::shared_ptr<const Backend> backend_;
  std::vector<Parameter> parameters_;
  std::vector<Value> values_;  // of the parameters: type and layout
  Value state_value_;
  Sections sections_;
  int moments_ = 0;
  bool trains_ = false;
  std::shared_ptr<std::byte> memory_;
  std::shared_ptr<std::byte> state_;
};

}  // namespace warpstep
