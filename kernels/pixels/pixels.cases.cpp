#include "kernels/cases.h"

namespace warpstep::cases::pixels_cases {
namespace {

struct Size {
  const char* label;
  Shape images;
  std::int64_t rows;
  ImageExtent out;
  PixelPlan plan{};
  bool heavy = false;
};

PixelPlan colours(int channels) {
  PixelPlan plan{.channels = channels};
  for (std::size_t o = 0; o < idx(channels); ++o) {
    plan.shift[o] = 0.25F * static_cast<float>(o) - 0.5F;
    for (std::size_t c = 0; c < idx(channels); ++c)
      plan.m[o][c] = (o == c ? 0.004F : -0.001F) + 0.0005F * static_cast<float>(c);
  }
  return plan;
}

PixelPlan masked(int channels, bool dilate, bool mix) {
  PixelPlan plan = colours(channels);
  plan.mask_threshold = 16384;
  plan.dilate = dilate;
  plan.mix = mix;
  return plan;
}

// Images of their own a row and more of them than rows, tiles that are full, cut off and of every
// width.
void add_pixels(List list) {
  for (const Size& size : {
           Size{"colours", {4, 32, 32, 3}, 4, {32, 32}, colours(3)},
           Size{"window", {7, 40, 37, 3}, 3, {32, 28}, colours(3)},
           Size{"mask", {4, 32, 32, 3}, 4, {32, 32}, masked(3, false, false)},
           Size{"dilated mask", {5, 20, 80, 3}, 2, {19, 77}, masked(3, true, false)},
           Size{"mix", {6, 30, 70, 3}, 6, {30, 70}, masked(3, true, true)},
           Size{"1 channel", {3, 28, 28, 1}, 3, {28, 28}, masked(1, true, true)},
           Size{"2 channels", {2, 9, 5, 2}, 3, {7, 3}, masked(2, false, true)},
           Size{"n256", {256, 256, 256, 3}, 256, {256, 256}, masked(3, true, false), true},
       })
    list.add(std::string("augment ") + size.label,
             [&](Case& c) {
               const Tensor images =
                   input(c, "images", {DType::u8, size.images}, {Fill::Kind::pixels});
               const Tensor rows = input(c, "rows", row_plans_type(size.rows),
                                         {Fill::Kind::plans, static_cast<double>(size.images[0])});
               augment(images, rows, size.plan, size.out);
             })
        .heavy = size.heavy;
}

const Folder pixels_cases("pixels", add_pixels);

}  // namespace
}  // namespace warpstep::cases::pixels_cases
