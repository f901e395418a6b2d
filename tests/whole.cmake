# Tests of the whole system: models against PyTorch, and against themselves.
add_library(golden_batch STATIC golden_batch.cpp)
target_link_libraries(golden_batch PUBLIC warpstep::engine PRIVATE warpstep_options)
warpstep_compile_plain(golden_batch)
warpstep_compile_fast(golden_batch)
warpstep_backend_tests(parity_tests SOURCES parity_test.cpp LINK golden_batch warpstep::models)
# Every kernel's accesses are checked in op_cpu_test and op_ref_test; here, a model of images and one of text.
warpstep_test(parity_test TIER cpu BACKEND cpu LINK parity_tests ASAN_FILTER "*mnist_cnn*:*gpt2*")
warpstep_test(parity_ref_test TIER host BACKEND ref LINK parity_tests ASAN_FILTER "*mnist_cnn*:*gpt2*")
warpstep_backend_tests(decoding_tests SOURCES decoding_test.cpp LINK warpstep::models)
warpstep_test(decoding_test TIER cpu BACKEND cpu LINK decoding_tests)
warpstep_test(decoding_ref_test TIER host BACKEND ref LINK decoding_tests)
