#include "kernels/cpu/widened.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "engine/core/error.h"
#include "kernels/cpu/stored.h"
#include "kernels/cpu/team.h"

namespace warpstep::cpu {
namespace {

WARPSTEP_LOOP void to_floats_loop(const Bf16* from, float* to, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) to[i] = as_float(from[i]);
}

WARPSTEP_LOOP void to_bf16_loop(const float* from, Bf16* to, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) to[i] = rounded_to<Bf16>(from[i]);
}

}  // namespace

void to_floats(const Bf16* from, std::int64_t count, float* to) {
  static const auto loop = vectorized<to_floats_loop>();
  loop(from, to, count);
}

void to_bf16(const float* from, std::int64_t count, Bf16* to) {
  static const auto loop = vectorized<to_bf16_loop>();
  loop(from, to, count);
}

namespace {

// An operand that is bf16, and where its floats lie in the workspace.
struct WidenedOperand {
  std::size_t number;
  std::int64_t count;
  std::size_t offset;  // bytes
};

class WidenedKernel final : public Kernel {
 public:
  WidenedKernel(const Operands& operands, std::unique_ptr<Kernel> kernel)
      : kernel_(std::move(kernel)), bytes_(rounded_up(kernel_->workspace_bytes())) {
    in_ = widened_of(operands.graph, operands.node.in);
    out_ = widened_of(operands.graph, operands.node.out);
  }

  bool is_needed() const { return !in_.empty() || !out_.empty(); }
  std::unique_ptr<Kernel> take_inner() { return std::move(kernel_); }
  std::size_t workspace_bytes() const override { return bytes_; }
  std::string implementation() const override { return kernel_->implementation() + ", in f32"; }

  void enqueue(Stream& stream, const Buffers& b) const override {
    std::array<void*, most> in{}, out{};
    std::ranges::copy(b.in, in.begin());
    std::ranges::copy(b.out, out.begin());
    for (const WidenedOperand& operand : in_) {
      float* floats = place(b.workspace, operand);
      for_chunks(operand.count, [&](std::int64_t begin, std::int64_t end) {
        to_floats(as<Bf16>(in[operand.number]) + begin, end - begin, floats + begin);
      });
      in[operand.number] = floats;
    }
    for (const WidenedOperand& operand : out_)
      if (b.out[operand.number]) out[operand.number] = place(b.workspace, operand);
    kernel_->enqueue(stream, {std::span(in).first(b.in.size()), std::span(out).first(b.out.size()),
                              b.workspace});
    for (const WidenedOperand& operand : out_)
      if (b.out[operand.number])
        for_chunks(operand.count, [&](std::int64_t begin, std::int64_t end) {
          to_bf16(as<float>(out[operand.number]) + begin, end - begin,
                  as<Bf16>(b.out[operand.number]) + begin);
        });
  }

 private:
  static constexpr std::size_t most = 8;  // operands of either kind

  static std::size_t rounded_up(std::size_t bytes) { return (bytes + 63) / 64 * 64; }

  std::vector<WidenedOperand> widened_of(const Graph& graph, const std::vector<int>& ids) {
    if (ids.size() > most) fail<Error>("a kernel in f32 has at most {} operands", most);
    std::vector<WidenedOperand> found;
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const Value& value = graph.value(ids[i]);
      if (value.type.dtype != DType::bf16) continue;
      found.push_back({i, value.type.shape.count(), bytes_});
      bytes_ += rounded_up(idx(found.back().count) * sizeof(float));
    }
    return found;
  }
  static float* place(void* workspace, const WidenedOperand& operand) {
    return reinterpret_cast<float*>(as<std::byte>(workspace) + operand.offset);
  }

  std::unique_ptr<Kernel> kernel_;
  std::size_t bytes_;
  std::vector<WidenedOperand> in_, out_;
};

}  // namespace

std::unique_ptr<Kernel> widened(const Operands& operands, std::unique_ptr<Kernel> kernel) {
  auto wrapped = std::make_unique<WidenedKernel>(operands, std::move(kernel));
  if (!wrapped->is_needed()) return wrapped->take_inner();
  return wrapped;
}

}  // namespace warpstep::cpu
