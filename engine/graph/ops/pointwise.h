// Ops that treat every element alone, and the reshape that treats none.
#pragma once

#include <array>

#include "engine/graph/ops/op.h"

namespace warpstep {

// u8 or f32 images [N,H,W,C] -> activations, y = x * scale[c] + shift[c]; with mean and std of
// x / 255 this is scale = 1 / (255 std), shift = -mean / std, each rounded once to f32. Images that
// the loader has normalised are f32, and only change their dtype and how they are stored.
struct Normalize {
  static constexpr std::string_view name = "normalize";
  static constexpr OpTraits traits{.kind = OpKind::constant,
                                   .in_place = inputs(),
                                   .changes = roles(),
                                   .f32 = F32::inputs,
                                   .layout_of = own_layout};
  static constexpr std::size_t max_channels = 4;
  static constexpr std::array<float, max_channels> ones{1, 1, 1, 1};  // scale that changes nothing
  std::array<float, max_channels> scale{};
  std::array<float, max_channels> shift{};
  DType dtype = DType::f32;  // of y; set by the precision
  bool operator==(const Normalize&) const = default;
};
Types infer(const Normalize& op, const Types& in);
Cost cost(const Normalize& op, const Types& in, const Types& out);
std::string text(const Normalize& op);

// y = max(0, x), and NaN where x is NaN, as of every relu but those of cuDNN and cublasLt.
struct Relu {
  static constexpr std::string_view name = "relu";
  static constexpr OpTraits traits{.kind = OpKind::model,
                                   .in_place = inputs(0),
                                   .changes = roles(),
                                   .f32 = F32::none,
                                   .layout_of = 0};
  bool operator==(const Relu&) const = default;
};
Types infer(const Relu& op, const Types& in);
void grad(const Relu& op, Adjoint& adjoint);
Cost cost(const Relu& op, const Types& in, const Types& out);

// d_y, y -> d_x = 0 where y <= 0, else d_y, and with bias_gradient d_bias [C], the sum of d_x over
// all but its last axis.
struct ReluGrad {
  static constexpr std::string_view name = "relu.dgrad";
  static constexpr OpTraits traits{.kind = OpKind::derived,
                                   .in_place = inputs(0),
                                   .changes = roles(),
                                   .f32 = F32::none,
                                   .layout_of = 1};
  bool bias_gradient = false;  // set by fusion
  bool operator==(const ReluGrad&) const = default;
};
Types infer(const ReluGrad& op, const Types& in);
Cost cost(const ReluGrad& op, const Types& in, const Types& out);
std::string text(const ReluGrad& op);

// a + b of one shape. Gradients of a value that is used more than once meet here.
struct Add {
  static constexpr std::string_view name = "add";
  static constexpr OpTraits traits{.kind = OpKind::model,
                                   .in_place = inputs(0, 1),
                                   .changes = roles(),
                                   .f32 = F32::none,
                                   .layout_of = 1};
  bool operator==(const Add&) const = default;
};
Types infer(const Add& op, const Types& in);
void grad(const Add& op, Adjoint& adjoint);
Cost cost(const Add& op, const Types& in, const Types& out);

// The same elements under another shape: a view, never a call.
struct Reshape {
  static constexpr std::string_view name = "reshape";
  static constexpr OpTraits traits{.kind = OpKind::view,
                                   .in_place = inputs(),
                                   .changes = roles(),
                                   .f32 = F32::none,
                                   .layout_of = own_layout};
  Shape shape;
  bool operator==(const Reshape&) const = default;
};
Types infer(const Reshape& op, const Types& in);
void grad(const Reshape& op, Adjoint& adjoint);
Cost cost(const Reshape& op, const Types& in, const Types& out);
std::string text(const Reshape& op);

// A slot of the loader in the host's memory -> the same in the device's; inserted by a backend
// whose kernels cannot read the host's.
struct Upload {
  static constexpr std::string_view name = "upload";
  static constexpr OpTraits traits{.kind = OpKind::move,
                                   .in_place = inputs(),
                                   .changes = roles(),
                                   .f32 = F32::none,
                                   .layout_of = own_layout};
  bool operator==(const Upload&) const = default;
};
Types infer(const Upload& op, const Types& in);
Cost cost(const Upload& op, const Types& in, const Types& out);

// The same logical value in the layout that the backend wants next; inserted by a backend, a
// visible call.
struct Reorder {
  static constexpr std::string_view name = "reorder";
  static constexpr OpTraits traits{.kind = OpKind::move,
                                   .in_place = inputs(),
                                   .changes = roles(),
                                   .f32 = F32::none,
                                   .layout_of = own_layout};
  bool operator==(const Reorder&) const = default;
};
Types infer(const Reorder& op, const Types& in);
Cost cost(const Reorder& op, const Types& in, const Types& out);

}  // namespace warpstep
