# The tests of data/: X_test.cpp beside the code, in programs by what they need.
find_package(PNG REQUIRED)
find_package(ZLIB REQUIRED)
set(data_dir "${PROJECT_SOURCE_DIR}/data")
foreach(name folder loader mutation pickle ring synthetic)
  warpstep_test(data_${name}_test TIER host SOURCES ${data_dir}/${name}_test.cpp LINK warpstep::data)
endforeach()
warpstep_test(data_png_test TIER host SOURCES ${data_dir}/png_test.cpp largest_allocation.cpp
              LINK warpstep::data PNG::PNG ZLIB::ZLIB)
warpstep_test(data_decoded_test TIER host SOURCES ${data_dir}/decoded_test.cpp largest_allocation.cpp
              LINK warpstep::data ZLIB::ZLIB)
warpstep_test(data_command_test TIER host SOURCES data_command_test.cpp LINK warpstep::data)
add_dependencies(data_command_test warpstep)
