#include "kernels/cases.h"

namespace warpstep::cases::conv_cases {
namespace {

struct Size {
  const char* label;
  std::int64_t batch, height, width, channels;
  Conv op;
};

Conv conv_op(std::int64_t out, std::int64_t kernel, std::int64_t stride, std::int64_t padding,
             std::int64_t dilation = 1, std::int64_t groups = 1, bool bias = true) {
  Conv op;
  op.out = out;
  op.kernel = kernel;
  op.stride = stride;
  op.padding = padding;
  op.dilation = dilation;
  op.groups = groups;
  op.bias = bias;
  return op;
}

void add(List& list, const Size& size, bool heavy = false, Fill fill = {}) {
  for (const bool relu : {false, true}) {
    const auto build = [&](Case& c) {
      const Type type{DType::f32, {size.batch, size.height, size.width, size.channels}};
      Conv op = size.op;
      op.relu = relu;
      conv("conv", input(c, "x", type, fill), op);
    };
    list.add(std::string(size.label) + (relu ? " relu" : ""), build).heavy = heavy;
  }
}

// A convolution with its pool.
void add_pooled(List& list, const Size& size, bool relu) {
  Conv op = size.op;
  op.pool = MaxPool{.window = 2, .stride = 2, .padding = 0, .relu = relu};
  const auto build = [&](Case& c) {
    const Type type{DType::f32, {size.batch, size.height, size.width, size.channels}};
    conv("conv", input(c, "x", type), op);
    c.smooth = false;
  };
  list.add(std::string(size.label) + (relu ? " relu" : "") + " pool", build).fusion =
      fusion::conv_pool;
}

// The adjoint to what a relu before the convolution read; with a pool after it, through that.
void add_masked(List& list, const Size& size, bool pool) {
  const auto build = [&](Case& c) {
    const Type type{DType::f32, {size.batch, size.height, size.width, size.channels}};
    const Fill distinct{Fill::Kind::distinct, 1};
    const Tensor x = input(c, "x", type, distinct);
    const Type z = conv("conv", x, size.op).type();
    const Tensor weight{&c.graph, c.graph.nodes.back().in[1]};  // a parameter is stored padded
    ConvDataGrad op{.conv = size.op, .input = type.shape, .relu = true};
    std::vector<Tensor> in;
    if (pool) {
      op.conv.pool = MaxPool{.window = 2, .stride = 2, .padding = 0, .relu = true};
      const Tensor y = max_pool(input(c, "z", z, distinct), *op.conv.pool);
      in = {input(c, "d_y", y.type()), weight, {&c.graph, c.graph.nodes.back().out[1]}};
    } else {
      in = {input(c, "d_z", z), weight};
    }
    in.push_back(x);
    record(c, op, in);
    c.smooth = false;
  };
  list.add(std::string(size.label) + " gradient, relu" + (pool ? ", pool" : ""), build).fusion =
      fusion::conv_dgrad_relu;
}

void add_conv(List list) {
  const auto same = [](std::int64_t out) { return conv_op(out, 3, 1, 1); };
  for (const std::int64_t batch : {2, 128}) {
    const bool heavy = batch == 128;
    add(list, {heavy ? "cifar10cnn conv1 n128" : "cifar10cnn conv1", batch, 32, 32, 3, same(8)},
        heavy);
    add(list, {heavy ? "cifar10cnn conv2 n128" : "cifar10cnn conv2", batch, 32, 32, 8, same(32)},
        heavy);
    add(list, {heavy ? "cifar10cnn conv3 n128" : "cifar10cnn conv3", batch, 16, 16, 32, same(64)},
        heavy);
    add(list, {heavy ? "cifar10cnn conv4 n128" : "cifar10cnn conv4", batch, 8, 8, 64, same(128)},
        heavy);
  }
  for (const Size& size : {
           Size{"one pixel", 1, 1, 1, 1, conv_op(1, 1, 1, 0)},
           Size{"1x1", 3, 5, 7, 17, conv_op(24, 1, 1, 0)},
           Size{"1x1 stride 2", 3, 9, 6, 24, conv_op(30, 1, 2, 0)},
           Size{"no padding", 3, 9, 7, 5, conv_op(7, 3, 1, 0)},
           Size{"padding 3 of 7x7 stride 2", 1, 21, 17, 3, conv_op(17, 7, 2, 3)},
           Size{"padding 2 of 5x5", 3, 6, 11, 7, conv_op(5, 5, 1, 2)},
           Size{"padding above the kernel's need", 1, 4, 5, 3, conv_op(8, 3, 1, 3)},
           Size{"kernel as large as the image", 3, 4, 4, 6, conv_op(10, 4, 1, 0)},
           Size{"stride 2 leaves a row over", 3, 8, 10, 17, conv_op(30, 3, 2, 0)},
           Size{"5x5 of 12 channels", 2, 11, 9, 12, conv_op(13, 5, 1, 2)},
           Size{"stride 2 of 9 channels", 3, 10, 13, 9, conv_op(20, 3, 2, 1)},
           Size{"dilation 2 of 20 channels", 3, 11, 9, 20, conv_op(11, 3, 1, 2, 2)},
           Size{"stride 3", 1, 13, 10, 1, conv_op(24, 3, 3, 1)},
           Size{"dilation 2", 3, 11, 9, 5, conv_op(24, 3, 1, 2, 2)},
           Size{"dilation 2 stride 2", 1, 12, 15, 8, conv_op(16, 3, 2, 2, 2)},
           Size{"groups 2", 3, 7, 9, 24, conv_op(30, 3, 1, 1, 1, 2)},
           Size{"groups 2 stride 2 dilation 2", 1, 11, 13, 6, conv_op(10, 3, 2, 1, 2, 2)},
           Size{"groups 2 of 32 channels", 1, 6, 9, 64, conv_op(64, 3, 1, 1, 1, 2)},
           Size{"depthwise", 3, 9, 8, 17, conv_op(17, 3, 1, 1, 1, 17)},
           Size{"depthwise of 32 channels", 3, 9, 8, 32, conv_op(32, 3, 2, 1, 1, 32)},
           Size{"depthwise of 4 channels", 2, 7, 5, 4, conv_op(4, 3, 1, 1, 1, 4)},
           Size{"depthwise of wide maps", 2, 4, 37, 20, conv_op(20, 3, 1, 1, 1, 20)},
           Size{"depthwise 7x7 of small maps", 3, 4, 5, 21, conv_op(21, 7, 1, 3, 1, 21, false)},
           Size{"depthwise 9x9", 1, 11, 23, 16, conv_op(16, 9, 1, 4, 1, 16)},
           Size{"depthwise 5x5 stride 2 dilation 2", 2, 13, 18, 37, conv_op(37, 5, 2, 3, 2, 37)},
           Size{"depthwise 2x2 stride 3", 2, 10, 11, 16, conv_op(16, 2, 3, 0, 1, 16, false)},
           Size{"depthwise 1x1 stride 2", 2, 7, 6, 9, conv_op(9, 1, 2, 0, 1, 9)},
           Size{"depthwise with much padding", 2, 2, 1, 8, conv_op(8, 3, 2, 5, 1, 8)},
           Size{"two outputs of each channel", 2, 6, 7, 8, conv_op(16, 3, 1, 1, 1, 8)},
           Size{"groups of 2 channels", 3, 9, 8, 18, conv_op(18, 5, 1, 2, 1, 9)},
           Size{"groups of 4 channels stride 2", 2, 11, 13, 28, conv_op(28, 3, 2, 1, 1, 7, false)},
           Size{"groups of 8 channels dilation 2", 1, 9, 20, 24, conv_op(24, 3, 1, 2, 2, 3)},
           Size{"groups of 3 to 5 channels", 3, 7, 10, 12, conv_op(20, 3, 2, 1, 1, 4)},
           Size{"groups of 2 to 4 channels", 5, 16, 12, 16, conv_op(32, 3, 1, 1, 1, 8)},
           Size{"no bias", 3, 8, 8, 16, conv_op(17, 3, 1, 1, 1, 1, false)},
           Size{"1x1 of 2x2 pixels", 3, 2, 2, 24, conv_op(30, 1, 1, 0, 1, 1, false)},
           Size{"1x1 stride 2 of 2x2 pixels", 5, 2, 2, 16, conv_op(32, 1, 2, 0, 1, 1, false)},
           Size{"3x3 of 2x2 pixels", 5, 2, 2, 17, conv_op(24, 3, 1, 1, 1, 1, false)},
           Size{"3x3 stride 2 of 2x2 pixels", 3, 2, 2, 16, conv_op(32, 3, 2, 1, 1, 1, false)},
           Size{"3x3 of 3x3 pixels of 65 images", 65, 3, 3, 10, conv_op(9, 3, 1, 1)},
           Size{"3x3 stride 2 of 5x5 pixels of 64 images", 64, 5, 5, 8, conv_op(12, 3, 2, 1)},
           Size{"3x3 of one pixel", 9, 1, 1, 32, conv_op(17, 3, 1, 1, 1, 1, false)},
           Size{"3x3 dilation 2 of 1x4 pixels", 2, 1, 4, 6, conv_op(8, 3, 1, 2, 2, 1, false)},
           Size{"2x2 of 2x1 pixels", 4, 2, 1, 5, conv_op(7, 2, 1, 1, 1, 1, false)},
           Size{"even kernel", 3, 9, 9, 5, conv_op(7, 2, 1, 1)},
           Size{"channels 1 to 1", 3, 6, 5, 1, conv_op(1, 3, 1, 1)},
           Size{"3x3 of 16 channels of wide maps", 2, 5, 70, 16, conv_op(16, 3, 1, 1)},
           Size{"3x3 of 8 channels of small maps", 21, 4, 5, 8, conv_op(16, 3, 1, 1)},
           Size{"3x3 of 64 to 16 channels", 3, 9, 11, 64, conv_op(16, 3, 1, 1)},
           Size{"3x3 of 16 to 8 channels", 2, 19, 33, 16, conv_op(8, 3, 1, 1)},
           Size{"3x3 of 80 to 112 channels of small maps", 3, 7, 7, 80, conv_op(112, 3, 1, 1)},
           Size{"3x3 of 128 to 64 channels, padding 2", 1, 6, 5, 128, conv_op(64, 3, 1, 2)},
           Size{"3x3 of 64 channels, no padding", 2, 9, 6, 64, conv_op(64, 3, 1, 0)},
           Size{"3x3 of 128 channels of 66 images", 66, 3, 3, 128, conv_op(128, 3, 1, 1)},
           Size{"3x3 to 3 outputs", 2, 6, 21, 12, conv_op(3, 3, 1, 1)},
           Size{"4x4 to 8 outputs with much padding", 3, 5, 2, 8, conv_op(8, 4, 1, 5)},
           Size{"9x9 dilation 2 to 1 output", 1, 19, 34, 9, conv_op(1, 9, 1, 8, 2, 1, false)},
           Size{"5x5 to 2 outputs of many images", 7, 90, 75, 8, conv_op(2, 5, 1, 2)},
           Size{"5x5 stride 3 dilation 2 of 6 channels", 2, 15, 53, 6, conv_op(9, 5, 3, 4, 2)},
           Size{"2x2 stride 3 of 7 channels", 3, 8, 11, 7, conv_op(20, 2, 3, 0)},
           Size{"stem", 2, 37, 29, 3, conv_op(64, 7, 2, 3, 1, 1, false)},
           Size{"stem with a bias, of 4 channels", 5, 17, 66, 4, conv_op(48, 7, 2, 3)},
           Size{"stem of 1 channel of a wide map", 1, 17, 150, 1, conv_op(60, 7, 2, 3)},
           Size{"stem of small maps", 8, 32, 32, 3, conv_op(64, 7, 2, 3, 1, 1, false)},
           Size{"stem of one pixel", 3, 1, 1, 3, conv_op(40, 7, 2, 3)},
       })
    add(list, size);
  for (const Size& size : {
           Size{"cifar10cnn conv3", 3, 16, 16, 32, conv_op(64, 3, 1, 1)},
           Size{"30 channels of odd maps", 5, 17, 19, 30, conv_op(30, 3, 1, 1)},
           Size{"no bias", 9, 8, 8, 8, conv_op(24, 3, 1, 1, 1, 1, false)},
           Size{"8 to 8 channels", 9, 16, 14, 8, conv_op(8, 3, 1, 1)},
           Size{"64 to 80 channels of small maps", 2, 7, 10, 64, conv_op(80, 3, 1, 1)},
       })
    for (const bool relu : {false, true}) add_pooled(list, size, relu);
  add_masked(list, {"cifar10cnn conv2", 2, 32, 32, 8, same(32)}, false);
  add_masked(list, {"cifar10cnn conv2", 2, 32, 32, 8, same(32)}, true);
  add_masked(list, {"5 to 3 channels of odd maps", 3, 7, 9, 5, same(3)}, false);
  for (const Size& size : {
           Size{"3x3 of 30 to 50 channels", 9, 13, 10, 30, conv_op(50, 3, 1, 1)},
           Size{"3x3 of 9 to 17 channels without padding", 9, 12, 11, 9, conv_op(17, 3, 1, 0)},
           Size{"3x3 of 20 to 12 channels with padding 2", 9, 10, 10, 20, conv_op(12, 3, 1, 2)},
       })
    add(list, size);
  add(list, {"all inputs equal", 3, 8, 8, 8, conv_op(16, 3, 1, 1)}, false,
      {Fill::Kind::constant, 1});
  add(list, {"inputs of 1e4", 1, 8, 8, 8, conv_op(16, 3, 1, 1)}, false,
      {Fill::Kind::centered, 1e4});
  add(list, {"inputs of 1e-6", 1, 8, 8, 8, conv_op(16, 3, 1, 1)}, false,
      {Fill::Kind::centered, 1e-6});
}

const Folder conv_cases("conv", add_conv);

}  // namespace
}  // namespace warpstep::cases::conv_cases
