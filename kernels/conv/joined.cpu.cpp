// Convolutions of few channels a group: several groups are computed as one, with weights of zero
// from the channels of one to the outputs of another. Products of so few columns and features take
// their time for packing windows and for columns that fill no vector: zeros cost less. Figures:
// bench/RECORDS.md.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "kernels/conv/conv.cpu.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/stored.h"

namespace warpstep::cpu {
namespace {

// Weights [out, taps, channels of a group], and those of joined groups, [out, taps, channels of
// all of them].
struct JoinedWeights {
  std::int64_t out, taps, channels, group_out, joined;

  JoinedWeights(const Conv& op, const Shape& x, std::int64_t groups)
      : out(op.out),
        taps(op.kernel * op.kernel),
        channels(x[3] / op.groups),
        group_out(op.out / op.groups),
        joined(groups) {}

  std::int64_t count() const { return out * taps * joined * channels; }
  // Calls visit(place in the joined weights, place in the weights) for each run of channels.
  template <class Visit>
  void for_runs(Visit visit) const {
    for (std::int64_t o = 0; o < out; ++o) {
      const std::int64_t place = o / group_out % joined;
      for (std::int64_t row = o * taps; row < (o + 1) * taps; ++row)
        visit((row * joined + place) * channels, row * channels);
    }
  }
};

// Computes a convolution or an adjoint by the kernel of the one in which groups are joined. The
// weights are in[1], or out[0] of a weight gradient.
template <class T>
class JoinedGroups final : public Kernel {
 public:
  JoinedGroups(const JoinedWeights& weights, bool gradient, std::unique_ptr<Kernel> kernel)
      : weights_(weights), gradient_(gradient), kernel_(std::move(kernel)) {}

  std::string implementation() const override {
    return fmt::format("{}, {} groups at once", kernel_->implementation(), weights_.joined);
  }
  std::size_t workspace_bytes() const override {
    return weight_bytes() + kernel_->workspace_bytes();
  }
  double flops() const override { return kernel_->flops(); }
  void enqueue(Stream& stream, const Buffers& b) const override {
    auto* joined = as<T>(b.workspace);
    void* const workspace = static_cast<std::byte*>(b.workspace) + weight_bytes();
    const std::int64_t channels = weights_.channels;
    if (gradient_) {
      const std::array<void*, 2> out{joined, b.out.size() > 1 ? b.out[1] : nullptr};
      kernel_->enqueue(stream, {b.in, std::span(out).first(b.out.size()), workspace});
      weights_.for_runs([&](std::int64_t from, std::int64_t to) {
        std::copy_n(joined + from, channels, as<T>(b.out[0]) + to);
      });
      return;
    }
    std::fill_n(joined, weights_.count(), T{});
    weights_.for_runs([&](std::int64_t to, std::int64_t from) {
      std::copy_n(as<T>(b.in[1]) + from, channels, joined + to);
    });
    const std::array<void*, 3> in{b.in[0], joined, b.in.size() > 2 ? b.in[2] : nullptr};
    kernel_->enqueue(stream, {std::span(in).first(b.in.size()), b.out, workspace});
  }

 private:
  std::size_t weight_bytes() const {
    constexpr std::size_t alignment = 64;
    return (idx(weights_.count()) * sizeof(T) + alignment - 1) / alignment * alignment;
  }

  JoinedWeights weights_;
  bool gradient_;
  std::unique_ptr<Kernel> kernel_;
};

}  // namespace

// From some channels on either side on, more zeros cost more than they save; the limits are
// measured.
std::int64_t joined_groups(const Conv& op, const Shape& x) {
  constexpr std::int64_t enough = 16, most = 64;
  const std::int64_t in = x[3] / op.groups, out = op.out / op.groups;
  std::int64_t joined = 1;
  for (std::int64_t count = 2; count <= op.groups && count * std::max(in, out) <= most &&
                               joined * std::min(in, out) < enough;
       ++count)
    if (op.groups % count == 0) joined = count;
  return joined;
}

std::unique_ptr<Kernel> joined_kernel(const Conv& op, const Shape& x, DType dtype, bool gradient,
                                      std::int64_t groups, std::unique_ptr<Kernel> kernel) {
  return with_stored(dtype, [&]<class T>() -> std::unique_ptr<Kernel> {
    return std::make_unique<JoinedGroups<T>>(JoinedWeights(op, x, groups), gradient,
                                             std::move(kernel));
  });
}

}  // namespace warpstep::cpu
