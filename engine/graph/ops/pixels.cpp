#include "engine/graph/ops/pixels.h"

#include "engine/core/error.h"

namespace warpstep {

void require_row_plans(std::string_view op, const Type& type, std::int64_t rows) {
  if (type != row_plans_type(rows))
    fail<ShapeError>("{} needs one plan per row, {}, got {}", op, row_plans_type(rows).text(),
                     type.text());
}

Types infer(const Augment& op, const Types& in) {
  require_inputs(op.name, in, 2, 2);
  const int channels = op.plan.channels;
  if (channels < 1 || channels > 3)
    fail<ShapeError>("augment: the plan is for {} channels; 1 to 3 are possible", channels);
  if (in[0].dtype != DType::u8 || in[0].shape.rank() != 4 || in[0].shape[3] != channels)
    fail<ShapeError>("augment takes u8 images [any,H,W,{}] for this plan, not {}", channels,
                     in[0].text());
  if (op.out.height < 1 || op.out.width < 1)
    fail<ShapeError>("augment: the output is {}x{} pixels; each side must be at least 1",
                     op.out.height, op.out.width);
  if (in[1].shape.rank() != 2)
    fail<ShapeError>("augment needs one plan per row, got {}", in[1].text());
  require_row_plans(op.name, in[1], in[1].shape[0]);
  return {{op.dtype, {in[1].shape[0], op.out.height, op.out.width, channels}}};
}

// The images may be a whole data set: what is read of them is a pixel for each that is made, or
// two.
Cost cost(const Augment& op, const Types& in, const Types& out) {
  const double elements = static_cast<double>(out[0].shape.count());
  const double channels = op.plan.channels, images = op.plan.mix ? 2 : 1;
  return {images * elements * (2 + 2 * channels) + (op.plan.mix ? 3 * elements : 0),
          images * elements + bytes_of({in[1], out[0]}), channels + 2};
}

std::string text(const Augment& op) {
  std::string text = fmt::format("affine {}x{}", op.plan.channels, op.plan.channels + 1);
  if (op.plan.mask_threshold > 0)
    text += fmt::format(", mask {:.3g}{}", op.plan.mask_threshold / 65536.0,
                        op.plan.dilate ? " dilated" : "");
  if (op.plan.mix) text += ", mix";
  return text;
}

}  // namespace warpstep
