#include "kernels/cases.h"

namespace warpstep::cases::pool_cases {
namespace {

struct Size {
  const char* label;
  std::int64_t batch, height, width, channels;
  std::int64_t window = 2, stride = 2, padding = 0;
  bool heavy = false;
};

void add(List& list, const Size& size, Fill fill = {Fill::Kind::distinct, 1}, bool smooth = true) {
  for (const bool relu : {false, true})
    list.add(std::string(size.label) + (relu ? " relu" : ""), [&](Case& c) {
      const Type type{DType::f32, {size.batch, size.height, size.width, size.channels}};
      max_pool(input(c, "x", type, fill), {size.window, size.stride, size.padding, relu});
      c.smooth = smooth;
      c.heavy = size.heavy;
    });
}

// The adjoint with the sums of what it writes.
void add_sums(List& list, const Size& size) {
  const auto build = [&](Case& c) {
    const Type type{DType::f32, {size.batch, size.height, size.width, size.channels}};
    const MaxPool op{size.window, size.stride, size.padding, true};
    const Tensor y = max_pool(input(c, "x", type, {Fill::Kind::distinct, 1}), op);
    record(c, MaxPoolGrad{.pool = op, .input = type.shape, .bias_gradient = true},
           {input(c, "d_y", y.type()), {&c.graph, c.graph.nodes.back().out[1]}});
    c.heavy = size.heavy;
  };
  list.add(std::string(size.label) + " gradient with sums", build).fusion = fusion::dgrad_bias;
}

void add_pool(List list) {
  for (const Size& size : {
           Size{"cifar10cnn pool2", 2, 32, 32, 32},
           Size{"cifar10cnn pool3", 2, 16, 16, 64},
           Size{"cifar10cnn pool4", 2, 8, 8, 128},
           Size{"cifar10cnn pool2 n128", 128, 32, 32, 32, 2, 2, 0, true},
           Size{"one window", 1, 2, 2, 1},
           Size{"window 1", 3, 3, 5, 7, 1, 1, 0},
           Size{"rows left over", 3, 7, 9, 17},
           Size{"overlapping 3x3 stride 2 padding 1", 3, 9, 7, 24, 3, 2, 1},
           Size{"overlapping 3x3 stride 2, a row and a column left over", 2, 8, 10, 9, 3, 2, 0},
           Size{"overlapping 3x3 stride 1 padding 1", 1, 6, 5, 5, 3, 1, 1},
           Size{"2x2 stride 1 padding 1", 1, 5, 4, 3, 2, 1, 1},
           Size{"gaps: 2x2 stride 3", 3, 11, 8, 30, 2, 3, 0},
           Size{"7x7 stride 7 padding 3", 1, 21, 14, 3, 7, 7, 3},
           Size{"5x5 stride 1 padding 2, of one channel", 2, 9, 19, 1, 5, 1, 2},
           Size{"5x5 stride 2 padding 1", 1, 17, 11, 6, 5, 2, 1},
           Size{"7x7 stride 1 padding 3", 5, 7, 7, 24, 7, 1, 3},
           Size{"15x15", 1, 15, 16, 2, 15, 1, 0},
           Size{"global 8x8", 3, 8, 8, 17, 8, 8, 0},
       }) {
    add(list, size);
    add_sums(list, size);
  }
  using Kind = Fill::Kind;
  const Size padded{"", 3, 8, 6, 17, 3, 2, 1}, few{"", 2, 9, 8, 3, 5, 1, 2};
  const auto tied = [&](const std::string& label, Fill fill) {
    for (const bool of_few : {false, true}) {
      Size size = of_few ? few : padded;
      const std::string name = label + (of_few ? ", of few channels" : "");
      size.label = name.c_str();
      add(list, size, fill, false);
    }
  };
  tied("all equal", {Kind::constant, 1});
  tied("all equal and negative", {Kind::constant, -1});
  tied("all zero", {Kind::constant, 0});
  tied("many ties", {Kind::coarse, 1});
  tied("ties of 80 and -80", {Kind::extreme, 80});
  tied("all below zero, padding must not win", {Kind::positive, -1});
}

void add_avg_pool(List list) {
  struct Size {
    const char* label;
    std::int64_t batch, height, width, channels;
    AvgPool op = {};
    bool heavy = false;
  };
  for (const Size& size : {
           Size{"resnet", 2, 7, 7, 512},
           Size{"1x1 maps", 3, 1, 1, 256},
           Size{"2x2 maps", 9, 2, 2, 32},
           Size{"of 17 channels", 3, 9, 6, 17},
           Size{"of one channel", 2, 23, 33, 1},
           Size{"30x31 maps", 1, 30, 31, 8},
           Size{"of 288 channels", 2, 3, 3, 288},
           Size{"a whole image and padding", 1, 4, 4, 8, {4, 1, 2}},
           Size{"2x2 stride 2", 3, 8, 6, 32, {2, 2, 0}},
           Size{"2x2 stride 2, a row left over", 3, 7, 9, 17, {2, 2, 0}},
           Size{"3x3 stride 2 padding 1", 3, 9, 7, 24, {3, 2, 1}},
           Size{"3x3 stride 1 padding 1", 1, 6, 5, 5, {3, 1, 1}},
           Size{"gaps: 2x2 stride 3", 3, 11, 8, 30, {2, 3, 0}},
           Size{"one window of 20", 1, 20, 20, 3, {20, 1, 0}},
           Size{"resnet50 @224", 8, 7, 7, 2048, {}, true},
           Size{"densenet", 8, 56, 56, 128, {2, 2, 0}, true},
       })
    list.add(std::string(size.op.window == 0 ? "global average " : "average ") + size.label,
             [&](Case& c) {
               const Type type{DType::f32, {size.batch, size.height, size.width, size.channels}};
               avg_pool(input(c, "x", type), size.op);
               c.heavy = size.heavy;
             });
}

const Folder pool_cases("pool", add_pool);
const Folder avg_pool_cases("pool", add_avg_pool);

}  // namespace
}  // namespace warpstep::cases::pool_cases
