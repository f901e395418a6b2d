// Linked into a test program, records every allocation of it and of the libraries under test, and
// can make one of them fail.
#pragma once

#include <cstddef>

namespace warpstep::testing_support {

void forget_allocations();
std::size_t largest_allocation_bytes();  // one request, since the last forget_allocations()

// One allocation of the calling thread fails: the first one after `after` others.
void fail_allocation(std::size_t after);
bool has_failed_allocation();  // and else none will

}  // namespace warpstep::testing_support
