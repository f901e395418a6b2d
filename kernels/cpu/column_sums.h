// Sums of the columns of a matrix, as for the gradients of biases. Bound by memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/stored.h"

namespace warpstep::cpu {

std::size_t column_sums_workspace(std::int64_t rows, std::int64_t columns);

// sums[c] = sum over rows of x[r, c], in floats and in an order that depends only
// on the shape.
template <class T>  // float or Bf16
void column_sums(const T* x, std::int64_t rows, std::int64_t columns, T* sums, void* workspace);

}  // namespace warpstep::cpu
