# Tests of the whole system: models against PyTorch.
add_library(golden_batch STATIC golden_batch.cpp)
target_link_libraries(golden_batch PUBLIC warpstep::engine PRIVATE warpstep_options)
warpstep_test(parity_test TIER cpu SOURCES parity_test.cpp LINK golden_batch warpstep::models)
target_compile_definitions(parity_test PRIVATE WARPSTEP_TESTED_BACKEND="cpu")
warpstep_test(parity_ref_test TIER host SOURCES parity_test.cpp LINK golden_batch warpstep::models)
target_compile_definitions(parity_ref_test PRIVATE WARPSTEP_TESTED_BACKEND="ref")
