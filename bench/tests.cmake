# The tools of this folder, run for a moment each.
find_package(Python3 REQUIRED COMPONENTS Interpreter)
add_test(NAME bench/kernel_bench COMMAND Python3::Interpreter -B "${CMAKE_CURRENT_SOURCE_DIR}/kernel_bench_test.py"
                                         "$<TARGET_FILE:warpstep_bench>")
set_tests_properties(bench/kernel_bench PROPERTIES LABELS cpu TIMEOUT 300)
add_dependencies(tier_cpu warpstep_bench)
