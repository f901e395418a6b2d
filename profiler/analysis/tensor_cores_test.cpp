#include <gtest/gtest.h>

#include "profiler/analysis/device.h"

namespace warpstep::profiler {
namespace {

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
        "first_layer_wgrad_kernel", "_5x_cudnn_volta_hmma_nhwc_conv1x1"));

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
}  // namespace warpstep::profiler
