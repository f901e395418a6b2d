// Augmentation in double: each row of the batch by its own plan.
#include "kernels/ref/ref.h"

namespace warpstep::ref {
namespace {

struct Pixels {
  const Augment& op;
  Shape images, out;
  const std::uint8_t* bytes;
  const RowPlan* rows;

  bool covers(const RowPlan& row, std::int64_t i, std::int64_t j) const {
    const auto drawn = [&](std::int64_t y, std::int64_t x) {
      return y >= 0 && y < out[1] && x >= 0 && x < out[2] &&
             is_drawn(op.plan, row, static_cast<std::uint32_t>(y), static_cast<std::uint32_t>(x),
                      static_cast<std::uint32_t>(out[2]));
    };
    if (op.plan.mask_threshold == 0) return false;
    return drawn(i, j) || (op.plan.dilate && (drawn(i - 1, j) || drawn(i + 1, j) ||
                                              drawn(i, j - 1) || drawn(i, j + 1)));
  }

  // Channel `o` of output pixel (i, j) before mixing.
  double at(const RowPlan& row, std::int64_t i, std::int64_t j, std::int64_t o) const {
    const std::int64_t y = row.y + i, x = row.x + (row.mirrored != 0 ? out[2] - 1 - j : j);
    const bool inside = y >= 0 && y < images[1] && x >= 0 && x < images[2];
    const bool covered = covers(row, i, j);
    double sum = static_cast<double>(op.plan.shift[idx(o)]);
    for (std::int64_t c = 0; c < images[3]; ++c) {
      const std::int64_t pixel = (row.source * images[1] + y) * images[2] + x;
      const double byte = inside ? bytes[pixel * images[3] + c] : 0;
      if (!covered)
        sum += static_cast<double>(op.plan.m[idx(o)][idx(c)]) *
               (static_cast<double>(row.gain) * byte + static_cast<double>(row.offset));
    }
    return sum;
  }
};

}  // namespace

std::unique_ptr<Kernel> bind(const Augment& op, const Operands& operands) {
  return host_kernel(
      "loops", [op, images = operands.in_shape(0), out = operands.out_shape()](const Buffers& b) {
        const Pixels pixels{op, images, out, as<std::uint8_t>(b.in[0]), as<RowPlan>(b.in[1])};
        double* y = as<double>(b.out[0]);
        for (std::int64_t n = 0; n < out[0]; ++n)
          for (std::int64_t i = 0; i < out[1]; ++i)
            for (std::int64_t j = 0; j < out[2]; ++j)
              for (std::int64_t o = 0; o < out[3]; ++o, ++y) {
                const RowPlan& row = pixels.rows[n];
                *y = pixels.at(row, i, j, o);
                if (!op.plan.mix || row.weight >= 1) continue;
                const double z = pixels.at(pixels.rows[row.pair], i, j, o);
                if (!row.is_cut())
                  *y = static_cast<double>(row.weight) * (*y - z) + z;
                else if (row.is_cut_at(i, j))
                  *y = z;
              }
      });
}

}  // namespace warpstep::ref
