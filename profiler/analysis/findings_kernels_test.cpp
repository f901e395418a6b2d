#include <gmock/gmock.h>

#include "profiler/analysis/testing_findings.h"

namespace warpstep::profiler {
namespace {

using testing::Case;
using ::testing::HasSubstr;

// A convolution and an addition; the convolution takes `share` of the calls' time.
Case with_convolution(double share, const std::string& precision) {
  Case c;
  c.options()["precision"] = precision;
  c.analysis.devices[0].tensor_core_share = 0;
  c.analysis.work.calls = {
      {.call = 0, .title = "conv1/conv", .op = "conv", .phase = "forward", .ns = 1e6 * share},
      {.call = 1, .title = "add", .op = "add", .phase = "forward", .ns = 1e6 * (1 - share)}};
  return c;
}

TEST(KernelFindings, IdleTensorCores) {
  EXPECT_FALSE(with_convolution(0.099, "fp32").finding("tensor-cores"));
  Case c = with_convolution(0.101, "fp32");
  ASSERT_TRUE(c.finding("tensor-cores"));
  EXPECT_EQ(c.finding("tensor-cores")->flag, "--precision bf16");
  EXPECT_NEAR(c.finding("tensor-cores")->gain_ns, 50'500, 1);
  c.builder.raw().devices[0].compute_major = 7;
  EXPECT_EQ(c.finding("tensor-cores")->flag, "--precision fp16");
  c.builder.raw().devices[0].compute_major = 6;
  EXPECT_FALSE(c.finding("tensor-cores"));
}

TEST(KernelFindings, DoNotAdvisePrecisionThatIsSet) {
  for (const char* const precision : {"bf16", "fp16"}) {
    Case c = with_convolution(0.9, precision);
    EXPECT_FALSE(c.finding("tensor-cores")) << precision;
    EXPECT_FALSE(c.finding("half-precision")) << precision;
  }
}

TEST(KernelFindings, HalfPrecisionWhereTensorCoresRun) {
  Case c = with_convolution(0.8, "tf32");
  c.analysis.devices[0].tensor_core_share = 0.05;
  EXPECT_FALSE(c.finding("tensor-cores"));
  ASSERT_TRUE(c.finding("half-precision"));
  EXPECT_NEAR(c.finding("half-precision")->gain_ns, 200'000, 1);
  c.analysis.devices[0].tensor_core_share = 0.049;
  EXPECT_TRUE(c.finding("tensor-cores"));
}

TEST(KernelFindings, UnalignedChannels) {
  Case c;
  const auto call = [&](double ns) {
    c.analysis.work.calls = {{.title = "conv1/conv",
                              .op = "conv",
                              .phase = "forward",
                              .ns = ns,
                              .tensor_cores = "no: channels are not multiples of 8"}};
  };
  call(50'000);
  EXPECT_FALSE(c.finding("unaligned-channels"));
  call(50'001);
  ASSERT_TRUE(c.finding("unaligned-channels"));
  EXPECT_THAT(c.finding("unaligned-channels")->evidence,
              HasSubstr("conv1/conv forward (channels are not multiples of 8)"));
  c.analysis.work.calls[0].tensor_cores = "yes";
  EXPECT_FALSE(c.finding("unaligned-channels"));
}

TEST(KernelFindings, LayoutTransposes) {
  Case c;
  c.analysis.work.kernels = {{.kernel = "void cudnn::nchwToNhwcKernel<...>", .count = 10},
                             {.kernel = "gemm", .count = 10, .total_ns = 9'000'000}};
  c.analysis.work.kernels[0].total_ns = 500'000;  // of ten steps
  EXPECT_FALSE(c.finding("layout-transposes"));
  c.analysis.work.kernels[0].total_ns = 500'010;
  ASSERT_TRUE(c.finding("layout-transposes"));
  EXPECT_EQ(c.finding("layout-transposes")->flag, "--autotune");
  EXPECT_DOUBLE_EQ(c.finding("layout-transposes")->gain_ns, 50'001);
  c.options()["autotune"] = true;
  EXPECT_EQ(c.finding("layout-transposes")->flag, "");
  Case host(false);
  host.analysis.work.calls = {{.title = "conv1/reorder", .op = "reorder", .ns = 60'000}};
  ASSERT_TRUE(host.finding("layout-transposes"));
  EXPECT_THAT(host.finding("layout-transposes")->evidence, HasSubstr("conv1/reorder"));
}

TEST(KernelFindings, StormOfSmallKernels) {
  Case c;
  const auto kernels = [&](std::uint64_t count, double mean_us) {
    c.analysis.work.kernels = {
        {.kernel = "k",
         .count = 10 * count,
         .total_ns = static_cast<std::uint64_t>(10'000 * mean_us * static_cast<double>(count))}};
    return c.finding("small-kernels").has_value();
  };
  EXPECT_TRUE(kernels(100, 4.9));
  EXPECT_FALSE(kernels(99, 4.9));
  EXPECT_FALSE(kernels(100, 5));
  EXPECT_FALSE(kernels(100, 0.99));  // too little of the step
  EXPECT_TRUE(kernels(100, 1.01));
  EXPECT_TRUE(kernels(120, 4));
  EXPECT_EQ(c.finding("small-kernels")->flag, "--batch 256");
  EXPECT_DOUBLE_EQ(c.finding("small-kernels")->gain_ns, 120'000);
  EXPECT_EQ(c.finding("small-kernels")->evidence, "120 kernels a step of 4.00 us on average");
  c.options()["no_fuse"] = {"bias"};
  EXPECT_EQ(c.finding("small-kernels")->flag, "");
  EXPECT_EQ(c.finding("small-kernels")->advice,
            "leave out --no-fuse: fused calls are fewer kernels");
}

TEST(KernelFindings, SlowLayerIsToldWithoutAFlag) {
  for (const bool gpu : {true, false}) {
    Case c(gpu);
    const auto layer = [&](double ns, double of_peak) {
      c.analysis.work.layers = {{.layer = "fc", .ns = ns, .of_peak = of_peak}};
      return c.finding("slow-layer");
    };
    EXPECT_FALSE(layer(199'999, 0.1));
    EXPECT_FALSE(layer(200'000, 0.2));
    EXPECT_FALSE(layer(200'000, 0));  // not known
    ASSERT_TRUE(layer(200'000, 0.199));
    EXPECT_EQ(layer(200'000, 0.1)->flag, "");
    EXPECT_EQ(layer(200'000, 0.1)->gain_ns, 0);
  }
}

}  // namespace
}  // namespace warpstep::profiler
