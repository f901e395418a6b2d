#include "kernels/cpu/widened.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "kernels/cpu/floats.h"

namespace warpstep::cpu {
namespace {

// The workspace has the kernel's own, the floats of each operand that is bf16, and the addresses of
// all operands as the kernel gets them.
class WidenedKernel final : public Kernel {
 public:
  WidenedKernel(const Operands& operands, std::unique_ptr<Kernel> kernel)
      : kernel_(std::move(kernel)), bytes_(aligned(kernel_->workspace_bytes())) {
    add(operands.graph, operands.node.in);
    add(operands.graph, operands.node.out);
    addresses_ = bytes_;
    bytes_ += places_.size() * sizeof(void*);
  }

  bool is_needed() const {
    return std::ranges::any_of(places_, [](const Place& place) { return place.count > 0; });
  }
  std::unique_ptr<Kernel> take_inner() { return std::move(kernel_); }
  std::size_t workspace_bytes() const override { return bytes_; }
  std::string implementation() const override { return kernel_->implementation() + ", in f32"; }
  double flops() const override { return kernel_->flops(); }

  void enqueue(Stream& stream, const Buffers& b) const override {
    auto* workspace = as<std::byte>(b.workspace);
    void** addresses = reinterpret_cast<void**>(workspace + addresses_);
    const std::size_t ins = b.in.size();
    for (std::size_t i = 0; i < places_.size(); ++i) {
      void* given = i < ins ? b.in[i] : b.out[i - ins];
      const Place& place = places_[i];
      const bool is_widened = place.count > 0 && given != nullptr;
      addresses[i] = is_widened ? workspace + place.offset : given;
      if (is_widened && i < ins)
        for_chunks(place.count, [&](std::int64_t begin, std::int64_t end) {
          convert_row(as<Bf16>(given) + begin, end - begin, as<float>(addresses[i]) + begin);
        });
    }
    kernel_->enqueue(stream, {.in = {addresses, ins},
                              .out = {addresses + ins, places_.size() - ins},
                              .workspace = workspace});
    for (std::size_t i = ins; i < places_.size(); ++i)
      if (void* const out = b.out[i - ins]; places_[i].count > 0 && out != nullptr)
        for_chunks(places_[i].count, [&](std::int64_t begin, std::int64_t end) {
          convert_row(as<float>(addresses[i]) + begin, end - begin, as<Bf16>(out) + begin);
        });
  }

 private:
  struct Place {
    std::size_t offset = 0;  // bytes
    std::int64_t count = 0;  // of an operand that is bf16; else 0
  };

  static std::size_t aligned(std::size_t bytes) { return (bytes + 63) / 64 * 64; }

  void add(const Graph& graph, const std::vector<int>& ids) {
    for (const int id : ids) {
      const Value& value = graph.value(id);
      places_.push_back({bytes_, value.type.dtype == DType::bf16 ? value.type.shape.count() : 0});
      bytes_ += aligned(idx(places_.back().count) * sizeof(float));
    }
  }

  std::unique_ptr<Kernel> kernel_;
  std::vector<Place> places_;  // of the inputs and then the outputs
  std::size_t bytes_, addresses_ = 0;
};

}  // namespace

std::unique_ptr<Kernel> widened(const Operands& operands, std::unique_ptr<Kernel> kernel) {
  auto wrapped = std::make_unique<WidenedKernel>(operands, std::move(kernel));
  if (!wrapped->is_needed()) return wrapped->take_inner();
  return wrapped;
}

}  // namespace warpstep::cpu
