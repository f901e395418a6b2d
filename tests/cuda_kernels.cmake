# The CUDA kernels' launchers over the emulated grid, each against plain loops. On a GPU the same sources test what nvcc
# makes of the kernels.
if(NOT TARGET emulated_runtime)
  return()
endif()
set(kernels "${PROJECT_SOURCE_DIR}/kernels")
file(GLOB kernel_sources CONFIGURE_DEPENDS "${kernels}/*/*.cuda.cu")
warpstep_emulated(emulated_kernels ${kernel_sources} "${kernels}/cuda/dispatch.cpp" "${kernels}/update/rule.cuda.cpp")
foreach(folder dropout norm pixels pointwise pool loss update)
  file(GLOB folder_tests CONFIGURE_DEPENDS "${kernels}/${folder}/*_cuda_test.cpp")
  warpstep_test(${folder}_cuda_test TIER cuda-on-cpu
                SOURCES ${folder_tests} device_memory.cuda.cpp
                LINK emulated_kernels emulated_runtime warpstep_emulated_link)
endforeach()
