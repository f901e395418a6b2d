# Proofs that the engine is right: op cases on every backend, passes, planner, whole models, listings.
set(root "${PROJECT_SOURCE_DIR}")

warpstep_test(listing_test TIER host SOURCES listing_test.cpp LINK warpstep::models)
add_dependencies(listing_test warpstep_ref)
