# A short run of each tool in this folder.
find_package(Python3 REQUIRED COMPONENTS Interpreter)
function(bench_test name tier)
  list(POP_FRONT ARGN script)
  add_test(NAME bench/${name} COMMAND Python3::Interpreter -B "${CMAKE_CURRENT_SOURCE_DIR}/${script}" ${ARGN})
  set_tests_properties(bench/${name} PROPERTIES LABELS ${tier} TIMEOUT 300)
endfunction()

bench_test(compare host compare_test.py)
bench_test(peers host peers/peers_test.py)
bench_test(kernel_bench cpu kernel_bench_test.py "$<TARGET_FILE:warpstep_bench>")
bench_test(call_bench cpu call_bench_test.py "$<TARGET_FILE:call_bench>")
bench_test(step_peer cpu step_peer_test.py "$<TARGET_FILE:step_peer>")
bench_test(loader_bench host loader_bench_test.py "$<TARGET_FILE:loader_bench>" "$<TARGET_FILE:warpstep>")
set(programs step_peer loader_bench warpstep_bench call_bench profile_overhead exchange_bench)
list(TRANSFORM programs REPLACE "(.+)" "$<TARGET_FILE:\\1>" OUTPUT_VARIABLE program_files)
bench_test(usage cpu usage_test.py ${program_files})
add_dependencies(tier_cpu ${programs})
add_dependencies(tier_host loader_bench warpstep)
# Only the bottleneck that also shows on a busy machine; the others, and the predictions, need an idle one.
bench_test(planted_bottlenecks cpu planted_bottlenecks.py --warpstep "$<TARGET_FILE:warpstep>" --only slow-open
           --no-follow --steps 60)
# A step of five times the time is longer on any machine; whether 3 % are seen is a matter of the benchmark.
bench_test(equal_runs cpu equal_runs.py --warpstep "$<TARGET_FILE:warpstep>" --pairs 0 --sets 1 --runs 1 --slower 400
           --steps 20)
set_tests_properties(bench/planted_bottlenecks bench/equal_runs PROPERTIES PROCESSORS 2)
set_tests_properties(bench/call_bench PROPERTIES COST 30)
set_tests_properties(bench/equal_runs PROPERTIES PASS_REGULAR_EXPRESSION "of 1; changes from [+][1-9][0-9]")
add_dependencies(tier_cpu warpstep)

# The GPU path on the emulated device: captures, rotation, reports, every dtype. Its times are meaningless.
if(TARGET warpstep_cuda_emulated)
  bench_test(kernel_bench_cuda cuda-on-cpu kernel_bench_test.py "$<TARGET_FILE:warpstep_bench>"
             --module "$<TARGET_FILE:warpstep_cuda_emulated>" --filter "linear/(forward|wgrad)/(tf32|f16)/no_bias/")
  bench_test(step_peer_cuda cuda-on-cpu step_peer_test.py "$<TARGET_FILE:step_peer>"
             "$<TARGET_FILE:warpstep_cuda_emulated>")
  set_tests_properties(bench/kernel_bench_cuda PROPERTIES COST 25)
  add_dependencies(tier_cuda-on-cpu warpstep_bench step_peer)
endif()
