#include "kernels/cases.h"

namespace warpstep::cases::norm_cases {
namespace {

struct Size {
  const char* label;
  std::int64_t batch, height, width, channels;
  bool heavy = false;
};

using Kind = Fill::Kind;

// Gamma and beta have both signs; running variances are like those of a network in use.
void add_forward(List& list, const std::string& label, const Size& size, BatchNorm op, Fill fill,
                 bool smooth = true) {
  Case& added = list.add(size.label + label, [&](Case& c) {
    const Type type{DType::f32, {size.batch, size.height, size.width, size.channels}};
    const Tensor x = input(c, "x", type, fill);
    if (op.add) {
      // As the fusion makes it: the shortcut comes after the norm's own operands.
      BatchNorm plain = op;
      plain.add = false;
      batch_norm("bn", x, plain);
      Node norm = c.graph.nodes.back();
      c.graph.nodes.pop_back();
      norm.op = op;
      norm.in.push_back(input(c, "shortcut", type).id);
      c.graph.nodes.push_back(std::move(norm));
    } else {
      batch_norm("bn", x, op);
    }
    c.fills[c.graph.buffers[1].value] = {Kind::around, 2};
    c.smooth = smooth;
    c.heavy = size.heavy;
  });
  if (op.relu) added.fusion = op.add ? fusion::norm_add_relu : fusion::norm_relu;
}

// What a step of a product has: more forms would only take a benchmark's time.
void add_heavy(List& list, const Size& size) {
  add_forward(list, " +relu", size, {.relu = true}, {Kind::around, 0.5});
  add_forward(list, " +add+relu", size, {.add = true, .relu = true}, {Kind::around, 0.5});
  add_forward(list, " +relu, running statistics", size, {.training = false, .relu = true},
              {Kind::around, 0.5});
}

void add_all_forms(List& list, const Size& size) {
  for (const bool training : {true, false}) {
    const std::string suffix = training ? "" : ", running statistics";
    for (const BatchNorm& form :
         {BatchNorm{}, BatchNorm{.relu = true}, BatchNorm{.add = true, .relu = true}}) {
      BatchNorm op = form;
      op.training = training;
      add_forward(list,
                  (op.add    ? " +add+relu"
                   : op.relu ? " +relu"
                             : "") +
                      suffix,
                  size, op, {Kind::around, 0.5});
    }
  }
  add_forward(list, " +add", size, {.add = true}, {Kind::around, 0.5});
  add_forward(list, " +add, running statistics", size, {.training = false, .add = true},
              {Kind::around, 0.5});
}

// The adjoint with a second gradient, for numbers that are not a forward's own; with `norm` also of
// the norm that made the shortcut.
void add_sum(List& list, const Size& size, bool add, bool relu, bool norm = false) {
  const std::string form = norm ? " +add+relu+norm" : add ? " +add+relu" : relu ? " +relu" : "";
  list.add(std::string(size.label) + form + " gradient of two users",
           [&](Case& c) {
             const Type type{DType::f32, {size.batch, size.height, size.width, size.channels}};
             const Type channels{DType::f32, {size.channels}};
             std::vector<Tensor> in{input(c, "d_y", type), input(c, "x", type, {Kind::around, 0.5}),
                                    input(c, "gamma", channels), input(c, "mean", channels),
                                    input(c, "inv_std", channels, {Kind::around, 2})};
             if (relu) in.push_back(input(c, "y", type, {Kind::coarse, 1}));
             in.push_back(input(c, "d_y2", type));
             if (norm)
               in.insert(in.end(),
                         {input(c, "shortcut_x", type, {Kind::around, -0.25}),
                          input(c, "shortcut_gamma", channels), input(c, "shortcut_mean", channels),
                          input(c, "shortcut_inv_std", channels, {Kind::around, 2})});
             record(c,
                    BatchNormGrad{
                        .norm = {.add = add, .relu = relu}, .sum = true, .shortcut_norm = norm},
                    in);
             c.heavy = size.heavy;
           })
      .fusion = norm ? fusion::norm_dgrad_norm_dgrad : fusion::add_norm_dgrad;
}

void add_norm(List list) {
  for (const Size& size : {
           Size{"one channel", 3, 5, 7, 1},
           Size{"images of 3 channels", 4, 9, 6, 3},
           Size{"17 channels", 3, 5, 7, 17},
           Size{"30 channels", 2, 6, 5, 30},
           Size{"24 channels", 3, 5, 5, 24},
           Size{"64 channels, several chunks", 3, 24, 23, 64},
           Size{"resnet layer4 7x7", 2, 7, 7, 256},
           Size{"2x2 maps", 9, 2, 2, 32},
           Size{"1x1 maps", 10, 1, 1, 256},
           Size{"1000 channels", 3, 2, 3, 1000},
           Size{"2064 channels", 5, 1, 2, 2064},
           Size{"301 rows of 21 channels", 301, 1, 1, 21},
           Size{"130 rows of 264 channels", 130, 1, 1, 264},
           Size{"3000 rows of 7 channels", 10, 20, 15, 7},
           Size{"resnet50 stem @224", 8, 112, 112, 64, true},
           Size{"resnet50 layer1 @224", 8, 56, 56, 256, true},
           Size{"resnet50 layer2 @224", 8, 28, 28, 128, true},
           Size{"resnet50 layer3 @224", 8, 14, 14, 1024, true},
           Size{"resnet50 layer4 @224", 8, 7, 7, 2048, true},
           Size{"resnet50 stem @32", 128, 16, 16, 64, true},
           Size{"resnet50 layer1 @32", 128, 8, 8, 256, true},
           Size{"resnet50 layer4 @32", 128, 1, 1, 2048, true},
       }) {
    add_sum(list, size, true, true);
    if (size.heavy) {
      add_heavy(list, size);
      continue;
    }
    add_all_forms(list, size);
    add_sum(list, size, false, false);
    add_sum(list, size, false, true);
  }
  for (const Size& size :
       {Size{"17 channels", 3, 5, 7, 17}, Size{"64 channels, several chunks", 3, 24, 23, 64},
        Size{"130 rows of 264 channels", 130, 1, 1, 264},
        Size{"resnet50 layer1 @224", 8, 56, 56, 256, true}})
    add_sum(list, size, true, true, true);
  // Two values per channel lie at -1 and 1 whatever they are; what is left of their gradient is
  // what epsilon makes of it.
  add_forward(list, "", {"two rows", 2, 1, 1, 48}, {.epsilon = 0.5, .momentum = 0.3},
              {Kind::centered, 1});
  add_forward(list, "", {"two rows of 5 channels", 1, 2, 1, 5}, {.epsilon = 0.5},
              {Kind::centered, 1});
  add_forward(list, "", {"momentum 1", 3, 4, 4, 16}, {.momentum = 1}, {Kind::centered, 1});
  // A variance from the mean of the squares has no digit left here.
  for (const Size& size : {Size{"mean 1e3, deviation 1, 16", 16, 16, 16, 16},
                           Size{"mean 1e3, deviation 1, 5", 16, 16, 16, 5}})
    add_forward(list, " channels", size, {}, {Kind::around, 1e3}, false);
  for (const BatchNorm& op : {BatchNorm{}, BatchNorm{.add = true, .relu = true}})
    for (const Size& size :
         {Size{"no variance, 16", 3, 7, 9, 16}, Size{"no variance, 5", 3, 7, 9, 5}})
      add_forward(list, op.add ? " channels +add+relu" : " channels", size, op,
                  {Kind::constant, 0.75}, false);
  add_forward(list, "", {"two values", 4, 6, 6, 32}, {}, {Kind::extreme, 3});
}

const Folder norm_cases("norm", add_norm);

}  // namespace
}  // namespace warpstep::cases::norm_cases
