#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "profiler/analysis/analysis.h"
#include "profiler/analysis/device.h"
#include "profiler/analysis/testing_goldens.h"
#include "profiler/session/testing_builder.h"

namespace warpstep::profiler {
namespace {

using testing::SessionBuilder;

TEST(DeviceMetrics, AgreesWithTorchOnFourSteps) {
  const std::vector<DeviceMetrics> all =
      device_metrics(testing::four_steps(), {.tb_compatible = true});
  ASSERT_EQ(all.size(), 1U);
  EXPECT_EQ(all[0].name, "NVIDIA H200");
  EXPECT_TRUE(all[0].of_windows);
  EXPECT_DOUBLE_EQ(all[0].utilization, 1200.0 / 3900);
  EXPECT_NEAR(all[0].sm_efficiency, 0.20513, 1e-5);
  EXPECT_NEAR(all[0].occupancy, 0.37333, 1e-5);
  EXPECT_NEAR(all[0].tensor_core_share, 2.0 / 3, 1e-12);
  EXPECT_DOUBLE_EQ(all[0].copy_share, 160.0 / 3900);
  EXPECT_EQ(all[0].bucket_ns, 100'000U);
  ASSERT_EQ(all[0].timeline.size(), 39U);
  EXPECT_DOUBLE_EQ(all[0].timeline[3], 0.6);
  EXPECT_DOUBLE_EQ(all[0].timeline[4], 1.0);
}

TEST(DeviceMetrics, AgreesWithTorchOnTheSmallestTrace) {
  const std::vector<DeviceMetrics> all = device_metrics(testing::smallest_trace());
  ASSERT_EQ(all.size(), 1U);
  EXPECT_NEAR(all[0].utilization, 0.2222, 1e-4);
  EXPECT_NEAR(all[0].sm_efficiency, 0.1111, 1e-4);
  EXPECT_DOUBLE_EQ(all[0].occupancy, 0.0625);  // torch has 6 %, rounded
  EXPECT_DOUBLE_EQ(all[0].tensor_core_share, 1);
}

TEST(DeviceMetrics, KernelsSideBySideFillAMultiprocessorOnlyOnce) {
  SessionBuilder builder;
  builder.gpu().step(1, 0, 100).window(1, 1, 0, 100, true);
  for (const double begin : {0.0, 25.0, 25.0}) {
    builder.launch(0, 0, What::kernel, "k", begin, 50);
    builder.last_activity().grid = {66, 1, 1};
    builder.last_activity().block = {256, 1, 1};
  }
  const DeviceMetrics metrics = device_metrics(builder.build())[0];
  EXPECT_DOUBLE_EQ(metrics.utilization, 0.5);
  EXPECT_DOUBLE_EQ(metrics.sm_efficiency, 0.25 * 0.5 + 0.25);  // 1.5 blocks count as 1
}

TEST(DeviceMetrics, TellsLateLaunchesFromOtherGaps) {
  SessionBuilder builder;
  builder.gpu().step(1, 0, 100).step(2, 100, 200).window(1, 2, 0, 200, true);
  builder.launch(0, 5, What::kernel, "a", 10, 20);
  builder.launch(6, 8, What::kernel, "b", 30, 40);      // launched in time: 10 us
  builder.launch(60, 65, What::kernel, "c", 70, 80);    // 30 us after the device had run dry
  builder.launch(80, 81, What::kernel, "d", 75, 80);    // overlaps
  builder.launch(90, 91, What::kernel, "e", 120, 130);  // over the boundary of steps
  const DeviceMetrics metrics = device_metrics(builder.build())[0];
  EXPECT_EQ(metrics.launch_gap_ns, 70'000U);
  EXPECT_EQ(metrics.other_gap_ns, 10'000U);
}

// cublasLt's kernels: only the correlations of the launches around it say when it was launched.
TEST(DeviceMetrics, KnowsLateLaunchesWithoutARecord) {
  const auto late_gap = [](double next_launch) {
    SessionBuilder builder;
    builder.gpu().step(1, 0, 200).window(1, 1, 0, 200, true);
    builder.launch(0, 5, What::kernel, "a", 10, 20).launch(50, 60, What::kernel, "nvjet", 70, 80);
    builder.launch(next_launch, next_launch + 5, What::kernel, "b", 90, 100);
    std::erase_if(builder.raw().activities, [](const Activity& activity) {
      return activity.what == What::api && activity.start_ns == SessionBuilder::at(50);
    });
    return device_metrics(builder.build())[0].launch_gap_ns;
  };
  EXPECT_EQ(late_gap(8), 0U) << "before a ended: the gaps are the device's";
  EXPECT_EQ(late_gap(65), 50'000U);
  EXPECT_EQ(late_gap(85), 60'000U) << "no later launch was made when nvjet began; b came late, too";
}

TEST(DeviceMetrics, ALaunchThatWaitedForDataIsNotLate) {
  SessionBuilder builder;
  builder.gpu().step(1, 0, 100).window(1, 1, 0, 100, true);
  builder.launch(0, 5, What::kernel, "a", 10, 20);
  builder.launch(75, 80, What::kernel, "b", 80, 90);
  EXPECT_EQ(device_metrics(builder.build())[0].launch_gap_ns, 60'000U);
  builder.span(Kind::wait, "wait for data", 15, 70);
  EXPECT_EQ(device_metrics(builder.build())[0].launch_gap_ns, 10'000U);
}

// A checkpoint of 9 ms between two steps that follow each other, with copies and a kernel.
TEST(DeviceMetrics, LeavesOutTheTimeBetweenSteps) {
  SessionBuilder builder;
  builder.gpu()
      .step(1, 0, 100)
      .step(2, 9100, 9200)
      .window(1, 2, 0, 9200, true)
      .launch(0, 1, What::kernel, "k", 10, 100)
      .launch(5000, 5001, What::kernel, "k", 5010, 5020)
      .launch(9100, 9101, What::kernel, "k", 9120, 9200);
  const DeviceMetrics metrics = device_metrics(builder.build()).at(0);
  EXPECT_DOUBLE_EQ(metrics.utilization, 0.85);
  EXPECT_EQ(metrics.launch_gap_ns + metrics.other_gap_ns, 20'000U);
}

TEST(DeviceMetrics, LeavesOutTheTimeBetweenWindows) {
  SessionBuilder builder;
  builder.gpu()
      .step(1, 0, 100)
      .step(2, 100, 9100)
      .step(3, 9100, 9200)
      .window(1, 1, 0, 100, true)
      .window(3, 3, 9100, 9200, true)
      .launch(0, 1, What::kernel, "k", 50, 150)
      .launch(0, 1, What::kernel, "k", 9000, 9150);
  const DeviceMetrics metrics = device_metrics(builder.build())[0];
  EXPECT_DOUBLE_EQ(metrics.utilization, 0.5);
  EXPECT_EQ(metrics.bucket_ns, 10'000U);
  ASSERT_EQ(metrics.timeline.size(), 20U);
  EXPECT_DOUBLE_EQ(metrics.timeline[4], 0);
  EXPECT_DOUBLE_EQ(metrics.timeline[5], 1);
  EXPECT_DOUBLE_EQ(metrics.timeline[14], 1);
  EXPECT_DOUBLE_EQ(metrics.timeline[15], 0);
}

TEST(DeviceMetrics, OfAHostCountsCalls) {
  SessionBuilder builder;
  builder.step(1, 0, 100)
      .window(1, 1, 0, 100)
      .span(Kind::call, "conv1", 10, 40)
      .span(Kind::call, "fc", 50, 60);
  builder.raw().stamp = {{"host", {{"cpu", {{"model", "Xeon"}}}}}};
  const std::vector<DeviceMetrics> all = device_metrics(builder.build());
  ASSERT_EQ(all.size(), 1U);
  EXPECT_EQ(all[0].name, "Xeon");
  EXPECT_DOUBLE_EQ(all[0].utilization, 0.4);
  EXPECT_EQ(all[0].sm_efficiency, 0);
  EXPECT_EQ(all[0].other_gap_ns, 10'000U);
}

TEST(DeviceMetrics, OfNothingIsZero) {
  EXPECT_EQ(device_metrics(Session{})[0].utilization, 0);
  SessionBuilder builder;
  builder.gpu().step(1, 10, 10).window(1, 1, 0, 20, true).launch(0, 1, What::kernel, "k", 0, 20);
  EXPECT_EQ(device_metrics(builder.build())[0].utilization, 0);
}

Device h200() {
  return testing::SessionBuilder().gpu().raw().devices[0];
}

// By compute capability, as NVIDIA's programming guide lists them.
Device device(std::uint32_t major, std::uint32_t minor) {
  Device d = h200();
  d.compute_major = major;
  d.compute_minor = minor;
  const auto set = [&](std::uint32_t threads, std::uint32_t blocks, std::uint64_t optin,
                       std::uint64_t shared) {
    d.max_threads_per_multiprocessor = threads;
    d.max_blocks_per_multiprocessor = blocks;
    d.shared_per_block_optin = optin;
    d.shared_per_multiprocessor = shared;
  };
  if (major == 7) {
    set(1024, 16, 65536, 65536);
    d.reserved_shared_per_block = 0;
  }
  if (major == 8 && minor == 0) set(2048, 32, 166912, 167936);
  if (major == 8 && minor == 6) set(1536, 16, 101376, 102400);
  if (major == 12) set(1536, 24, 101376, 102400);
  return d;
}

struct Row {
  std::uint32_t major, minor, block, registers, shared;
  int blocks;
};

// Drawn launches with the answers of CUDA 13's cuda_occupancy.h (opt-in limit); 3.6 million others
// agreed as well.
constexpr Row rows[] = {
    {7, 5, 512, 104, 7208, 1},   {7, 5, 32, 73, 39936, 1},    {7, 5, 96, 160, 23365, 2},
    {7, 5, 103, 74, 21042, 3},   {7, 5, 896, 40, 65866, 0},   {7, 5, 348, 229, 16554, 0},
    {8, 0, 832, 56, 13297, 1},   {8, 0, 446, 8, 12893, 4},    {8, 0, 224, 128, 36702, 2},
    {8, 0, 939, 16, 158154, 1},  {8, 0, 32, 120, 0, 16},      {8, 0, 693, 276, 73728, 0},
    {8, 6, 736, 24, 27539, 2},   {8, 6, 128, 104, 18778, 4},  {8, 6, 96, 253, 73028, 1},
    {8, 6, 224, 64, 0, 4},       {9, 0, 111, 74, 17281, 6},   {9, 0, 17, 200, 5198, 8},
    {9, 0, 416, 6, 145483, 1},   {9, 0, 365, 168, 16895, 1},  {10, 0, 668, 32, 47766, 3},
    {10, 0, 256, 56, 7417, 4},   {10, 0, 512, 38, 218552, 1}, {10, 0, 128, 256, 44849, 2},
    {12, 0, 197, 16, 31419, 3},  {12, 0, 450, 12, 2430, 3},   {12, 0, 864, 0, 86016, 1},
    {12, 0, 152, 206, 52705, 1},
};

TEST(Occupancy, AgreesWithCudasCalculator) {
  for (const Row& row : rows) {
    const Launch launch{{1000, 1, 1}, {row.block, 1, 1}, row.registers, row.shared};
    EXPECT_EQ(occupancy(device(row.major, row.minor), launch).blocks, row.blocks)
        << row.major << "." << row.minor << " block " << row.block << " registers " << row.registers
        << " shared " << row.shared;
  }
}

TEST(Occupancy, CountsKernelsAboveTheOrdinarySharedMemory) {
  const Occupancy large = occupancy(h200(), {{264, 1, 1}, {128, 1, 1}, 168, 200 * 1024});
  EXPECT_EQ(large.blocks, 1);
  const Occupancy largest = occupancy(h200(), {{264, 1, 1}, {384, 1, 1}, 168, 227 * 1024});
  EXPECT_EQ(largest.blocks, 1);
  EXPECT_DOUBLE_EQ(largest.estimated, 0.1875);
  EXPECT_DOUBLE_EQ(largest.waves, 2);
  EXPECT_EQ(occupancy(h200(), {{264, 1, 1}, {128, 1, 1}, 32, 227 * 1024 + 1}).blocks, 0);
}

TEST(Occupancy, IsThatOfTheScarcest) {
  const Occupancy registers = occupancy(h200(), {{1056, 1, 1}, {256, 1, 1}, 64, 0});
  EXPECT_EQ(registers.blocks, 4);
  EXPECT_DOUBLE_EQ(registers.estimated, 0.5);
  const Occupancy full = occupancy(h200(), {{1024, 1, 1}, {256, 1, 1}, 32, 0});
  EXPECT_EQ(full.blocks, 8);
  EXPECT_NEAR(full.estimated, 0.9697, 1e-4);  // the grid has less than 8 a multiprocessor
  EXPECT_DOUBLE_EQ(occupancy(h200(), {{1056, 1, 1}, {256, 1, 1}, 32, 0}).estimated, 1);
  const Occupancy shared = occupancy(h200(), {{1024, 1, 1}, {512, 1, 1}, 40, 16384});
  EXPECT_EQ(shared.blocks, 3);
  EXPECT_DOUBLE_EQ(shared.estimated, 0.75);
  EXPECT_EQ(occupancy(h200(), {{10'000, 1, 1}, {32, 1, 1}, 16, 0}).blocks, 32);
}

TEST(Occupancy, OfImpossibleLaunchesIsZero) {
  EXPECT_EQ(occupancy(h200(), {}).blocks, 0);
  EXPECT_EQ(occupancy(Device{}, {{1, 1, 1}, {32, 1, 1}, 16, 0}).blocks, 0);
  const Occupancy huge = occupancy(h200(), {{~0U, ~0U, ~0U}, {~0U, ~0U, ~0U}, ~0U, ~0U});
  EXPECT_EQ(huge.blocks, 0);
  EXPECT_EQ(huge.estimated, 0);
}

class OnTensorCores : public ::testing::TestWithParam<const char*> {};
class OnOrdinaryUnits : public ::testing::TestWithParam<const char*> {};

TEST_P(OnTensorCores, IsKnownByName) {
  EXPECT_TRUE(uses_tensor_cores(GetParam())) << GetParam();
}
TEST_P(OnOrdinaryUnits, IsKnownByName) {
  EXPECT_FALSE(uses_tensor_cores(GetParam())) << GetParam();
}

INSTANTIATE_TEST_SUITE_P(
    Names, OnTensorCores,
    ::testing::Values(
        "volta_h884gemm_128x64_ldg8_nn", "volta_fp16_s884cudnn_fp16_128x128_ldg8_relu_f2f_nhwc_tn",
        "turing_fp16_s1688gemm_fp16_128x128_ldg8_f2f_tn", "turing_int8_i8816cudnn_int8_256x128",
        "ampere_fp16_s16816gemm_fp16_64x64_ldg8_f2f_nn", "ampere_bf16_s16816gemm_bf16_128x64",
        "ampere_int8_i16832gemm_int8_128x128_ldg16_f2f_tn",
        "sm90_xmma_fprop_implicit_gemm_f16f16_f16f32_f32_nhwckrsc_nhwc_tilesize128x128x64_"
        "warpgroupsize1x1x1_g1_execute_segment_k_off_kernel__5x_cudnn",
        "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize2x1x1_cublas",
        "sm80_xmma_dgrad_implicit_gemm_f16f16_f16f32_f32_nhwckrsc_nhwc_tilesize64x64x64_stage4_"
        "warpsize2x2x1_g1_tensor16x8x16_kernel",
        "sm80_xmma_wgrad_implicit_gemm_indexed_tf32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize128x128x16"
        "_stage4_warpsize2x2x1_g1_tensor16x8x8_kernel_cudnn",
        "nvjet_hsh_128x256_64x4_2x1_v_bz_coopA_NNT", "nvjet_tst_192x192_64x4_1x2_h_bz_coopB_TNT",
        "void cutlass::Kernel2<cutlass_80_wmma_tensorop_s161616gemm_f16_16x16_128x2_nn_align8>",
        "void cutlass::device_kernel<cutlass3x_sm90_tensorop_s64x128x16gemm_f16_f16_f32_f16_f16>",
        "void cutlass__5x_cudnn::Kernel<cutlass_tensorop_f16_s16816fprop_optimized_f16_128x128>",
        "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x64x128_4x1x1",
        "void flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128, 128, 4, false, false>>",
        "void pytorch_flash::flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<64>",
        "fmha_cutlassF_f16_aligned_64x64_rf_sm80(PyTorchMemEffAttention)",
        "fmha_v2_flash_attention_bf16_64_128_S_qkv_128_causal_tma_ws_sm90_kernel",
        "void wmma_matmul<__half>(__half const*)", "gemm_tcgen05_ws_bf16", "dgrad_1x1_stride_2x2",
        "first_layer_wgrad_kernel", "_5x_cudnn_volta_hmma_nhwc_conv1x1",
        "void warpstep::cuda::(anonymous namespace)::narrow_kernel<__half, 1, true, false>",
        "void warpstep::cuda::(anonymous namespace)::narrow_weight_kernel<__nv_bfloat16, 1, 2>",
        "void warpstep::cuda::(anonymous namespace)::stem_product_kernel<__half>",
        "void warpstep::cuda::(anonymous namespace)::stem_weight_kernel<__nv_bfloat16>"));

TEST(KernelNames, AreShortWithoutParametersAndOurNamespaces) {
  EXPECT_EQ(
      short_kernel_name("void warpstep::cuda::(anonymous namespace)::update_kernel<(warpstep::"
                        "cuda::UpdateRule::Kind)3, __half>(warpstep::cuda::UpdateRule, int)"),
      "update_kernel<(UpdateRule::Kind)3, __half>");
  EXPECT_EQ(short_kernel_name("warpstep::cuda::(anonymous namespace)::clock_kernel(long)"),
            "clock_kernel");
  EXPECT_EQ(short_kernel_name("void at::native::reduce_kernel<512, 1>(at::Tensor)"),
            "at::native::reduce_kernel<512, 1>");
  for (const char* plain : {"", "nvjet_sm90_hsh_64x32_64x16_1x2_h_bz_NNT", "Memcpy HtoD"})
    EXPECT_EQ(short_kernel_name(plain), plain);
}

INSTANTIATE_TEST_SUITE_P(
    Names, OnOrdinaryUnits,
    ::testing::Values(
        "", "void engine::relu_kernel<__half>(int, __half*)",
        "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>>",
        "void cudnn::ops::nchwToNhwcKernel<__half, __half, float, false, true, "
        "(cudnnKernelDataType_t)0>",
        "void cudnn::ops::nhwcToNchwKernel<float>", "void at::native::reduce_kernel<512, 1>",
        "void at::native::im2col_kernel<float>(long, float const*)", "ampere_sgemm_128x64_tn",
        "volta_sgemm_64x32_sliced1x4_nn", "maxwell_scudnn_128x32_relu_interior_nn_v1",
        "void cutlass::Kernel2<cutlass_80_simt_sgemm_128x128_8x4_nn_align1>(Params)",
        "ampere_scudnn_winograd_128x128_ldg1_ldg4_relu_tile148t_nt_v1",
        "void implicit_convolve_sgemm<float, float, 128, 5, 5, 3, 3, 3, 1, false>",
        "sm80_xmma_fprop_implicit_gemm_f32f32_f32f32_f32_nhwckrsc_nchw_tilesize128x128x8_stage3_"
        "warpsize2x2x1_g1_ffma_aligna4_alignc4_execute_kernel__5x_cudnn",
        "void cublasLt::splitKreduce_kernel<32, 16, int, float, __half, float, __half>",
        "void cudnn::cnn::conv2d_c1_k1_nhwc_kernel<__half, float, 3>",
        "void flash_bwd_dot_do_o_kernel<true>", "void flash_bwd_convert_dq_kernel<>",
        "void flash_fwd_splitkv_combine_kernel<>", "fmha_cutlassF_f32_aligned_64x64_rf_sm50",
        "void gemv2T_kernel_val<int, int, float, float, float>", "void digamma_kernel<float>",
        "simmatrix_kernel", "ncclDevKernel_AllReduce_Sum_f32_RING_LL"));

}  // namespace

// What a GPU's own counters said: figures, tables and warnings.

namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::SessionBuilder;

// Two windows of a step of 10 ms each, with samples at the end of each millisecond.
SessionBuilder sampled() {
  SessionBuilder builder;
  builder.gpu()
      .step(1, 0, 10'000)
      .step(2, 10'000, 20'000)
      .step(3, 20'000, 30'000)
      .window(1, 1, 0, 10'000)
      .window(3, 3, 20'000, 30'000);
  for (int i = 1; i <= 30; ++i) {
    const bool between = i > 10 && i <= 20;
    builder.sample("gpu 0 SM active %", 1000 * i, between ? 5 : 80);
    builder.sample("gpu 0 tensor pipe %", 1000 * i, between ? 5 : i <= 10 ? 30 : 50);
    builder.sample("gpu 1 DRAM %", 1000 * i, 99);
    builder.sample("gpu 0 utilisation %", 1000 * i, 100);
  }
  return builder;
}

TEST(Measured, AreMeansOverTheWindowsOfTheirDevice) {
  SessionBuilder builder = sampled();
  const Session session = builder.build();
  const MeasuredShares shares = measured_shares(session, 0);
  EXPECT_DOUBLE_EQ(shares.sm_active.value(), 0.8);
  EXPECT_DOUBLE_EQ(shares.tensor_pipe.value(), 0.4);
  EXPECT_FALSE(shares.dram.has_value());  // that was another GPU
  EXPECT_DOUBLE_EQ(measured_shares(session, 1).dram.value(), 0.99);
  EXPECT_FALSE(measured_shares(session, 2).any());
  EXPECT_DOUBLE_EQ(device_metrics(session).at(0).measured.tensor_pipe.value(), 0.4);
}

TEST(Measured, AreNotThereOutsideOfCompleteWindows) {
  SessionBuilder builder = sampled();
  for (Window& window : builder.raw().windows) window.complete = 0;
  EXPECT_FALSE(measured_shares(builder.build(), 0).any());
  EXPECT_FALSE(measured_shares(Session{}, 0).any());
}

Table devices(const Session& session) {
  Analysis analysis;
  analysis.devices = device_metrics(session);
  const std::vector<Table> all = tables(session, analysis);
  return *std::ranges::find(all, "devices", &Table::key);
}

std::string cell_of(const Table& table, const std::string& column) {
  const auto at = std::ranges::find(table.columns, column, &Column::key);
  if (at == table.columns.end()) return "no column";
  return shown(table.rows.at(0).at(static_cast<std::size_t>(at - table.columns.begin())), at->unit);
}

TEST(Measured, HaveColumnsBesideWhatGoesByNames) {
  SessionBuilder builder = sampled();
  Table table = devices(builder.build());
  EXPECT_EQ(cell_of(table, "tensor_pipe"), "40.0 %");
  EXPECT_EQ(cell_of(table, "sm_active"), "80.0 %");
  EXPECT_EQ(cell_of(table, "dram"), "-");
  EXPECT_EQ(cell_of(table, "tensor_core_share"), "-");  // no kernel was recorded: nobody knows
  EXPECT_EQ(cell_of(table, "utilization"), "-");
  builder.launch(0, 1, What::kernel, "hmma_gemm", 0, 5000);
  EXPECT_EQ(cell_of(devices(builder.build()), "tensor_core_share"), "100.0 %");
  builder.raw().samples.clear();
  table = devices(builder.build());
  EXPECT_EQ(cell_of(table, "tensor_pipe"), "no column");
  EXPECT_EQ(table.rows.at(0).size(), table.columns.size());
}

TEST(Measured, LockTheClocksAndTheReportSaysSo) {
  SessionBuilder builder = sampled();
  const auto notes = [&] { return find_trust(builder.build(), Breakdown{}).notes; };
  EXPECT_THAT(notes(), Not(Contains(HasSubstr("clocks"))));
  builder.raw().stamp["profiler"]["counters"] = "SM active %, DRAM %";
  EXPECT_THAT(notes(), Contains("PM sampling locked the GPU's clocks for --profile-counters (SM "
                                "active %, DRAM %): times differ from a run without it"));
}

}  // namespace
}  // namespace warpstep::profiler
