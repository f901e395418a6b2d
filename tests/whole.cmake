# Tests of the whole system: models against PyTorch, and the program as a user runs it.
warpstep_test(parity_test TIER cpu SOURCES parity_test.cpp LINK warpstep::models)
