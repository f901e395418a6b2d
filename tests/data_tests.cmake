# The tests of data/: X_test.cpp beside the code, a program each. largest_allocation.cpp sees what they allocate.
find_package(PNG REQUIRED)
find_package(ZLIB REQUIRED)
find_package(JPEG REQUIRED)
file(GLOB data_tests CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/data/*_test.cpp")
foreach(source ${data_tests})
  get_filename_component(name ${source} NAME_WE)
  warpstep_test(data_${name} TIER host SOURCES ${source} largest_allocation.cpp
                LINK warpstep::data PNG::PNG ZLIB::ZLIB JPEG::JPEG)
endforeach()
warpstep_test(data_command_test TIER host SOURCES data_command_test.cpp LINK warpstep::data)
add_dependencies(data_command_test warpstep)
