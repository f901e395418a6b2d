// The only interface to oneDNN: memory descriptors of values, and primitives with user scratchpads.
// oneDNN's reference loops, its silent fallback, are refused. Differences between its versions
// belong in onednn.cpp.
#pragma once

#include <dnnl.hpp>

#include <optional>
#include <string_view>
#include <unordered_map>

#include "kernels/kernel.h"

namespace warpstep::cpu {

// The descriptor of a value in its chosen layout. Images [N,H,W,C] and weights [O,H,W,I] have
// oneDNN's logical order {N,C,H,W} and {O,I,H,W}.
dnnl::memory::desc descriptor(const Value& value);
dnnl::memory::desc plain_descriptor(const Type& type);
// The same dimensions with the layout left to oneDNN.
dnnl::memory::desc any_descriptor(const Type& type);

// The layout that stores `value` like `md`; an empty tag when that is the plain layout.
Layout layout(const Value& value, const dnnl::memory::desc& md);
// Channels in blocks of `block` (nChw16c and the like).
dnnl::memory::desc blocked_descriptor(const Type& type, std::int64_t block);
// One plane per channel (nchw).
dnnl::memory::desc planes_descriptor(const Type& type);

// A convolution's weights in oneDNN's dimensions: with one for the groups if there are several.
dnnl::memory::desc grouped(const dnnl::memory::desc& weight, const Conv& op);
// The same memory with equal numbers of dimensions, if one side is grouped and the other is not.
std::pair<dnnl::memory::desc, dnnl::memory::desc> with_equal_dimensions(
    const dnnl::memory::desc& a, const dnnl::memory::desc& b);

dnnl::primitive_attr attributes(bool relu);  // user scratchpad; the relu is the last operation

enum class ConvDirection : std::uint8_t { forward, data, weights };

// A primitive with the descriptors that its kernel needs.
struct PrimitivePlan {
  dnnl::primitive primitive;
  dnnl::memory::desc scratchpad;
  std::string implementation;
  dnnl::memory::desc weights;  // of a convolution: the layout that this direction needs
};

struct ConvShapes {
  Conv op;
  Type x, weight, z;
  dnnl::memory::desc x_md, z_md;
  std::optional<dnnl::memory::desc> weight_md;  // fixed; otherwise left to oneDNN
};
// The fastest implementation that is not a reference loop: Winograd where it pays (unless
// exact_math), else direct. Empty if oneDNN has none for these shapes and layouts on this CPU.
std::optional<PrimitivePlan> plan_conv(const dnnl::engine& engine, const ConvShapes& shapes,
                                       ConvDirection direction, bool exact_math);

// c [m,n] = a [m,k] b [k,n] (+ bias [1,n]) with any strides, then the relu if `relu`.
PrimitivePlan plan_matmul(const dnnl::engine& engine, const dnnl::memory::desc& a,
                          const dnnl::memory::desc& b,
                          const std::optional<dnnl::memory::desc>& bias,
                          const dnnl::memory::desc& c, bool relu);
PrimitivePlan plan_reorder(const dnnl::engine& engine, const dnnl::memory::desc& from,
                           const dnnl::memory::desc& to);

struct CpuStream final : Stream {
  explicit CpuStream(const dnnl::engine& engine) : stream(engine) {}
  void wait() override { stream.wait(); }
  dnnl::stream stream;
};

// An argument of a primitive, and the operand of the node that it is bound to: in[index] or
// out[index].
struct Argument {
  int dnnl_argument;
  dnnl::memory::desc md;
  bool output;
  int index;
};
std::unique_ptr<Kernel> primitive_kernel(const dnnl::engine& engine, PrimitivePlan plan,
                                         const std::vector<Argument>& arguments);

// To be called before a primitive is created: throws DeviceError if little memory is left for the
// code that oneDNN generates. If it cannot allocate that, oneDNN 2.6 ends by SIGSEGV.
void require_room();

}  // namespace warpstep::cpu
