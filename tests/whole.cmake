# Tests of the whole system: models against PyTorch, and against themselves.
add_library(golden_batch STATIC golden_batch.cpp)
target_link_libraries(golden_batch PUBLIC warpstep::engine PRIVATE warpstep_options)
# AddressSanitizer sees every kernel in op_cpu_test; here, a model of images and one of text.
warpstep_test(parity_test TIER cpu SOURCES parity_test.cpp LINK golden_batch warpstep::models
              ASAN_FILTER "*mnist_cnn*:*gpt2*")
target_compile_definitions(parity_test PRIVATE WARPSTEP_TESTED_BACKEND="cpu")
warpstep_test(parity_ref_test TIER host SOURCES parity_test.cpp LINK golden_batch warpstep::models)
target_compile_definitions(parity_ref_test PRIVATE WARPSTEP_TESTED_BACKEND="ref")
warpstep_test(decoding_test TIER cpu SOURCES decoding_test.cpp LINK warpstep::models)
target_compile_definitions(decoding_test PRIVATE WARPSTEP_TESTED_BACKEND="cpu")
add_dependencies(decoding_test warpstep_cpu)
warpstep_test(decoding_ref_test TIER host SOURCES decoding_test.cpp LINK warpstep::models)
target_compile_definitions(decoding_ref_test PRIVATE WARPSTEP_TESTED_BACKEND="ref")
add_dependencies(decoding_ref_test warpstep_ref)
