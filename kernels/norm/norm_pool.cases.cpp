#include "kernels/cases.h"

namespace warpstep::cases::norm_pool_cases {
namespace {

using Kind = Fill::Kind;

struct Size {
  const char* label;
  std::int64_t batch, height, width, channels;
  MaxPool pool{3, 2, 1, true};
  Fill gamma{};  // of both signs
  bool heavy = false;
};

Tensor channels(Case& c, const char* name, const Size& size, Fill fill) {
  return input(c, name, {DType::f32, {size.channels}}, fill);
}

// The norm and its pool; x is around a mean that is not 0.
std::vector<Tensor> add_norm_and_pool(Case& c, const Size& size) {
  const Type type{DType::f32, {size.batch, size.height, size.width, size.channels}};
  std::vector<Tensor> in{input(c, "x", type, {Kind::around, 0.5}),
                         channels(c, "gamma", size, size.gamma), channels(c, "beta", size, {})};
  in.push_back(c.graph.buffer("running_mean", {size.channels}, {0.0F}));
  in.push_back(c.graph.buffer("running_var", {size.channels}, {1.0F}));
  c.fills[in[4].id] = {Kind::around, 2};
  record(c, NormPool{.norm = {.momentum = 0.25}, .pool = size.pool}, in);
  c.heavy = size.heavy;
  return in;
}

void add_norm_pool(List list) {
  for (const Size& size :
       {Size{"one window", 2, 2, 2, 8}, Size{"images of 3 channels", 3, 9, 7, 3},
        Size{"24 channels, a column left over", 3, 9, 8, 24},
        Size{"without padding", 2, 8, 10, 17, {3, 2, 0, true}},
        Size{"without relu", 3, 7, 7, 30, {3, 2, 1, false}},
        Size{"64 channels, several chunks", 3, 26, 23, 64}, Size{"264 channels", 5, 5, 4, 264},
        Size{"gamma of -1, 0 and 1", 2, 8, 6, 40, {3, 2, 1, true}, {Kind::coarse, 1}},
        Size{"resnet50 stem @224", 8, 112, 112, 64, {3, 2, 1, true}, {}, true}}) {
    list.add(size.label, [&](Case& c) { add_norm_and_pool(c, size); }).fusion = fusion::norm_pool;
    list.add(std::string(size.label) + " gradient",
             [&](Case& c) {
               const std::vector<Tensor> in = add_norm_and_pool(c, size);
               const Node& norm = c.graph.nodes.back();
               const auto out = [&](std::size_t i) { return Tensor{&c.graph, norm.out[i]}; };
               const Tensor d_y = input(c, "d_y", out(0).type());
               record(c, NormPoolGrad{size.pool}, {d_y, out(1), in[0], in[1], out(2), out(3)});
             })
        .fusion = fusion::norm_pool;
  }
}

const Folder norm_pool_cases("norm_pool", add_norm_pool);

}  // namespace
}  // namespace warpstep::cases::norm_pool_cases
