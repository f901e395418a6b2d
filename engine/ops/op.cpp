#include "engine/ops/op.h"

#include "engine/core/error.h"

namespace warpstep {

double bytes_of(const Types& types) {
  double bytes = 0;
  for (const Type& type : types) bytes += static_cast<double>(type.bytes());
  return bytes;
}

void require_inputs(std::string_view op, const Types& in, std::size_t least, std::size_t most) {
  if (in.size() >= least && in.size() <= most) return;
  if (least == most) fail<ShapeError>("{} takes {} inputs, not {}", op, least, in.size());
  fail<ShapeError>("{} takes {} to {} inputs, not {}", op, least, most, in.size());
}

}  // namespace warpstep
