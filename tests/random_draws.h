// Numbers that a seed gives, for cases at extents that nobody chose.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>

#include "engine/core/random.h"
#include "engine/core/types.h"

namespace warpstep::testing_support {

class RandomDraws {
 public:
  RandomDraws(std::uint32_t seed, std::uint32_t stream) : seed_(seed), stream_(stream) {}

  std::uint32_t seed() const { return seed_; }
  std::int64_t drawn(std::int64_t below_this) {
    const std::uint32_t number = draw(seed_, Purpose::synthetic, stream_, draws_++)[0];
    return below(number, static_cast<std::uint32_t>(below_this));
  }
  bool coin() { return drawn(2) == 0; }
  std::int64_t from_to(std::int64_t first, std::int64_t last) {
    return first + drawn(last - first + 1);
  }
  std::int64_t one_of(std::initializer_list<std::int64_t> list) {
    return list.begin()[drawn(static_cast<std::int64_t>(list.size()))];
  }
  // Few, about as many as vectors or blocks have, or any.
  std::int64_t extent(std::int64_t most) {
    switch (drawn(3)) {
      case 0: return from_to(1, std::min<std::int64_t>(most, 40));
      case 1: return std::min(most, one_of({8, 16, 32, 64, 128, 256, 1024, 2048}) + from_to(-2, 2));
      default: return from_to(1, most);
    }
  }
  // A few images of up to `height` and `width` pixels.
  Type images(std::int64_t height, std::int64_t width, std::int64_t channels) {
    return {DType::f32, {from_to(1, 5), from_to(1, height), from_to(1, width), channels}};
  }

 private:
  std::uint32_t seed_, stream_, draws_ = 0;
};

}  // namespace warpstep::testing_support
