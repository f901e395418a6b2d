# find_package(warpstep COMPONENTS ops): for projects that add ops, see docs/custom-op.md. WARPSTEP_OPS_DIR has the
# sources of the generic op tests and benchmark; warpstep_CUDA says whether CUDA kernels are built.

# warpstep_op_library(NAME SOURCES ... [CUDA ...] [WITHOUT_CUDA ...]): a static library of ops and their kernels. The
# sources after CUDA are built if the package has the CUDA backend and nvcc is found, those after WITHOUT_CUDA otherwise.
function(warpstep_op_library name)
  cmake_parse_arguments(arg "" "" "SOURCES;CUDA;WITHOUT_CUDA" ${ARGN})
  add_library(${name} STATIC ${arg_SOURCES})
  target_include_directories(${name} PUBLIC "${CMAKE_CURRENT_SOURCE_DIR}")
  target_link_libraries(${name} PUBLIC warpstep::engine)
  set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE ON)  # for a plugin that links it
  if(NOT warpstep_CUDA)
    target_sources(${name} PRIVATE ${arg_WITHOUT_CUDA})
  elseif(arg_CUDA)
    target_sources(${name} PRIVATE ${arg_CUDA} "${WARPSTEP_OPS_DIR}/kernels/cuda/check.cpp"
                                   "${WARPSTEP_OPS_DIR}/kernels/cuda/dispatch.cpp")
    target_compile_options(${name} PRIVATE "$<$<COMPILE_LANGUAGE:CUDA>:-std=c++20>")
    # The program and the backend's module share one runtime.
    set_target_properties(${name} PROPERTIES CUDA_RUNTIME_LIBRARY Shared)
    target_link_libraries(${name} PUBLIC CUDA::cudart)
  endif()
endfunction()

# warpstep_plugin(NAME SOURCES ... [LINK my_ops]): NAME.so for `warpstep train --plugin`, see docs/plugins.md.
function(warpstep_plugin name)
  cmake_parse_arguments(arg "" "" "SOURCES;LINK" ${ARGN})
  add_library(${name} MODULE ${arg_SOURCES})
  set_target_properties(${name} PROPERTIES PREFIX "")
  target_link_libraries(${name} PRIVATE ${arg_LINK} warpstep::models warpstep::data)
endfunction()

# The file that defines warpstep::cases::all(), and the code that runs cases.
function(warpstep_op_cases name)
  cmake_parse_arguments(arg "" "" "SOURCES;LINK" ${ARGN})
  find_package(GTest REQUIRED)
  add_library(${name} STATIC ${arg_SOURCES} "${WARPSTEP_OPS_DIR}/kernels/cases.cpp" "${WARPSTEP_OPS_DIR}/tests/trial.cpp")
  target_include_directories(${name} PUBLIC "${WARPSTEP_OPS_DIR}")
  target_link_libraries(${name} PUBLIC ${arg_LINK} warpstep::engine GTest::gtest)
endfunction()

# warpstep_op_test(NAME SOURCES my.cases.cpp LINK my_ops [BACKENDS ref cpu cuda]): the tests of Warpstep's own ops.
# NAME_adjoint compares the adjoints with finite differences; NAME_BACKEND compares each case on that backend with ref,
# repeats it bit for bit and poisons dead buffers. Needs GoogleTest and enable_testing().
function(warpstep_op_test name)
  cmake_parse_arguments(arg "" "" "SOURCES;LINK;BACKENDS" ${ARGN})
  if(NOT arg_BACKENDS)
    set(arg_BACKENDS ref cpu)
    if(warpstep_CUDA)
      list(APPEND arg_BACKENDS cuda)
    endif()
  endif()
  include(GoogleTest)
  warpstep_op_cases(${name}_cases SOURCES ${arg_SOURCES} LINK ${arg_LINK})
  add_library(${name}_trials OBJECT "${WARPSTEP_OPS_DIR}/tests/op_test.cpp")
  target_link_libraries(${name}_trials PRIVATE ${name}_cases)
  foreach(part adjoint ${arg_BACKENDS})
    if(part STREQUAL "adjoint")
      add_executable(${name}_${part} "${WARPSTEP_OPS_DIR}/tests/adjoint_test.cpp")
    else()
      add_executable(${name}_${part} "${WARPSTEP_OPS_DIR}/tests/tested_backend.cpp" $<TARGET_OBJECTS:${name}_trials>)
      target_compile_definitions(${name}_${part} PRIVATE WARPSTEP_TESTED_BACKEND="${part}")
    endif()
    target_link_libraries(${name}_${part} PRIVATE ${name}_cases GTest::gtest_main)
    gtest_discover_tests(${name}_${part} TEST_PREFIX "${name}/${part}/" DISCOVERY_TIMEOUT 60)
  endforeach()
endfunction()

# warpstep_op_bench(NAME SOURCES my.cases.cpp LINK my_ops): a program NAME that times each call of the cases and compares
# it with the device's measured peaks. After a warpstep_op_test(TEST ...) of the same cases, LINK TEST_cases is enough.
# Needs Google Benchmark, CLI11 and GoogleTest.
function(warpstep_op_bench name)
  cmake_parse_arguments(arg "" "" "SOURCES;LINK" ${ARGN})
  find_package(benchmark REQUIRED)
  find_package(CLI11 REQUIRED)
  if(arg_SOURCES)
    warpstep_op_cases(${name}_cases SOURCES ${arg_SOURCES} LINK ${arg_LINK})
    set(arg_LINK ${name}_cases)
  endif()
  set(bench "${WARPSTEP_OPS_DIR}/bench")
  add_executable(${name} "${bench}/kernel_bench.cpp" "${bench}/kernel_bench_subjects.cpp"
                         "${bench}/kernel_bench_timing.cpp")
  target_link_libraries(${name} PRIVATE ${arg_LINK} benchmark::benchmark CLI11::CLI11)
endfunction()
