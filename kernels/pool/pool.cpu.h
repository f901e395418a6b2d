// What max and average pools on the CPU share: their extents, and how many channels a loop takes.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/stored.h"

namespace warpstep::cpu {

// A pool and its extents; x and y are d_x and d_y in the adjoint.
template <class Op>
struct Pool {
  Op op;
  std::int64_t images, height, width, out_height, out_width, channels;

  Pool(const Op& pool, const Shape& x, const Shape& y)
      : op(pool),
        images(x[0]),
        height(x[1]),
        width(x[2]),
        out_height(y[1]),
        out_width(y[2]),
        channels(x[3]) {}
  std::int64_t row() const { return width * channels; }
  std::int64_t out_row() const { return out_width * channels; }
  std::int64_t image() const { return height * row(); }
  std::int64_t out_image() const { return out_height * out_row(); }
};

// Positions or windows along one axis: [begin, end).
struct Reach {
  std::int64_t begin, end;
};
// The windows that have each of `in` positions.
template <class Op>
std::vector<Reach> reach_of(const Op& op, std::int64_t in, std::int64_t out) {
  std::vector<Reach> all;
  for (std::int64_t i = 0; i < in; ++i) {
    const std::int64_t at = i + op.padding;
    all.push_back(
        {at < op.window ? 0 : (at - op.window) / op.stride + 1, std::min(out, at / op.stride + 1)});
  }
  return all;
}

// The channels that a loop takes at once: at most a vector register, as the compiler would keep
// wider vectors in memory.
inline std::int64_t lanes_for(std::int64_t channels) {
  for (std::int64_t lanes = vector_lanes(); lanes >= 4; lanes /= 2)
    if (channels >= lanes) return lanes;
  return 1;
}

// Calls make.operator()<T, lanes>(name) with the lanes for these channels.
template <class T, class Make>
std::unique_ptr<Kernel> with_lanes(std::int64_t channels, Make make) {
  const std::int64_t lanes = lanes_for(channels);
  const std::string name = fmt::format("loops, {} channels at once", lanes);
  switch (lanes) {
    case 16: return make.template operator()<T, 16>(name);
    case 8: return make.template operator()<T, 8>(name);
    case 4: return make.template operator()<T, 4>(name);
    default: return make.template operator()<T, 1>(name);
  }
}
template <class Make>
std::unique_ptr<Kernel> with_lanes(DType dtype, std::int64_t channels, Make make) {
  return with_stored(dtype, [&]<class T>() { return with_lanes<T>(channels, make); });
}

}  // namespace warpstep::cpu
