// Sums of the columns of a matrix, as for the gradients of biases. Bound by memory.
#pragma once

#include <cstddef>
#include <cstdint>

namespace warpstep::cpu {

std::size_t column_sums_workspace(std::int64_t rows, std::int64_t columns);

// sums[c] = sum over rows of x[r, c], in an order that depends only on the shape.
void column_sums(const float* x, std::int64_t rows, std::int64_t columns, float* sums,
                 void* workspace);

}  // namespace warpstep::cpu
