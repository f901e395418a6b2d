# The tests of data/: X_test.cpp next to the code. Those that start threads are a separate program, which ThreadSanitizer
# runs. largest_allocation.cpp measures their allocations.
find_package(PNG REQUIRED)
find_package(ZLIB REQUIRED)
find_package(JPEG REQUIRED)
file(GLOB data_tests CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/data/*/*_test.cpp")
set(threads ${data_tests})
list(FILTER threads INCLUDE REGEX "/(loader|parallel|ring|batch_maker|pack|tokenize|data_errors|synthetic|mutation|tar_set|cached)_test[.]cpp$")
list(REMOVE_ITEM data_tests ${threads})
warpstep_test(data_test TIER host SOURCES ${data_tests} largest_allocation.cpp
              LINK warpstep::data PNG::PNG ZLIB::ZLIB JPEG::JPEG)
warpstep_test(data_threads_test TIER host SOURCES ${threads} largest_allocation.cpp
              LINK warpstep::data PNG::PNG ZLIB::ZLIB JPEG::JPEG)
warpstep_test(data_command_test TIER host SOURCES data_command_test.cpp LINK warpstep::data)
add_dependencies(data_command_test warpstep)
