# tools/gpu_check and the tests that it runs.
find_package(Python3 REQUIRED COMPONENTS Interpreter)
if(NOT WARPSTEP_SANITIZE)  # Python with programs that stand in for those of a device
  add_test(NAME tools/check COMMAND Python3::Interpreter -B "${PROJECT_SOURCE_DIR}/tools/check_test.py")
  add_test(NAME tools/gpu_check COMMAND Python3::Interpreter -B "${PROJECT_SOURCE_DIR}/tools/gpu/check_test.py")
  add_test(NAME tools/gpu_check_cut COMMAND Python3::Interpreter -B "${PROJECT_SOURCE_DIR}/tools/gpu/cut_test.py")
  set_tests_properties(tools/check PROPERTIES LABELS host TIMEOUT 120)
  set_tests_properties(tools/gpu_check tools/gpu_check_cut PROPERTIES LABELS host TIMEOUT 300 COST 30)
endif()

# Tier gpu: the CUDA backend on a device, mostly the programs of other tiers on the backend "cuda". They are built if
# nvcc is found, start without a driver, and skip their tests without a device. tools/gpu_check runs all of them.
if(NOT WARPSTEP_HAS_CUDA)
  return()
endif()
# Each test is a process with a context of about 500 MB on the device: fewer at once than there are cores.
set(few_at_once PROPERTIES PROCESSORS 4)

function(warpstep_gpu_test name)
  warpstep_test(${name} TIER gpu BACKEND cuda TIMEOUT 600 ${few_at_once} ${ARGN})
  set_property(GLOBAL APPEND PROPERTY WARPSTEP_GPU_TESTS ${name})
endfunction()

warpstep_gpu_test(op_cuda_test LINK op_tests warpstep_trial)
warpstep_gpu_test(model_cuda_test LINK cuda_model_tests)
warpstep_gpu_test(statistics_cuda_test LINK statistics_tests)
warpstep_gpu_test(parity_cuda_test LINK parity_tests)
warpstep_gpu_test(precision_spread_cuda_test LINK precision_spread_tests)
warpstep_gpu_test(plan_choice_cuda_test SOURCES plan_choice_test.cpp LINK warpstep_trial)

# The kernels' launchers, as nvcc compiled them for the backend, without cuDNN and cublasLt, which take tenths of a second
# to load.
set(kernels "${PROJECT_SOURCE_DIR}/kernels")
set(objects "[.]cuda[.]cu[.]o|/cuda/(assumed_devices|check|device|dispatch|runtime)[.]cpp[.]o|/rule[.]cuda[.]cpp[.]o")
warpstep_gpu_test(kernels_cuda_test
  SOURCES ${kernels}/pointwise/pointwise_cuda_test.cpp ${kernels}/pool/pool_cuda_test.cpp
          ${kernels}/pool/avg_pool_cuda_test.cpp ${kernels}/norm/norm_grad_cuda_test.cpp
          ${kernels}/norm/norm_cuda_test.cpp ${kernels}/dropout/dropout_cuda_test.cpp
          ${kernels}/loss/loss_cuda_test.cpp ${kernels}/update/update_cuda_test.cpp
          ${kernels}/conv/narrow_cuda_test.cpp ${kernels}/linear/few_cuda_test.cpp
          device_memory.cuda.cpp needs_device.cuda.cpp "$<FILTER:$<TARGET_OBJECTS:warpstep_cuda>,INCLUDE,${objects}>"
  LINK warpstep::engine CUDA::cudart)
set_target_properties(kernels_cuda_test PROPERTIES UNITY_BUILD OFF)  # every file has its shapes()
