# WARPSTEP_CUDA=AUTO|ON|OFF: whether the CUDA backend is built, with the language, toolkit and flags it needs.
# AUTO builds it if nvcc, CUDA 13 and cuDNN 9 are found, and otherwise says what is missing. Sets WARPSTEP_HAS_CUDA.
set(WARPSTEP_CUDA AUTO CACHE STRING "Build the CUDA backend: AUTO, ON or OFF")
set_property(CACHE WARPSTEP_CUDA PROPERTY STRINGS AUTO ON OFF)
# One architecture keeps development builds short; the release-cuda preset lists all architectures of a release.
warpstep_default(CMAKE_CUDA_ARCHITECTURES STRING 90-real "GPU architectures to compile kernels for")
set(WARPSTEP_HAS_CUDA OFF)

macro(warpstep_without_cuda why)
  if(WARPSTEP_CUDA STREQUAL "ON")
    message(FATAL_ERROR "WARPSTEP_CUDA=ON, but ${why}")
  endif()
  message(STATUS "CUDA backend: not built, ${why}")
  return()
endmacro()

if(WARPSTEP_CUDA STREQUAL "OFF")
  warpstep_without_cuda("WARPSTEP_CUDA=OFF")
endif()
if(WARPSTEP_SANITIZE)
  warpstep_without_cuda("sanitizers see its kernels in the emulated backend instead")
endif()
if(CMAKE_VERSION VERSION_LESS 3.26)  # older CMake does not know that nvcc 12 and later accept -std=c++20
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
endif()
include(WarpstepNvcc)
warpstep_find_nvcc()
if(NOT CMAKE_CUDA_COMPILER)
  warpstep_without_cuda("there is no nvcc (set CMAKE_CUDA_COMPILER or PATH)")
endif()
find_package(CUDAToolkit QUIET)
if(NOT CUDAToolkit_FOUND OR CUDAToolkit_VERSION VERSION_LESS 13.0)
  warpstep_without_cuda("CUDA 13.0 or later is needed, found ${CUDAToolkit_VERSION}")
endif()
find_package(CUDNN 9 QUIET)
if(NOT CUDNN_FOUND)
  warpstep_without_cuda("cuDNN 9 is needed (set CUDNN_ROOT), found ${CUDNN_VERSION}")
endif()

if(CCACHE_PROGRAM AND NOT CMAKE_CUDA_COMPILER_LAUNCHER)
  set(CMAKE_CUDA_COMPILER_LAUNCHER "${WARPSTEP_COMPILER_LAUNCHER}")
endif()
set(CMAKE_CUDA_RUNTIME_LIBRARY Shared)  # the module and the libraries it uses share one runtime
enable_language(CUDA)
set(CMAKE_CUDA_STANDARD 20)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
set(CMAKE_CUDA_EXTENSIONS OFF)
set(WARPSTEP_HAS_CUDA ON)
message(STATUS "CUDA backend: CUDA ${CUDAToolkit_VERSION}, cuDNN ${CUDNN_VERSION}, "
               "architectures ${CMAKE_CUDA_ARCHITECTURES}")

# Options for our kernels: a register spill is an error in optimised builds. No -Wpedantic: it warns about nvcc's line markers.
add_library(warpstep_cuda_options INTERFACE)
set(host_warnings -Wall,-Wextra,-Wconversion,-Wshadow,-Wno-missing-field-initializers)
target_compile_options(warpstep_cuda_options INTERFACE
  "$<$<COMPILE_LANGUAGE:CUDA>:-lineinfo;--compress-mode=size;-Xcompiler=${host_warnings}>"
  "$<$<AND:$<COMPILE_LANGUAGE:CUDA>,$<BOOL:${WARPSTEP_WERROR}>>:-Werror=all-warnings>"
  "$<$<AND:$<COMPILE_LANGUAGE:CUDA>,$<CONFIG:Release>>:-Xptxas=-warn-spills,-warn-lmem-usage,-Werror>")
