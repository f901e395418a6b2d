#include "kernels/cases.h"

namespace warpstep::cases::linear_cases {
namespace {

struct Size {
  const char* label;
  std::int64_t batch, features, out;
  bool bias = true, heavy = false;
};

void add(List& list, const Size& size, Fill fill = {}) {
  for (const bool relu : {false, true}) {
    const auto build = [&](Case& c) {
      Linear op;
      op.out = size.out;
      op.bias = size.bias;
      op.relu = relu;
      linear("fc", input(c, "x", {DType::f32, {size.batch, size.features}}, fill), op);
    };
    list.add(std::string(size.label) + (relu ? " relu" : ""), build).heavy = size.heavy;
  }
}

// Two layers, the first with relu, and the adjoint of the second up to the first one's d_z.
void add_masked(List& list, const Size& size, std::int64_t classes) {
  const auto build = [&](Case& c) {
    const Tensor x = input(c, "x", {DType::f32, {size.batch, size.features}});
    Linear first;
    first.out = size.out;
    first.relu = first.mask = true;
    const Tensor y = linear("fc1", x, first);
    const int mask = c.graph.nodes.back().out[1];
    c.graph.value(mask).role = Role::mask;
    const Tensor z = linear("fc2", y, {.out = classes});
    const Tensor weight{&c.graph, c.graph.nodes.back().in[1]};
    record(c, LinearDataGrad{.relu = true},
           {input(c, "d_z", z.type()), weight, {&c.graph, mask}, y});
  };
  list.add(std::string(size.label) + " with a mask", build).fusion = fusion::linear_dgrad_relu;
}

// A layer with GELU that keeps what the unit reads, one that does not, and the adjoint of a layer
// after the first up to its d_z.
void add_gelu(List& list, const Size& size, std::int64_t classes) {
  const auto build = [&](Case& c) {
    const Tensor x = input(c, "x", {DType::f32, {size.batch, size.features}});
    Linear first;
    first.out = size.out;
    first.gelu = true;
    linear("without", x, first);
    first.keep = true;
    const Tensor y = linear("fc1", x, first);
    const Tensor z{&c.graph, c.graph.nodes.back().out[1]};
    const Tensor next = linear("fc2", y, {.out = classes});
    const Tensor weight{&c.graph, c.graph.nodes.back().in[1]};
    record(c, LinearDataGrad{.gelu = true}, {input(c, "d_z", next.type()), weight, z});
  };
  Case& added = list.add(std::string(size.label) + " with gelu", build);
  added.fusion = fusion::linear_gelu;
  added.function_error = 4e-6;  // cublasLt's GELU, read off an H200: 1.7e-6
  added.heavy = size.heavy;
}

void add_linear(List list) {
  for (const Size& size : {
           Size{"cifar10cnn fc1 n128", 128, 2048, 2048, true, true},
           Size{"cifar10cnn fc2 n128", 128, 2048, 10, true, true},
           Size{"mlp fc1 n128", 128, 784, 512, true, true},
           Size{"cifar10cnn fc1", 3, 2048, 130},
           Size{"cifar10cnn fc2", 4, 2048, 10},
           Size{"mlp fc1", 5, 784, 64},
           Size{"one by one", 1, 1, 1},
           Size{"one row", 1, 17, 24},
           Size{"one feature", 3, 1, 30},
           Size{"one output", 7, 30, 1},
           Size{"odd", 3, 17, 5},
           Size{"no bias", 3, 24, 30, false},
           Size{"1000 classes", 3, 32, 1000},
           Size{"4099 classes", 3, 8, 4099},
           Size{"10 outputs", 130, 264, 10},
           Size{"3 outputs", 5, 8, 3},
           Size{"3 outputs of one row", 1, 264, 3},
           Size{"16 outputs", 5, 2048, 16},
           Size{"6 outputs without bias", 130, 8, 6, false},
           Size{"17 outputs", 5, 264, 17},
           Size{"16 outputs of 261 rows", 261, 40, 16},
           Size{"1025 rows", 1025, 8, 3},
           Size{"16 rows of 2048", 16, 2048, 519},
           Size{"48 rows of 1031", 48, 1031, 1040, false},
           Size{"9 rows of 1031", 9, 1031, 1040, false},
           Size{"23 rows of 2048", 23, 2048, 519},
           Size{"27 outputs of 1031", 9, 1031, 27},
           Size{"5 outputs of two rows of 1031", 2, 1031, 5},
           Size{"3 outputs of 2050 rows of 17", 2050, 17, 3},
       })
    add(list, size);
  add(list, {"all inputs equal", 3, 24, 7}, {Fill::Kind::constant, 1});
  add(list, {"inputs of 1e4", 3, 24, 7}, {Fill::Kind::centered, 1e4});
  for (const Size& size :
       {Size{"cifar10cnn fc1", 3, 2048, 130}, Size{"128 outputs", 5, 30, 128},
        Size{"one output", 7, 5, 1}, Size{"129 outputs", 4, 17, 129}, Size{"many rows", 70, 9, 40},
        Size{"one row", 1, 17, 24}, Size{"two rows", 2, 24, 30}})
    add_masked(list, size, 24);
  // The gradient uses the first layer's output, not its mask, where the second has few outputs.
  for (const auto& [size, classes] :
       {std::pair{Size{"3 classes of one row", 1, 17, 24}, 3},
        std::pair{Size{"10 classes of two rows", 2, 24, 264}, 10},
        std::pair{Size{"10 classes", 130, 9, 264}, 10}, std::pair{Size{"16 classes", 5, 8, 8}, 16},
        std::pair{Size{"10 classes of 10 inputs", 5, 24, 10}, 10},
        std::pair{Size{"5 classes of 261 rows", 261, 9, 40}, 5}})
    add_masked(list, size, classes);
  for (const Size& size : {Size{"128 outputs", 5, 30, 128}, Size{"12 outputs", 4, 17, 12},
                           Size{"one row", 1, 17, 24}, Size{"two rows", 2, 24, 30}})
    add_gelu(list, size, 10);
  add_gelu(list, {"gpt2 c_fc n1024", 1024, 768, 3072, true, true}, 768);
  // After a flatten of a convolution: the view between a stored layout and plain rows.
  list.add("after conv and flatten", [](Case& c) {
    Conv conv_op;
    conv_op.out = 24;
    conv_op.padding = 1;
    Linear op;
    op.out = 10;
    const Tensor x = input(c, "x", {DType::f32, {3, 6, 5, 3}});
    linear("fc", flatten(max_pool(conv("conv", x, conv_op))), op);
  });
  list.add("after a norm of a parameter", [](Case& c) {
    const Tensor p = warpstep::parameter(c.graph, "p", {3, 24}, {Initial::Kind::uniform, 1});
    linear("fc", layer_norm("ln", p), {.out = 7});
  });
}

const Folder linear_cases("linear", add_linear);

}  // namespace
}  // namespace warpstep::cases::linear_cases
