#include "kernels/cases.h"

namespace warpstep::cases::norm_conv_cases {
namespace {

using Kind = Fill::Kind;

struct Size {
  const char* label;
  std::int64_t batch, extent, in, out;
  Conv conv;  // its `out` is the one above
  bool heavy = false;

  Conv op() const {
    Conv op = conv;
    op.out = out;
    op.bias = false;
    return op;
  }
  Type images() const { return {DType::f32, {batch, extent, extent, in}}; }
  Type gradient() const { return infer(op(), {images(), {DType::f32, weight_shape(op(), in)}})[0]; }
};

// What belongs to a channel is f32 in every precision, but what a prologue reads is not.
Tensor channels(Case& c, const std::string& name, std::int64_t count, Fill fill = {}) {
  return input(c, name, {DType::f32, {count}}, fill);
}

std::vector<Tensor> prologue_operands(Case& c, const Size& size, Prologue prologue) {
  std::vector<Tensor> in{input(c, "x", size.images(), {Kind::around, 0.5}),
                         input(c, "weight", {DType::f32, weight_shape(size.op(), size.in)})};
  if (prologue >= Prologue::norm) {
    in.push_back(channels(c, "scale", size.in));
    in.push_back(channels(c, "bias", size.in));
  }
  if (prologue >= Prologue::join) in.push_back(input(c, "shortcut", size.images()));
  if (prologue == Prologue::join_norms) {
    in.push_back(channels(c, "shortcut_scale", size.in));
    in.push_back(channels(c, "shortcut_bias", size.in));
  }
  return in;
}

void add_convolutions(List& list, const Size& size) {
  const bool joins = size.conv.kernel == 1 && size.conv.stride == 1;
  for (const Prologue prologue :
       {Prologue::none, Prologue::norm, Prologue::join, Prologue::join_norms}) {
    if (prologue >= Prologue::join && !joins) continue;
    const std::string front =
        prologue == Prologue::none ? "" : fmt::format(" after {}", name(prologue));
    list.add(fmt::format("{}{}", size.label, front),
             [&](Case& c) {
               record(c, NormConv{size.op(), prologue}, prologue_operands(c, size, prologue));
               c.heavy = size.heavy;
             })
        .fusion = fusion::conv_statistics;
  }
  list.add(fmt::format("{}{}", size.label, " data gradient"),
           [&](Case& c) {
             std::vector<Tensor> in{
                 input(c, "d_z", size.gradient()),
                 input(c, "weight", {DType::f32, weight_shape(size.op(), size.in)}),
                 input(c, "x", size.images(), {Kind::around, 0.5})};
             for (const char* name : {"gamma", "beta", "mean"})
               in.push_back(channels(c, name, size.in));
             in.push_back(channels(c, "inv_std", size.in, {Kind::around, 2}));
             record(c, NormConvDataGrad{size.op()}, in);
             c.heavy = size.heavy;
           })
      .fusion = fusion::dgrad_norm_dgrad;
  list.add(fmt::format("{}{}", size.label, " weight gradient"),
           [&](Case& c) {
             record(
                 c, NormConvWeightGrad{size.op()},
                 {input(c, "x", size.images(), {Kind::around, 0.5}), channels(c, "scale", size.in),
                  channels(c, "bias", size.in), input(c, "d_z", size.gradient())});
             c.heavy = size.heavy;
           })
      .fusion = fusion::norm_conv;
}

void add_finalize(List& list, std::int64_t count, std::int64_t rows, double momentum) {
  list.add(fmt::format("finalize {} channels of {} rows, momentum {}", count, rows, momentum),
           [&](Case& c) {
             // Squares that no mean takes to 0: sums are up to a tenth of the rows.
             const auto n = static_cast<double>(rows);
             std::vector<Tensor> in{channels(c, "sum", count, {Kind::centered, 0.1 * n}),
                                    channels(c, "squares", count, {Kind::around, n + 2}),
                                    channels(c, "gamma", count), channels(c, "beta", count)};
             in.push_back(c.graph.buffer("running_mean", {count}, {0.0F}));
             in.push_back(c.graph.buffer("running_var", {count}, {1.0F}));
             c.fills[in[5].id] = {Kind::around, 2};
             record(c, NormFinalize{{.momentum = momentum}, rows}, in);
           })
      .fusion = fusion::conv_statistics;
}

void add_passes(List& list, const Size& size) {
  for (const bool add : {false, true})
    for (const bool relu : {false, true}) {
      const std::string form =
          fmt::format("{} apply{}{}", size.label, add ? " +add" : "", relu ? " +relu" : "");
      list.add(form,
               [&](Case& c) {
                 std::vector<Tensor> in{input(c, "x", size.images(), {Kind::around, 0.5})};
                 for (const char* name : {"gamma", "beta", "mean"})
                   in.push_back(channels(c, name, size.in));
                 in.push_back(channels(c, "inv_std", size.in, {Kind::around, 2}));
                 if (add) in.push_back(input(c, "shortcut", size.images()));
                 record(c, NormApply{{.add = add, .relu = relu}}, in);
                 c.heavy = size.heavy;
               })
          .fusion = fusion::conv_statistics;
    }
  list.add(fmt::format("{}{}", size.label, " gradient's last pass"),
           [&](Case& c) {
             std::vector<Tensor> in{input(c, "g", size.images()), input(c, "x", size.images())};
             for (const char* name : {"d_gamma", "d_beta", "by_g", "by_x", "constant"})
               in.push_back(channels(c, name, size.in));
             record(c, NormGradApply{}, in);
             c.heavy = size.heavy;
           })
      .fusion = fusion::dgrad_norm_dgrad;
}

void add_norm_conv(List list) {
  const Conv pointwise{.kernel = 1}, wide{.kernel = 3, .padding = 1},
      strided{.kernel = 3, .stride = 2, .padding = 1}, projection{.kernel = 1, .stride = 2};
  for (const Size& size : {
           Size{"1x1", 3, 5, 16, 24, pointwise},
           Size{"1x1 of one pixel", 9, 1, 32, 8, pointwise},
           Size{"1x1 stride 2", 2, 7, 16, 32, projection},
           Size{"3x3", 2, 6, 8, 16, wide},
           Size{"3x3 stride 2", 2, 7, 24, 16, strided},
           Size{"resnet50 layer1 conv3 @224", 8, 56, 64, 256, pointwise, true},
           Size{"resnet50 layer2 conv2 @224", 8, 28, 128, 128, wide, true},
           Size{"resnet50 layer3 conv1 @224", 8, 14, 1024, 256, pointwise, true},
           Size{"resnet50 layer4 conv2 @32", 128, 1, 512, 512, wide, true},
       })
    add_convolutions(list, size);
  for (const auto& [count, rows] :
       {std::pair<std::int64_t, std::int64_t>{8, 2}, {136, 50}, {2048, 12544}})
    for (const double momentum : {0.1, 1.0}) add_finalize(list, count, rows, momentum);
  for (const Size& size : {
           Size{"8 channels", 3, 5, 8, 8, pointwise},
           Size{"264 channels", 2, 6, 264, 8, pointwise},
           Size{"64 channels, several chunks", 3, 24, 64, 8, pointwise},
           Size{"resnet50 layer1 @224", 8, 56, 64, 8, pointwise, true},
       })
    add_passes(list, size);
}

const Folder norm_conv_cases("norm_conv", add_norm_conv);

}  // namespace
}  // namespace warpstep::cases::norm_conv_cases
