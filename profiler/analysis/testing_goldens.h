// Sessions whose answers torch_tb_profiler 0.4.3 has given, in us.
#pragma once

#include "profiler/session/testing_builder.h"

namespace warpstep::profiler::testing {

// A step of 50..450. `backward`: the thread of the backward pass and of what it launches, 0 or 1.
// Kernel 15, Memcpy 10, Memset 5, Runtime 30, DataLoader 180, CPU 35, Other 125.
inline Session all_categories(std::uint32_t backward) {
  SessionBuilder builder;
  builder.gpu()
      .thread(4243, "backward")
      .step(1, 50, 450)
      .window(1, 1, 50, 450, true)
      .span(Kind::wait, "data", 100, 280)
      .span(Kind::range, "to", 200, 260)
      .span(Kind::range, "nll_loss_backward", 340, 410, backward)
      .launch(360, 380, What::copy, "Memcpy HtoD (Pageable -> Device)", 405, 415)
      .launch(390, 400, What::set, "Memset (Device)", 420, 425)
      .launch(405, 410, What::kernel, "ClassNLLCriterion_updateGradInput_kernel", 430, 445);
  for (Activity& activity : builder.raw().activities)
    if (activity.what == What::api) activity.stream = 4242 + backward;
  return builder.build();
}

// 100 multiprocessors of 1600 threads: what the kernels below occupy is a round number there.
inline Device& small_gpu(SessionBuilder& builder) {
  Device& device = builder.gpu().raw().devices.back();
  device.multiprocessors = 100;
  device.max_threads_per_multiprocessor = 1600;
  return device;
}

// Four steps of 900 every 1000. Kernel 300, Memcpy 40, Memset 50, Runtime 30, DataLoader 200, CPU
// 70, Other 210; utilisation 1200/3900, SM efficiency 0.20513, occupancy 37.333 %.
inline Session four_steps() {
  SessionBuilder builder;
  small_gpu(builder);
  builder.thread(4301, "loader 0").thread(4302, "loader 1").window(1, 4, 0, 3900, true);
  for (int i = 0; i < 4; ++i) {
    const double s = i * 1000;
    builder.step(static_cast<std::uint64_t>(i + 1), s, s + 900)
        .span(Kind::wait, "data", s + 10, s + 210)
        .span(Kind::stage, "decode", s + 20, s + 170, 1)
        .span(Kind::stage, "decode", s + 25, s + 175, 2)
        .span(Kind::call, "upload", s + 220, s + 250, 0, 0)
        .launch(s + 225, s + 235, What::copy, "Memcpy HtoD (Pinned -> Device)", s + 240, s + 280,
                13, 1)
        .span(Kind::call, "conv1", s + 260, s + 360, 0, 1)
        .launch(s + 300, s + 320, What::kernel,
                "sm90_xmma_fprop_implicit_gemm_f16f16_f16f32_f32_nhwckrsc_nhwc_tilesize128x128x64_"
                "cudnn",
                s + 340, s + 540, 7, 2);
    builder.last_activity().grid = {50, 1, 1};
    builder.last_activity().block = {192, 1, 1};
    builder.span(Kind::call, "fc", s + 380, s + 430, 0, 2)
        .launch(s + 390, s + 400, What::kernel, "relu_kernel", s + 560, s + 660, 7, 3);
    builder.last_activity().grid = {500, 1, 1};
    builder.last_activity().block = {320, 1, 1};
    builder.span(Kind::call, "update", s + 500, s + 600, 0, 3)
        .launch(s + 510, s + 520, What::set, "Memset (Device)", s + 700, s + 750, 7, 4);
  }
  return builder.build();
}

// One step of 900. Kernel 200, Runtime 20, DataLoader 200, CPU 60, Other 420; utilisation 0.2222,
// SM efficiency 0.1111.
inline Session smallest_trace() {
  SessionBuilder builder;
  builder.gpu()
      .thread(4301, "loader 0")
      .step(1, 0, 900)
      .window(1, 1, 0, 900, true)
      .span(Kind::wait, "data", 10, 210)
      .span(Kind::stage, "decode", 20, 170, 1)
      .span(Kind::call, "conv1", 260, 360)
      .launch(300, 320, What::kernel, "sm90_xmma_gemm", 340, 540, 7, 1);
  builder.last_activity().grid = {66, 1, 1};
  builder.last_activity().block = {256, 1, 1};
  builder.last_activity().registers = 64;
  return builder.build();
}

}  // namespace warpstep::profiler::testing
