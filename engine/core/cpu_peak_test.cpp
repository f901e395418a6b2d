#include "engine/core/cpu_peak.h"

#include <gtest/gtest.h>

#include "engine/core/cpu_isa.h"

namespace warpstep {
namespace {

TEST(CpuPeak, IsThatOfAnyCpu) {
  EXPECT_EQ(measure_peak_flops(0, false), 0);
  const double one = measure_peak_flops(1, false);
  EXPECT_GT(one, 1e8);
  EXPECT_LT(one, 1e13);
  const CpuIsa isa = cpu_isa();
  const double lanes = isa == CpuIsa::avx512 ? 16 : isa == CpuIsa::avx2 ? 8 : 4;
  const double chains = multiply_adds(false).flops / (2 * lanes);
  EXPECT_GE(chains, 12);
  EXPECT_EQ(multiply_adds(false).run(1, 100), chains + 1) << "ones: of the first chain twice";
}

}  // namespace
}  // namespace warpstep
