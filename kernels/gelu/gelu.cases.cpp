#include "kernels/cases.h"

namespace warpstep::cases::gelu_cases {
namespace {

void add_gelu(List list) {
  struct Size {
    const char* label;
    Shape shape;
    double scale = 4;  // of x: both tails and the bend between them
    bool heavy = false;
  };
  for (const bool tanh : {false, true})
    for (const Size& size : {
             Size{"images", {2, 8, 8, 16}},
             Size{"17 channels", {3, 5, 7, 17}},
             Size{"rows of tokens", {6, 48}},
             Size{"one element", {1}},
             Size{"far tails", {5, 33}, 40},
             Size{"gpt2 b8", {8192, 3072}, 4, true},
         }) {
      list.add(std::string(tanh ? "tanh of " : "erf of ") + size.label, [&](Case& c) {
        gelu(input(c, "x", {DType::f32, size.shape}, {Fill::Kind::centered, size.scale}),
             {.tanh = tanh});
        c.heavy = size.heavy;
      });
    }
  // Where the powers of x in the formulas would overflow; in f32 alone, as its name says.
  for (const bool tanh : {false, true})
    list.add(std::string(tanh ? "tanh" : "erf") + " of +-1e30", [&](Case& c) {
      c.smooth = false;
      gelu(input(c, "x", {DType::f32, {5, 33}}, {Fill::Kind::extreme, 1e30}), {.tanh = tanh});
    });
  // The channels are whole vectors of 16 bytes or not, the rows fill a block or many.
  for (const bool tanh : {false, true})
    for (const Shape& shape : {Shape{6, 48}, Shape{3, 5, 7, 17}, Shape{1030, 264}, Shape{1, 8}})
      list.add(fmt::format("{} gradient with sums of {}", tanh ? "tanh" : "erf", shape.text()),
               [&](Case& c) {
                 const Type type{DType::f32, shape};
                 record(c, GeluGrad{.tanh = tanh, .bias_gradient = true},
                        {input(c, "d_y", type), input(c, "x", type, {Fill::Kind::centered, 4})});
               })
          .fusion = fusion::dgrad_bias;
  // In place: the unit takes over the sum's buffer, but its adjoint reads what it took.
  list.add("chain in place", [](Case& c) {
    const Tensor x = input(c, "x", {DType::f32, {3, 4, 4, 5}});
    add(gelu(add(x, x)), x);
  });
}

const Folder gelu_cases("gelu", add_gelu);

}  // namespace
}  // namespace warpstep::cases::gelu_cases
