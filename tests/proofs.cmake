# Proofs that the engine is right: op cases on every backend, passes, planner, whole models, listings.
set(root "${PROJECT_SOURCE_DIR}")

warpstep_test(listing_test TIER host SOURCES listing_test.cpp LINK warpstep::models)
add_dependencies(listing_test warpstep_ref)

# The code that tests the cases of any op, and the cases of Warpstep's own ops.
add_library(warpstep_any_trial STATIC trial.cpp "${root}/kernels/cases.cpp")
target_link_libraries(warpstep_any_trial PUBLIC warpstep::engine GTest::gtest PRIVATE warpstep_options)
warpstep_compile_plain(warpstep_any_trial)
warpstep_compile_fast(warpstep_any_trial)
file(GLOB case_sources CONFIGURE_DEPENDS "${root}/kernels/*/*.cases.cpp")
# An object library: files of cases register themselves.
add_library(warpstep_trial OBJECT "${root}/kernels/all_cases.cpp" ${case_sources})
target_link_libraries(warpstep_trial PUBLIC warpstep_any_trial PRIVATE warpstep_options)
warpstep_compile_plain(warpstep_trial)
warpstep_compile_fast(warpstep_trial)
# The differences are of what op_ref_test computes with AddressSanitizer, too.
warpstep_test(adjoint_test TIER host SHARDS 2 SOURCES adjoint_test.cpp cases_test.cpp LINK warpstep_trial
              ASAN_FILTER "Cases.*:GuardedMemory.*")
add_dependencies(adjoint_test warpstep_ref)
# One driver per backend; on the reference itself it tests repeatability and the memory plan. The dtype changes few of a
# kernel's memory accesses and hardly any races: sanitizers skip some dtypes, and repetitions, whose faults show in the bits.
set(op_tiers ref:host cpu:cpu)
if(TARGET warpstep_cuda_emulated)
  list(APPEND op_tiers cuda_emulated:cuda-on-cpu)
endif()
warpstep_backend_tests(op_tests SOURCES op_test.cpp conv_op_test.cpp pool_op_test.cpp LINK warpstep_trial)
warpstep_backend_tests(statistics_tests SOURCES statistics_test.cpp LINK warpstep::models)
foreach(backend_tier ${op_tiers})
  string(REPLACE ":" ";" pair ${backend_tier})
  list(GET pair 0 backend)
  list(GET pair 1 tier)
  warpstep_test(op_${backend}_test TIER ${tier} BACKEND ${backend} SHARDS 4
                SOURCES random_cases.cpp random_rows.cpp LINK op_tests warpstep_trial
                ASAN_FILTER "-*_in_bf16*:*DeterministicOp*:*OpOfNaN*/conv*"
                TSAN_FILTER "-*_in_bf16*:*_in_fp16*:*DeterministicOp*:*OpOfNaN*:*__draw_*")
  warpstep_test(statistics_${backend}_test TIER ${tier} BACKEND ${backend} LINK statistics_tests
                TSAN_FILTER "*/adamw:*/lars:*/fp16")
endforeach()
target_sources(op_cpu_test PRIVATE conv_cpu_test.cpp)
if(TARGET warpstep_cuda_emulated)  # its schedules: the test refers to them weakly, which --as-needed does not count
  target_link_libraries(op_cuda_emulated_test PRIVATE -Wl,--no-as-needed warpstep_fake_cuda -Wl,--as-needed)
endif()

# The engine's own parts, on the reference backend if they need one: all of its files with tests but for those that start
# threads and those with a program of their own. For AddressSanitizer, fusions and random models without the steps on the reference, whose
# kernels op_ref_test has, and memory plans for one batch size, of the least residual network: others change only sizes. No forked
# process either: GCC 12's allocator of the sanitizer does not survive a fork while another thread allocates.
set(engine "${root}/engine")
set(engine_threads ${engine}/core/file_test.cpp ${engine}/core/record_test.cpp ${engine}/core/phase_test.cpp
                   ${engine}/core/thread_test.cpp ${engine}/core/run_delay_test.cpp ${engine}/core/cpus_test.cpp
                   ${engine}/core/cpu_peak_test.cpp ${engine}/run/feeder_test.cpp ${engine}/dist/communicator_test.cpp
                   ${engine}/dist/tcp_test.cpp)
file(GLOB_RECURSE engine_tests CONFIGURE_DEPENDS ${engine}/*_test.cpp)
list(REMOVE_ITEM engine_tests ${engine_threads} ${engine}/core/wheel_versions_test.cpp ${engine}/files/weights_test.cpp)
warpstep_test(engine_test TIER host ASAN_FILTER "-*FusionOf.LeavesTheStepsResultAlone*:RandomGraph.*:*PlanOfModel*_of_32:*PlanOfModel*_of_128:*PlanOfModel*/resnet34*:*PlanOfModel*/resnet50*:Record.HasAThreadInAForkedProcess*"
  SOURCES ${engine_tests} largest_allocation.cpp
          placement_test.cpp memory_test.cpp lanes_test.cpp row_plans_test.cpp tied_test.cpp random_graph_test.cpp zoo_test.cpp
  LINK warpstep::models)
add_dependencies(engine_test warpstep_ref warpstep_cpu)
# Backends and MPI modules of other builds: of an earlier version, of this one with other headers, and of one that names none.
foreach(other earlier changed unnamed)
  set(target module_of_${other})
  add_library(${target} MODULE EXCLUDE_FROM_ALL module_of_another.cpp)
  target_link_libraries(${target} PRIVATE warpstep::engine warpstep_options)
  string(TOUPPER ${other} definition)
  target_compile_definitions(${target} PRIVATE ${definition})
  add_dependencies(engine_test ${target})
endforeach()
add_library(plugin_without_builder MODULE EXCLUDE_FROM_ALL plugin_without_builder.cpp)
set_target_properties(plugin_without_builder PROPERTIES PREFIX "")
target_link_libraries(plugin_without_builder PRIVATE warpstep::models warpstep_options)
add_dependencies(engine_test plugin_without_builder)
# Which of two versions of a library is loaded: stand-ins, where LD_LIBRARY_PATH has the older one. Files of wheels have no
# version in their names.
set(standins "${CMAKE_CURRENT_BINARY_DIR}/standins")
foreach(version 9.14.0 9.19.0)
  string(REGEX REPLACE "[.]0$|[.]" "" number ${version})
  foreach(part "" _graph)
    set(standin standin_dnn${part}_${number})
    add_library(${standin} SHARED EXCLUDE_FROM_ALL standin_dnn.cpp)
    target_compile_definitions(${standin} PRIVATE STANDIN_VERSION=${number} $<$<BOOL:${part}>:STANDIN_PART>)
    target_link_libraries(${standin} PRIVATE ${CMAKE_DL_LIBS})
    set_target_properties(${standin} PROPERTIES OUTPUT_NAME standin_dnn${part} VERSION ${version} SOVERSION 9 BUILD_RPATH "$ORIGIN"
                          LIBRARY_OUTPUT_DIRECTORY "${standins}/${version}")
  endforeach()
endforeach()
add_library(standin_module MODULE EXCLUDE_FROM_ALL standin_module.cpp)
target_link_libraries(standin_module PRIVATE standin_dnn_914)
set_target_properties(standin_module PROPERTIES LIBRARY_OUTPUT_DIRECTORY "${standins}")
warpstep_test(wheel_versions_test TIER host SOURCES ${engine}/core/wheel_versions_test.cpp LINK warpstep::engine
              PROPERTIES ENVIRONMENT "LD_LIBRARY_PATH=${standins}/9.14.0")
target_compile_definitions(wheel_versions_test PRIVATE STANDINS="${standins}" STANDIN_MODULE="$<TARGET_FILE:standin_module>")
add_dependencies(wheel_versions_test standin_module standin_dnn_914 standin_dnn_919 standin_dnn_graph_914 standin_dnn_graph_919)

# ThreadSanitizer delays a handler until its thread returns from sigwait(), which never happens here.
warpstep_test(engine_threads_test TIER host TSAN_FILTER "-SignalThread.RunsTheHandlersOfOthers"
  SOURCES ${engine_threads}
  LINK warpstep::engine)

warpstep_test(weights_test TIER host SOURCES ${engine}/files/weights_test.cpp huggingface_test.cpp
              LINK warpstep::models warpstep::data)
add_dependencies(weights_test warpstep_ref)

find_package(OpenMP REQUIRED)
warpstep_test(signals_test TIER cpu SOURCES signals_test.cpp LINK warpstep::models OpenMP::OpenMP_CXX
              PROPERTIES ENVIRONMENT OMP_WAIT_POLICY=passive)
add_dependencies(signals_test warpstep_cpu)
warpstep_test(model_test TIER cpu SOURCES model_test.cpp LINK warpstep::models ASAN_FILTER "-*InBf16*/airbench*:*GivesTheSameBits*/resnet18*:*SpoiltModel*")
add_dependencies(model_test warpstep_ref)
if(CMAKE_BUILD_TYPE STREQUAL "Release" AND NOT WARPSTEP_SANITIZE AND CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  find_package(Python3 REQUIRED COMPONENTS Interpreter)
  add_test(NAME registers COMMAND Python3::Interpreter -B "${CMAKE_CURRENT_SOURCE_DIR}/registers_test.py" $<TARGET_FILE:warpstep_cpu>)
  add_test(NAME registers/self_test COMMAND Python3::Interpreter -B "${CMAKE_CURRENT_SOURCE_DIR}/registers_test.py" --self-test)
  set_tests_properties(registers registers/self_test PROPERTIES LABELS cpu)
endif()
warpstep_test(cpu_test TIER cpu SOURCES memory_peak_test.cpp update_test.cpp loss_test.cpp attention_test.cpp recompute_test.cpp
              table_test.cpp
              "${root}/kernels/cpu/team_test.cpp"
              LINK warpstep::models OpenMP::OpenMP_CXX)
# The products as the backend has them.
warpstep_test(gemm_bf16_test TIER cpu
              SOURCES "${root}/kernels/cpu/gemm_bf16_test.cpp" "${root}/kernels/cpu/gemm_test.cpp"
                      "${root}/kernels/cpu/ahead_test.cpp"
                      "$<FILTER:$<TARGET_OBJECTS:warpstep_cpu>,INCLUDE,/cpu/(gemm_bf16|bf16_operand)[.]cpp[.]o>"
                      "$<FILTER:$<TARGET_OBJECTS:warpstep_cpu_vectors>,INCLUDE,/cpu/(gemm|gemm_operand|bf16_loops)[.]cpp[.]o>"
              LINK warpstep::engine OpenMP::OpenMP_CXX)
warpstep_backend_tests(precision_spread_tests SOURCES precision_spread_test.cpp LINK warpstep::models)
if(NOT WARPSTEP_SANITIZE)  # the kernels of op_cpu_test, many times
  warpstep_test(precision_spread_cpu_test TIER cpu BACKEND cpu LINK precision_spread_tests)
endif()
# The kernels of op_cpu_test; what models add to them shows in the bits.
warpstep_backend_tests(random_model_tests SOURCES random_model_test.cpp LINK warpstep::models)
if(NOT WARPSTEP_SANITIZE)
  warpstep_test(random_model_cpu_test TIER cpu BACKEND cpu LINK random_model_tests)
  if(TARGET warpstep_cuda_emulated)
    warpstep_test(random_model_emulated_test TIER cuda-on-cpu BACKEND cuda_emulated LINK random_model_tests)
  endif()
endif()
add_dependencies(cpu_test warpstep_ref warpstep_cpu)
warpstep_test(explain_command_test TIER host SOURCES explain_command_test.cpp LINK warpstep::engine)
add_dependencies(explain_command_test warpstep)
warpstep_backend_tests(cuda_model_tests SOURCES cuda_model_test.cpp cuda_resnet_test.cpp LINK warpstep::models)
if(TARGET warpstep_cuda_emulated)
  # ThreadSanitizer sees every kernel in op_cuda_emulated_test; here, how a whole step's kernels follow each other.
  warpstep_test(model_cuda_emulated_test TIER cuda-on-cpu BACKEND cuda_emulated LINK cuda_model_tests
                ASAN_FILTER "*AgreesWithTheReference*:*OneGraph*/mlp*:*OneGraph*/gpt2*:*LossScaling*/mlp*:*WithoutTheirFusions/*-*ResNetOnCuda*:*WithoutTheirFusions/cifar10cnn*"
                TSAN_FILTER "*ModelOnCuda.OneGraph*-*cifar10cnn*")
  if(NOT WARPSTEP_SANITIZE)  # the kernels of op_cuda_emulated_test, many times
    warpstep_test(precision_spread_emulated_test TIER cuda-on-cpu BACKEND cuda_emulated LINK precision_spread_tests)
  endif()
endif()
if(TARGET warpstep_cuda_emulated)
  # For ThreadSanitizer, what has threads: captures, replays and a device for each; the kernels are those of op tests.
  warpstep_test(backend_cuda_emulated_test TIER cuda-on-cpu SOURCES cuda_on_cpu/backend_test.cpp cuda_on_cpu/choices_test.cpp cuda_on_cpu/refusals_test.cpp
                        cuda_on_cpu/step_launches_test.cpp
                LINK warpstep_trial warpstep::models warpstep_fake_cuda
                ASAN_FILTER "-CudaEnqueue.*"
                TSAN_FILTER "CudaStep.IsOneLaunch*:CudaStep.ReadsWhatIsResident*:CudaCapture.*:CudaDevice.*")
  add_dependencies(backend_cuda_emulated_test warpstep_ref warpstep_cuda_emulated)
  warpstep_test(residual_cuda_emulated_test TIER cuda-on-cpu SOURCES cuda_on_cpu/residual_test.cpp cuda_on_cpu/language_test.cpp
                LINK warpstep::models TSAN_FILTER "*/fp16:FusedNorms.Agree*")
  add_dependencies(residual_cuda_emulated_test warpstep_ref warpstep_cuda_emulated)
  # A step's streams in other orders that their events allow, and blocks, warps and lanes in other orders; work that is done late.
  set(seeds 1 2 3)
  if(WARPSTEP_SANITIZE)  # a wrong order shows in the bits, a race in any order
    set(seeds "")
  endif()
  foreach(seed ${seeds})
    add_test(NAME model_cuda_emulated_test/schedule_${seed}
             COMMAND model_cuda_emulated_test --gtest_filter=*ModelOnCuda.OneGraph*fp16)
    set_tests_properties(model_cuda_emulated_test/schedule_${seed} PROPERTIES LABELS cuda-on-cpu TIMEOUT 300
                         ENVIRONMENT "WARPSTEP_SIMT_SCHEDULE=${seed};WARPSTEP_FAKE_DEFERRAL=${seed}")
  endforeach()
  if(seeds)
    add_test(NAME backend_cuda_emulated_test/deferred  # the other test compares times
             COMMAND backend_cuda_emulated_test --gtest_filter=-CudaStep.WaitsForEachBatchOfALaunch)
    set_tests_properties(backend_cuda_emulated_test/deferred PROPERTIES LABELS cuda-on-cpu TIMEOUT 300
                         ENVIRONMENT WARPSTEP_FAKE_DEFERRAL=1)
  endif()
  if(WARPSTEP_SANITIZE STREQUAL "thread")  # kernels that f32 does not have
    add_test(NAME op_cuda_emulated_test/narrow
             COMMAND op_cuda_emulated_test --gtest_filter=Cases/Op.*3x3_of_*to_*8_channels_in_fp16:Cases/Op.*small_maps_in_bf16)
    set_tests_properties(op_cuda_emulated_test/narrow PROPERTIES LABELS cuda-on-cpu TIMEOUT 300)
  else()  # whose cases have these kernels
    # The path for layers that cuDNN does not fuse: a pass of bias and relu after the convolution. In 16 bits it rounds
    # before a relu, too.
    add_test(NAME op_cuda_emulated_test/unfused
             COMMAND op_cuda_emulated_test --gtest_filter=*Op.*conv_1x1*:*Op.*conv_padding*:*Op.*conv_one_pixel*-*relu_in_*)
    set_tests_properties(op_cuda_emulated_test/unfused PROPERTIES LABELS cuda-on-cpu TIMEOUT 300
                         ENVIRONMENT WARPSTEP_EMULATED_UNFUSED=1)
  endif()
endif()
