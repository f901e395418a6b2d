# The tests of data/: X_test.cpp beside the code, in programs by what they need.
set(data_dir "${PROJECT_SOURCE_DIR}/data")
foreach(name loader ring)
  warpstep_test(data_${name}_test TIER host SOURCES ${data_dir}/${name}_test.cpp LINK warpstep::data)
endforeach()
