#include "engine/graph/ops/op.h"

#include <algorithm>

#include "engine/core/error.h"

namespace warpstep {

double bytes_of(const Types& types) {
  double bytes = 0;
  for (const Type& type : types) bytes += static_cast<double>(type.bytes());
  return bytes;
}

double row_count(const Shape& x) {
  return static_cast<double>(x.count() / std::max<std::int64_t>(1, x.back()));
}

void add_column_sums(Cost& cost, const Shape& x) {
  cost.flops += static_cast<double>(x.count());
  cost.depth += static_cast<double>(x.count() / std::max<std::int64_t>(1, x.back()));
}

void require_inputs(std::string_view op, const Types& in, std::size_t least, std::size_t most) {
  if (in.size() >= least && in.size() <= most) return;
  if (least == most) fail<ShapeError>("{} takes {} inputs, not {}", op, least, in.size());
  fail<ShapeError>("{} takes {} to {} inputs, not {}", op, least, most, in.size());
}

void require_same_dtype(std::string_view op, const Type& x, const Type& weight) {
  if (x.dtype != weight.dtype)
    fail<ShapeError>("{} of {} needs a weight in {}, got {}", op, x.text(), name(x.dtype),
                     weight.text());
}

}  // namespace warpstep
