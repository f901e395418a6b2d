// Division by a number that is known at the launch: a multiplication, an addition and a shift in
// place of the about 20 instructions of a division by a variable.
#pragma once

#include <cstdint>

namespace warpstep::cuda {

// Exact for n and divisors below 2^31: with 2^shift >= divisor > 2^(shift - 1), magic is
// ceil(2^32 (2^shift - divisor) / divisor) or one more, and n magic / 2^32 + n does not wrap.
// Granlund and Montgomery, Division by Invariant Integers using Multiplication, 1994.
class Divider {
 public:
  explicit Divider(std::uint32_t by) : divisor_(by) {
    while ((std::uint64_t{1} << shift_) < by) ++shift_;
    magic_ = static_cast<std::uint32_t>(
        ((std::uint64_t{1} << 32) * ((std::uint64_t{1} << shift_) - by)) / by + 1);
  }

  __device__ std::uint32_t divisor() const { return divisor_; }
  __device__ std::uint32_t quotient(std::uint32_t n) const {
    return (static_cast<std::uint32_t>((std::uint64_t{n} * magic_) >> 32) + n) >> shift_;
  }
  // Returns the quotient and leaves the remainder in `n`.
  __device__ std::uint32_t split(std::uint32_t& n) const {
    const std::uint32_t q = quotient(n);
    n -= q * divisor_;
    return q;
  }

 private:
  std::uint32_t divisor_, magic_ = 0, shift_ = 0;
};

}  // namespace warpstep::cuda
