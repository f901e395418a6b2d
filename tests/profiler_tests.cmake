# The profiler's tests: one program a file, profiler/FOLDER/NAME_test.cpp -> profiler_NAME_test.
file(GLOB_RECURSE profiler_tests CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/profiler/*_test.cpp")
add_library(profiler_testing OBJECT "${PROJECT_SOURCE_DIR}/profiler/session/testing_builder.cpp"
            "${PROJECT_SOURCE_DIR}/profiler/export/testing_analysis.cpp"
            "${PROJECT_SOURCE_DIR}/profiler/export/testing_analysis_parts.cpp")
target_link_libraries(profiler_testing PUBLIC warpstep::profiler PRIVATE warpstep_options)
foreach(source ${profiler_tests})
  get_filename_component(name ${source} NAME_WE)
  warpstep_test(profiler_${name} TIER host SOURCES ${source} LINK profiler_testing warpstep::profiler ZLIB::ZLIB)
endforeach()
