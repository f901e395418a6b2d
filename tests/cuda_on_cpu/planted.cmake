find_package(Python3 REQUIRED COMPONENTS Interpreter)

# Planted faults that a sanitizer must report, and the same kernel without a fault, for which it must report nothing.
add_executable(planted planted_program.cpp)
target_link_libraries(planted PRIVATE emulated_planted emulated_runtime warpstep_emulated_link warpstep_options)
add_dependencies(tier_cuda-on-cpu planted)

function(warpstep_planted fault)  # ARGN: the words that the report must contain, separated by '|'
  add_test(NAME planted/${fault} COMMAND Python3::Interpreter -B "${CMAKE_CURRENT_SOURCE_DIR}/expect_report.py"
                                         "${ARGN}" $<TARGET_FILE:planted> ${fault})
  set_tests_properties(planted/${fault} PROPERTIES LABELS cuda-on-cpu TIMEOUT 120)
endfunction()

# The kernels' __shared__ arrays are gathered: 780 kB of them.
if(NOT "address" IN_LIST WARPSTEP_SANITIZE)
  add_test(NAME planted/gathered_arrays
           COMMAND sh -c "size -A '$<TARGET_FILE:warpstep_cuda_emulated>' | awk '$1 == \"simt_shared\" { n = $2 } END { print n; exit n < 600000 }'")
  set_tests_properties(planted/gathered_arrays PROPERTIES LABELS cuda-on-cpu)
endif()

warpstep_planted(none "")
warpstep_planted(divergent_barrier "planted.cu:|divergent: thread")
if("address" IN_LIST WARPSTEP_SANITIZE)
  foreach(fault past_global past_dynamic)
    warpstep_planted(${fault} "heap-buffer-overflow|planted.cu")
  endforeach()
endif()
if("undefined" IN_LIST WARPSTEP_SANITIZE)
  warpstep_planted(past_shared "planted.cu|index 64 out of bounds")
  warpstep_planted(misaligned "planted.cu|misaligned address")
endif()
if("thread" IN_LIST WARPSTEP_SANITIZE)
  foreach(fault missing_barrier missing_syncwarp reused_array plain_update)
    warpstep_planted(${fault} "data race|planted.cu")
  endforeach()
endif()
