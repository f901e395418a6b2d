#include "kernels/cpu/onednn.h"

#include <sys/mman.h>

#include <algorithm>

#include "engine/core/error.h"

namespace warpstep::cpu {

using dnnl::algorithm;
using dnnl::memory;

namespace {

memory::data_type data_type(DType dtype) {
  switch (dtype) {
    case DType::f32: return memory::data_type::f32;
    case DType::f16: return memory::data_type::f16;
    case DType::bf16: return memory::data_type::bf16;
    case DType::u8: return memory::data_type::u8;
    case DType::i32: return memory::data_type::s32;
  }
  return memory::data_type::undef;
}

memory::dims dimensions(const Shape& shape) {
  if (shape.rank() == 0) return {1};
  if (shape.rank() == 4) return {shape[0], shape[3], shape[1], shape[2]};
  return {shape.extents().begin(), shape.extents().end()};
}

// The name of a layout, "nChw16c", from its strides and inner blocks. `letters` names the
// dimensions in oneDNN's order.
std::string format_text(const memory::desc& md, std::string_view letters) {
  if (md.data.format_kind != dnnl_blocked)
    return md.data.format_kind == dnnl_format_kind_wino ? "winograd" : "opaque";
  const auto& blocking = md.data.format_desc.blocking;
  std::vector<int> order;
  for (int d = 0; d < md.data.ndims; ++d) order.push_back(d);
  std::stable_sort(order.begin(), order.end(),
                   [&](int a, int b) { return blocking.strides[a] > blocking.strides[b]; });
  std::string text;
  for (const int d : order) {
    const bool blocked = std::find(blocking.inner_idxs, blocking.inner_idxs + blocking.inner_nblks,
                                   d) != blocking.inner_idxs + blocking.inner_nblks;
    text += static_cast<char>(blocked ? std::toupper(letters[idx(d)]) : letters[idx(d)]);
  }
  for (int i = 0; i < blocking.inner_nblks; ++i)
    text += fmt::format("{}{}", blocking.inner_blks[i], letters[idx(blocking.inner_idxs[i])]);
  return text;
}

bool is_reference(std::string_view implementation) {
  return implementation.starts_with("ref");
}

// Winograd F(4x4,3x3) is faster than direct convolution if there are enough tiles to fill its
// matrix products.
bool winograd_pays(const ConvShapes& s) {
  const Shape& z = s.z.shape;
  const std::int64_t tiles = z[0] * ((z[1] + 3) / 4) * ((z[2] + 3) / 4);
  return s.op.kernel == 3 && s.op.stride == 1 && s.op.dilation == 1 && s.op.groups == 1 &&
         s.op.padding <= 1 && s.x.shape[3] >= 30 && s.op.out >= 30 && tiles >= 128;
}

using Forward = dnnl::convolution_forward::primitive_desc;

struct ConvArguments {
  algorithm alg;
  memory::desc x, weight, bias, z;
  memory::dims strides, dilations, padding;
};

ConvArguments conv_arguments(const ConvShapes& s, algorithm alg) {
  const Conv& op = s.op;
  const memory::desc weight = s.weight_md ? *s.weight_md : any_descriptor(s.weight);
  memory::desc bias;
  if (op.bias) bias = memory::desc({op.out}, memory::data_type::f32, memory::format_tag::a);
  const memory::desc w =
      op.groups == 1 || s.weight_md
          ? grouped(weight, op)
          : memory::desc({op.groups, op.out / op.groups, s.weight.shape[3], op.kernel, op.kernel},
                         data_type(s.weight.dtype), memory::format_tag::any);
  return {alg,
          s.x_md,
          w,
          bias,
          s.z_md,
          {op.stride, op.stride},
          {op.dilation - 1, op.dilation - 1},
          {op.padding, op.padding}};
}

Forward forward_descriptor(const dnnl::engine& engine, const ConvArguments& a, bool relu) {
  const dnnl::convolution_forward::desc desc(dnnl::prop_kind::forward_training, a.alg, a.x,
                                             a.weight, a.bias, a.z, a.strides, a.dilations,
                                             a.padding, a.padding);
  return Forward(desc, attributes(relu), engine, true);
}

template <class Descriptor, class Primitive>
std::optional<PrimitivePlan> finish(const Descriptor& pd, const memory::desc& weights) {
  if (!pd.get(true) || is_reference(pd.impl_info_str())) return std::nullopt;
  return PrimitivePlan{Primitive(pd), pd.scratchpad_desc(), pd.impl_info_str(), weights};
}

std::optional<PrimitivePlan> try_conv(const dnnl::engine& engine, const ConvShapes& s,
                                      ConvDirection direction, algorithm alg) {
  require_room();
  try {
    const ConvArguments a = conv_arguments(s, alg);
    if (direction == ConvDirection::forward) {
      const Forward pd = forward_descriptor(engine, a, s.op.relu);
      return pd.get(true) ? finish<Forward, dnnl::convolution_forward>(pd, pd.weights_desc())
                          : std::nullopt;
    }
    ConvArguments hint = a;
    hint.weight =
        conv_arguments({s.op, s.x, s.weight, s.z, s.x_md, s.z_md, std::nullopt}, alg).weight;
    const Forward forward = forward_descriptor(engine, hint, false);
    if (!forward.get(true)) return std::nullopt;
    if (direction == ConvDirection::data) {
      using Backward = dnnl::convolution_backward_data;
      const Backward::desc desc(alg, a.x, a.weight, a.z, a.strides, a.dilations, a.padding,
                                a.padding);
      const Backward::primitive_desc pd(desc, attributes(false), engine, forward, true);
      return pd.get(true) ? finish<Backward::primitive_desc, Backward>(pd, pd.weights_desc())
                          : std::nullopt;
    }
    using Backward = dnnl::convolution_backward_weights;
    const Backward::desc desc(alg, a.x, a.weight, a.bias, a.z, a.strides, a.dilations, a.padding,
                              a.padding);
    const Backward::primitive_desc pd(desc, attributes(false), engine, forward, true);
    return pd.get(true) ? finish<Backward::primitive_desc, Backward>(pd, pd.diff_weights_desc())
                        : std::nullopt;
  } catch (const dnnl::error&) {
    return std::nullopt;
  }
}

}  // namespace

memory::desc plain_descriptor(const Type& type) {
  const memory::dims dims = dimensions(type.shape);
  if (type.shape.rank() == 4) return {dims, data_type(type.dtype), memory::format_tag::nhwc};
  memory::dims strides(dims.size(), 1);
  for (std::size_t d = dims.size() - 1; d-- > 0;) strides[d] = strides[d + 1] * dims[d + 1];
  return {dims, data_type(type.dtype), strides};
}

memory::desc any_descriptor(const Type& type) {
  return {dimensions(type.shape), data_type(type.dtype), memory::format_tag::any};
}

memory::desc blocked_descriptor(const Type& type, std::int64_t block) {
  return {dimensions(type.shape), data_type(type.dtype),
          block == 16 ? memory::format_tag::nChw16c : memory::format_tag::nChw8c};
}

memory::desc planes_descriptor(const Type& type) {
  return {dimensions(type.shape), data_type(type.dtype), memory::format_tag::nchw};
}

memory::desc descriptor(const Value& value) {
  if (value.layout.native) return *static_cast<const memory::desc*>(value.layout.native.get());
  return plain_descriptor(value.type);
}

Layout layout(const Value& value, const memory::desc& md) {
  if (md == plain_descriptor(value.type))
    return {.tag = "", .bytes = value.type.bytes(), .native = nullptr};
  const std::string_view letters = md.data.ndims == 5          ? "goihw"
                                   : is_persistent(value.role) ? "oihw"
                                                               : "nchw";
  return {.tag = format_text(md, letters),
          .bytes = md.get_size(),
          .native = std::make_shared<memory::desc>(md)};
}

memory::desc grouped(const memory::desc& weight, const Conv& op) {
  memory::dims dims = weight.dims();
  if (op.groups == 1 || dims.size() == 5) return weight;
  dims[0] /= op.groups;
  dims.insert(dims.begin(), op.groups);
  return weight.reshape(dims);
}

std::pair<memory::desc, memory::desc> with_equal_dimensions(const memory::desc& a,
                                                            const memory::desc& b) {
  if (a.dims().size() < b.dims().size()) return {a.reshape(b.dims()), b};
  if (b.dims().size() < a.dims().size()) return {a, b.reshape(a.dims())};
  return {a, b};
}

dnnl::primitive_attr attributes(bool relu) {
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (relu) {
    dnnl::post_ops ops;
    ops.append_eltwise(1, algorithm::eltwise_relu, 0, 0);
    attr.set_post_ops(ops);
  }
  return attr;
}

std::optional<PrimitivePlan> plan_conv(const dnnl::engine& engine, const ConvShapes& s,
                                       ConvDirection direction, bool exact_math) {
  std::optional<PrimitivePlan> plan;
  if (!exact_math && winograd_pays(s))
    plan = try_conv(engine, s, direction, algorithm::convolution_winograd);
  if (!plan) plan = try_conv(engine, s, direction, algorithm::convolution_direct);
  return plan;
}

PrimitivePlan plan_matmul(const dnnl::engine& engine, const memory::desc& a, const memory::desc& b,
                          const std::optional<memory::desc>& bias, const memory::desc& c,
                          bool relu) {
  using Matmul = dnnl::matmul;
  const Matmul::desc desc = bias ? Matmul::desc(a, b, *bias, c) : Matmul::desc(a, b, c);
  const Matmul::primitive_desc pd(desc, attributes(relu), engine);
  return {Matmul(pd), pd.scratchpad_desc(), pd.impl_info_str(), {}};
}

PrimitivePlan plan_reorder(const dnnl::engine& engine, const memory::desc& from,
                           const memory::desc& to) {
  const auto [source, target] = with_equal_dimensions(from, to);
  const dnnl::reorder::primitive_desc pd(engine, source, engine, target, attributes(false));
  return {dnnl::reorder(pd), pd.scratchpad_desc(), pd.impl_info_str(), {}};
}

void require_room() {
  constexpr std::size_t bytes = std::size_t{128} << 20;  // far more than one primitive needs
  void* room = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (room == MAP_FAILED)
    fail<DeviceError>(
        "cpu: no memory is left for oneDNN's code; use a smaller --batch or fewer --workers, or "
        "raise the limit of memory (ulimit -v)");
  munmap(room, bytes);
}

namespace {

// Memory objects are created once and only get new addresses, so that a step allocates nothing.
class PrimitiveKernel final : public Kernel {
 public:
  PrimitiveKernel(const dnnl::engine& engine, PrimitivePlan plan,
                  const std::vector<Argument>& arguments)
      : plan_(std::move(plan)) {
    for (const Argument& argument : arguments) {
      const dnnl::memory memory(argument.md, engine, nullptr);
      memories_.push_back({memory, argument.output, argument.index});
      arguments_.emplace(argument.dnnl_argument, memory);
    }
    if (workspace_bytes() == 0) return;
    scratchpad_ = dnnl::memory(plan_.scratchpad, engine, nullptr);
    arguments_.emplace(DNNL_ARG_SCRATCHPAD, scratchpad_);
  }

  std::size_t workspace_bytes() const override { return plan_.scratchpad.get_size(); }
  std::string implementation() const override { return plan_.implementation; }

  void enqueue(Stream& stream, const Buffers& buffers) const override {
    for (const Operand& operand : memories_) {
      void* address = (operand.output ? buffers.out : buffers.in)[idx(operand.index)];
      // Setting an address may write a blocked layout's padding: only do it if the address changed.
      if (operand.memory.get_data_handle() != address) operand.memory.set_data_handle(address);
    }
    if (buffers.workspace) scratchpad_.set_data_handle(buffers.workspace);
    plan_.primitive.execute(static_cast<CpuStream&>(stream).stream, arguments_);
  }

 private:
  struct Operand {
    dnnl::memory memory;
    bool output;
    int index;
  };

  PrimitivePlan plan_;
  std::vector<Operand> memories_;
  dnnl::memory scratchpad_;
  std::unordered_map<int, dnnl::memory> arguments_;
};

}  // namespace

std::unique_ptr<Kernel> primitive_kernel(const dnnl::engine& engine, PrimitivePlan plan,
                                         const std::vector<Argument>& arguments) {
  return std::make_unique<PrimitiveKernel>(engine, std::move(plan), arguments);
}

}  // namespace warpstep::cpu
