# The profiler's tests: one program a file, profiler/FOLDER/NAME_test.cpp -> profiler_NAME_test.
file(GLOB_RECURSE profiler_tests CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/profiler/*_test.cpp")
add_library(profiler_testing OBJECT "${PROJECT_SOURCE_DIR}/profiler/session/testing_builder.cpp"
            "${PROJECT_SOURCE_DIR}/profiler/export/testing_analysis.cpp"
            "${PROJECT_SOURCE_DIR}/profiler/export/testing_analysis_parts.cpp")
target_link_libraries(profiler_testing PUBLIC warpstep::profiler PRIVATE warpstep_options)
# Those of the GPU's source play CUPTI themselves, with the structures of its headers.
get_property(has_cupti GLOBAL PROPERTY WARPSTEP_HAS_CUPTI)
if(has_cupti)
  file(GLOB cupti_testing CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/profiler/sources/cupti_testing*.cpp")
  add_library(profiler_cupti_testing OBJECT ${cupti_testing})
  target_link_libraries(profiler_cupti_testing PUBLIC warpstep::profiler warpstep_cupti_headers PRIVATE warpstep_options)
else()
  list(FILTER profiler_tests EXCLUDE REGEX "/cupti[a-z_]*_test\\.cpp$")
endif()
foreach(source ${profiler_tests})
  get_filename_component(name ${source} NAME_WE)
  set(of_cupti "")
  if(name MATCHES "^cupti_")
    set(of_cupti profiler_cupti_testing)
  endif()
  set(tier host)
  if(name STREQUAL "cupti_pm_chips_test")  # asks the real CUPTI, of chips that are assumed
    set(tier plans)
  endif()
  warpstep_test(profiler_${name} TIER ${tier} SOURCES ${source}
                LINK profiler_testing ${of_cupti} warpstep::profiler ZLIB::ZLIB)
endforeach()
warpstep_test(profile_command_test TIER host SOURCES profile_command_test.cpp LINK warpstep::profiler)
add_dependencies(profile_command_test warpstep)
