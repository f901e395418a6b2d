// A user's own op provides its kernels, which compute in floats: values of bf16 are widened before
// such a kernel and rounded after it.
#include "engine/core/error.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/stored.h"
#include "kernels/cpu/team.h"

namespace warpstep::cpu {
namespace {

bool is_bf16(const Value& value) {
  return value.type.dtype == DType::bf16;
}

bool has_bf16(const Operands& operands) {
  const auto any_of = [&](const std::vector<int>& ids) {
    return std::any_of(ids.begin(), ids.end(),
                       [&](int id) { return is_bf16(operands.graph.value(id)); });
  };
  return any_of(operands.node.in) || any_of(operands.node.out);
}

// The graph with the node's values of bf16 as f32.
Graph widened_graph(const Operands& operands) {
  Graph graph = operands.graph;
  for (const auto* ids : {&operands.node.in, &operands.node.out})
    for (const int id : *ids)
      if (Value& value = graph.value(id); is_bf16(value)) {
        value.type.dtype = DType::f32;
        value.layout.bytes = value.type.bytes();
      }
  return graph;
}

WARPSTEP_LOOP void widen_loop(const Bf16* from, float* to, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) to[i] = as_float(from[i]);
}
const auto widen = vectorized<widen_loop>();

WARPSTEP_LOOP void round_loop(const float* from, Bf16* to, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) to[i] = rounded_to<Bf16>(from[i]);
}
const auto round_all = vectorized<round_loop>();

class Widened final : public Kernel {
 public:
  Widened(std::unique_ptr<Kernel> kernel, const Operands& operands)
      : kernel_(std::move(kernel)), bytes_(aligned(kernel_->workspace_bytes())) {
    add(operands, operands.node.in);
    add(operands, operands.node.out);
    pointers_ = bytes_;
    bytes_ += places_.size() * sizeof(void*);
  }

  std::string implementation() const override { return kernel_->implementation() + " on f32"; }
  std::size_t workspace_bytes() const override { return bytes_; }

  // The workspace has the kernel's own, the floats, and their addresses.
  void enqueue(Stream& stream, const Buffers& b) const override {
    auto* workspace = as<std::byte>(b.workspace);
    void** addresses = reinterpret_cast<void**>(workspace + pointers_);
    const std::size_t ins = b.in.size();
    for (std::size_t i = 0; i < places_.size(); ++i) {
      void* given = i < ins ? b.in[i] : b.out[i - ins];
      const Place& place = places_[i];
      const bool widens = place.count > 0 && given;
      addresses[i] = widens ? workspace + place.offset : given;
      if (widens && i < ins) each(place, as<Bf16>(given), as<float>(addresses[i]), widen);
    }
    kernel_->enqueue(stream, {.in = {addresses, ins},
                              .out = {addresses + ins, places_.size() - ins},
                              .workspace = workspace});
    for (std::size_t i = ins; i < places_.size(); ++i)
      if (places_[i].count > 0 && b.out[i - ins])
        each(places_[i], as<float>(addresses[i]), as<Bf16>(b.out[i - ins]), round_all);
  }

 private:
  struct Place {  // of an operand that is widened
    std::size_t offset = 0;
    std::int64_t count = 0;
  };

  static std::size_t aligned(std::size_t bytes) { return (bytes + 63) / 64 * 64; }

  void add(const Operands& operands, const std::vector<int>& ids) {
    for (const int id : ids) {
      const Value& value = operands.graph.value(id);
      places_.push_back({bytes_, is_bf16(value) ? value.type.shape.count() : 0});
      bytes_ += aligned(static_cast<std::size_t>(places_.back().count) * sizeof(float));
    }
  }

  template <class From, class To, class Loop>
  static void each(const Place& place, const From* from, To* to, Loop loop) {
    for_chunks(place.count, [&](std::int64_t begin, std::int64_t end) {
      loop(from + begin, to + begin, end - begin);
    });
  }

  std::unique_ptr<Kernel> kernel_;
  std::vector<Place> places_;  // of the inputs and then the outputs
  std::size_t bytes_, pointers_ = 0;
};

std::unique_ptr<Kernel> users_kernel(const Custom& op, const Graph& graph, const Node& node) {
  std::unique_ptr<Kernel> kernel = op.op->bind("cpu", graph, node);
  if (!kernel)
    fail<DeviceError>("cpu: {} has no kernel for this backend: its bind() returns none",
                      node.title());
  return kernel;
}

}  // namespace

std::unique_ptr<Kernel> bind(const Custom& op, const Operands& operands) {
  if (!has_bf16(operands)) return users_kernel(op, operands.graph, operands.node);
  return std::make_unique<Widened>(users_kernel(op, widened_graph(operands), operands.node),
                                   operands);
}

}  // namespace warpstep::cpu
