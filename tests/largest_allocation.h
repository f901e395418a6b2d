// Linked into a test program, records every allocation of it and of the libraries under test.
#pragma once

#include <cstddef>

namespace warpstep::testing_support {

void forget_allocations();
std::size_t largest_allocation_bytes();  // one request, since the last forget_allocations()

}  // namespace warpstep::testing_support
