# The CUDA kernels' launchers on the emulated grid, each compared with plain loops. On a GPU the same sources test the
# kernels as nvcc compiles them.
if(NOT TARGET emulated_runtime)
  return()
endif()
set(kernels "${PROJECT_SOURCE_DIR}/kernels")
file(GLOB kernel_tests CONFIGURE_DEPENDS "${kernels}/*/*_cuda_test.cpp")
warpstep_test(kernels_emulated_test TIER cuda-on-cpu SOURCES ${kernel_tests} device_memory.cuda.cpp
              ASAN_FILTER "-InSixteenBits/*/bf16" TSAN_FILTER "-InSixteenBits/*/bf16"
              LINK emulated_kernels emulated_runtime warpstep_emulated_link)
set_target_properties(kernels_emulated_test PROPERTIES UNITY_BUILD OFF)  # every file has its shapes()
