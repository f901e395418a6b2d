# The programs of tools/gpu_check: the target gpu_check_programs, and the install component gpu_check, a tree that needs
# only Python, CUDA 13 and cuDNN 9 on the machine with the GPU, no CMake and no packages:
#   cmake --preset release -DWARPSTEP_TESTS=ON && cmake --build --preset release --target gpu_check_programs
#   cmake --install build/release --prefix DIR --component gpu_check --strip
# The cpu backend is left out: GPU tests do not use it.
if(NOT WARPSTEP_TESTS OR NOT WARPSTEP_HAS_CUDA)
  return()
endif()
get_property(programs GLOBAL PROPERTY WARPSTEP_GPU_TESTS)
list(APPEND programs warpstep step_peer)
if(TARGET warpstep_bench)
  list(APPEND programs warpstep_bench)
endif()
set(shared_libraries warpstep_engine warpstep_models warpstep_data warpstep_profiler)
set(modules warpstep_ref warpstep_cuda)
add_custom_target(gpu_check_programs DEPENDS ${programs} ${modules})

# In a staged tree the backend, and programs with their own kernels, find CUDA's libraries where CUDA's installers put them.
set(cuda_folders /usr/local/cuda/lib64 /usr/local/cuda/lib "${CUDAToolkit_LIBRARY_DIR}")
list(REMOVE_DUPLICATES cuda_folders)
set_property(TARGET warpstep_cuda kernels_cuda_test custom_op_cuda_test custom_op_model_cuda_test APPEND PROPERTY INSTALL_RPATH ${cuda_folders})

set(staged COMPONENT gpu_check EXCLUDE_FROM_ALL)
install(TARGETS ${programs} ${shared_libraries} ${modules} RUNTIME_DEPENDENCY_SET gpu_check_dependencies
        RUNTIME DESTINATION bin ${staged} LIBRARY DESTINATION lib NAMELINK_SKIP ${staged})
# Libraries of the driver, of CUDA (cublasLt and cuDNN alone are 1 GB) and of the C runtime come from the target machine.
install(RUNTIME_DEPENDENCY_SET gpu_check_dependencies
        PRE_EXCLUDE_REGEXES "^libcuda[.]so" "^libcu(dart|dnn|blas|pti|rand)" "^libnv" "^libnccl" "^libwarpstep"
                            "^lib(c|m|dl|rt|pthread|util|gcc_s|stdc\\+\\+)[.]so" "^ld-linux"
        POST_EXCLUDE_REGEXES "^/usr/local/cuda"
        LIBRARY DESTINATION lib ${staged} RUNTIME DESTINATION bin ${staged})

# The scripts and the files that they and the tests read, at the same paths as in the repository.
install(PROGRAMS "${PROJECT_SOURCE_DIR}/tools/gpu_check" DESTINATION tools ${staged})
install(DIRECTORY "${PROJECT_SOURCE_DIR}/tools/gpu" DESTINATION tools ${staged}
        FILES_MATCHING PATTERN "*.py" PATTERN "*_test.py" EXCLUDE PATTERN "standins.py" EXCLUDE
        PATTERN "__pycache__" EXCLUDE)
install(DIRECTORY "${PROJECT_SOURCE_DIR}/bench/peers" DESTINATION bench ${staged}
        FILES_MATCHING PATTERN "*.py" PATTERN "__pycache__" EXCLUDE)
foreach(script ranks_test ranks_cuda_test ranks_gpu_test)
  install(FILES "${PROJECT_SOURCE_DIR}/tests/${script}.py" DESTINATION tests ${staged})
endforeach()
install(DIRECTORY "${PROJECT_SOURCE_DIR}/tests/golden" DESTINATION tests ${staged}
        FILES_MATCHING PATTERN "*.py" PATTERN "parity-*.json" PATTERN "__pycache__" EXCLUDE)
install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" DESTINATION . ${staged})
