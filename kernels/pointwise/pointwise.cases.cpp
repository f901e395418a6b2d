#include "kernels/cases.h"

namespace warpstep::cases::pointwise_cases {
namespace {

Type images(std::int64_t n, std::int64_t h, std::int64_t w, std::int64_t c) {
  return {DType::f32, {n, h, w, c}};
}

void add_normalize(List& list, const std::string& label, Shape shape, bool heavy = false) {
  list.add("normalize " + label,
           [&](Case& c) {
             const Tensor x = input(c, "images", {DType::u8, shape}, {Fill::Kind::pixels});
             const std::vector<float> mean{0.4914F, 0.4822F, 0.4465F, 0.5F};
             const std::vector<float> std{0.247F, 0.2435F, 0.2616F, 0.25F};
             const std::size_t channels = idx(shape.back());
             normalize(x, std::span(mean).first(channels), std::span(std).first(channels));
           })
      .heavy = heavy;
}

void add_convert(List& list, Shape shape) {
  list.add("convert " + shape.text(), [&](Case& c) {
    convert(input(c, "images", {DType::f32, shape}, {Fill::Kind::centered, 2}));
  });
}

void add_views(List& list) {
  list.add("reshape of an input", [](Case& c) {
    record(c, Reshape{{3, 70}}, {input(c, "x", images(3, 5, 7, 2))});
  });
  list.add("reshape of a result", [](Case& c) {
    const Tensor x = relu(input(c, "x", images(3, 5, 7, 2), {Fill::Kind::distinct, 1}));
    relu(record(c, Reshape{{3, 70}}, {x}));
  });
  // The second reader of the view must find what the first one left alone.
  list.add("view with two readers", [](Case& c) {
    const Tensor x = relu(input(c, "x", {DType::f32, {6, 10}}, {Fill::Kind::distinct, 1}));
    const Tensor view = record(c, Reshape{{10, 6}}, {x});
    add(relu(view), view);
  });
  list.add("upload", [](Case& c) {
    record(c, Upload{}, {input(c, "images", {DType::u8, {3, 5, 7, 3}}, {Fill::Kind::pixels})});
  });
  list.add("reorder", [](Case& c) { record(c, Reorder{}, {input(c, "x", images(3, 5, 7, 17))}); });
}

void add_pointwise(List list) {
  add_normalize(list, "3 channels", {2, 32, 32, 3});
  add_normalize(list, "1 channel", {3, 28, 28, 1});
  add_normalize(list, "4 channels", {1, 5, 7, 4});
  add_normalize(list, "2 channels", {3, 3, 5, 2});
  add_normalize(list, "one pixel", {1, 1, 1, 3});
  add_normalize(list, "513 pixels", {1, 27, 19, 3});
  add_normalize(list, "1029 pixels of 2 channels", {7, 7, 21, 2});
  add_normalize(list, "n128", {128, 32, 32, 3}, true);

  for (const Shape& shape : {Shape{2, 32, 32, 3}, Shape{3, 5, 7, 1}, Shape{1, 23, 33, 2},
                             Shape{1, 1, 7, 3}, Shape{7, 7, 21, 4}})
    add_convert(list, shape);

  const Fill distinct{Fill::Kind::distinct, 1};
  for (const Type& type : {images(2, 32, 32, 8), images(3, 5, 7, 17), images(1, 1, 1, 1),
                           Type{DType::f32, {3, 1000}}, Type{DType::f32, {30}}}) {
    list.add("relu of " + type.shape.text(), [&](Case& c) { relu(input(c, "x", type, distinct)); });
    list.add("add of " + type.shape.text(),
             [&](Case& c) { add(input(c, "a", type), input(c, "b", type)); });
  }
  // The channels are whole vectors of 16 bytes or not, the rows fill a block or many.
  for (const Type& type : {images(2, 32, 32, 8), images(3, 5, 7, 17), images(1, 1, 1, 1),
                           images(5, 31, 33, 64), Type{DType::f32, {3, 1000}}, images(1, 1, 7, 24),
                           images(1, 1, 1021, 40), images(1, 1, 4500, 8), images(1, 5, 13, 264)})
    list.add("relu gradient with sums of " + type.shape.text(),
             [&](Case& c) {
               record(c, ReluGrad{.bias_gradient = true},
                      {input(c, "d_y", type), input(c, "y", type)});
             })
        .fusion = fusion::dgrad_bias;
  list.add("relu of zeros", [&](Case& c) {
    c.smooth = false;
    relu(input(c, "x", images(3, 4, 4, 5), {Fill::Kind::constant, 0}));
  });
  list.add("relu of few values", [&](Case& c) {
    c.smooth = false;
    relu(input(c, "x", images(3, 4, 4, 5), {Fill::Kind::coarse, 1}));
  });
  list.add("add of a value and itself", [&](Case& c) {
    const Tensor x = input(c, "x", images(3, 4, 4, 5));
    add(x, x);
  });
  // In place: the relu takes over the sum's buffer, but not that of x, which the second add reads.
  list.add("chain in place", [&](Case& c) {
    const Tensor x = relu(input(c, "x", images(3, 4, 4, 5), distinct));
    const Tensor y = input(c, "y", images(3, 4, 4, 5), distinct);
    add(relu(add(x, y)), x);
  });
  list.add("relu of n128", [&](Case& c) { relu(input(c, "x", images(128, 32, 32, 32))); }).heavy =
      true;
  add_views(list);
}

const Folder pointwise_cases("pointwise", add_pointwise);

}  // namespace
}  // namespace warpstep::cases::pointwise_cases
