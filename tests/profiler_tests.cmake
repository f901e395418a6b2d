# The profiler's tests, profiler/FOLDER/NAME_test.cpp. Those that start threads are a separate program, which
# ThreadSanitizer runs.
file(GLOB_RECURSE profiler_tests CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/profiler/*_test.cpp")
add_library(profiler_testing OBJECT "${PROJECT_SOURCE_DIR}/profiler/session/testing_builder.cpp"
            "${PROJECT_SOURCE_DIR}/profiler/export/testing_analysis.cpp")
target_link_libraries(profiler_testing PUBLIC warpstep::profiler PRIVATE warpstep_options)
warpstep_compile_plain(profiler_testing THREADS)
warpstep_compile_fast(profiler_testing 0)
# Tests of the GPU source simulate CUPTI, with the structures of its headers.
get_property(has_cupti GLOBAL PROPERTY WARPSTEP_HAS_CUPTI)
if(has_cupti)
  file(GLOB cupti_testing CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/profiler/sources/cupti_testing*.cpp")
  add_library(profiler_cupti_testing OBJECT ${cupti_testing})
  target_link_libraries(profiler_cupti_testing PUBLIC warpstep::profiler warpstep_cupti_headers PRIVATE warpstep_options)
  warpstep_compile_plain(profiler_cupti_testing THREADS)
  warpstep_compile_fast(profiler_cupti_testing 0)
  list(FILTER profiler_tests EXCLUDE REGEX "_none_test\\.cpp$")
else()
  list(FILTER profiler_tests EXCLUDE REGEX "/cupti[a-z_]*_test\\.cpp$")
endif()
set(threads ${profiler_tests})
list(FILTER threads INCLUDE REGEX "/(sampler|sampler_cores|recorder|rank_clock|trigger|cupti_.*)_test[.]cpp$")
list(REMOVE_ITEM profiler_tests ${threads})
warpstep_test(profiler_test TIER host SOURCES ${profiler_tests} LINK profiler_testing warpstep::profiler ZLIB::ZLIB)
if(has_cupti)
  # Queries the real CUPTI, for assumed chips.
  set(chips "${PROJECT_SOURCE_DIR}/profiler/sources/cupti_pm_chips_test.cpp")
  list(REMOVE_ITEM threads "${chips}")
  warpstep_test(profiler_chips_test TIER plans SOURCES "${chips}"
                LINK profiler_testing profiler_cupti_testing warpstep::profiler)
endif()
set(costs "")
if(WARPSTEP_SANITIZE)
  # LeakSanitizer's tracer fails now and then where samplers' threads come and go; profiler_test finds leaks of the same code.
  set(costs COST 50 ENVIRONMENT ASAN_OPTIONS=detect_leaks=0)
endif()
warpstep_test(profiler_threads_test TIER host SOURCES ${threads}
              ASAN_FILTER "-Sampler.LimitsTheSamplesThatWait" TSAN_FILTER "-Sampler.LimitsTheSamplesThatWait" PROPERTIES ${costs}
              LINK profiler_testing $<TARGET_NAME_IF_EXISTS:profiler_cupti_testing> warpstep::profiler ZLIB::ZLIB)
warpstep_test(profile_command_test TIER host SOURCES profile_command_test.cpp report_command_test.cpp LINK warpstep::profiler)
add_dependencies(profile_command_test warpstep)
