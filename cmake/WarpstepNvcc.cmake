# warpstep_find_nvcc(): sets CMAKE_CUDA_COMPILER if there is a CUDA compiler that works, on PATH or where CUDA is installed.
include(CheckLanguage)
macro(warpstep_find_nvcc)
  if(NOT CMAKE_CUDA_COMPILER)  # check_language() keeps that there was none; nvcc may have been installed since
    unset(CMAKE_CUDA_COMPILER CACHE)
    unset(CMAKE_CUDA_COMPILER)
    find_program(warpstep_nvcc nvcc PATHS /usr/local/cuda/bin NO_CACHE)
    if(warpstep_nvcc AND NOT DEFINED ENV{CUDACXX})
      set(ENV{CUDACXX} "${warpstep_nvcc}")
    endif()
    check_language(CUDA)
  endif()
endmacro()
