#include "kernels/cuda/host_copy.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstring>

#include "kernels/cuda/cuda.h"

namespace warpstep::cuda {
namespace {

void convert(float number, DType dtype, std::byte* stored) {
  if (dtype == DType::f16) {
    const __half half = __float2half(number);
    std::memcpy(stored, &half, sizeof half);
  } else if (dtype == DType::bf16) {
    const __nv_bfloat16 half = __float2bfloat16(number);
    std::memcpy(stored, &half, sizeof half);
  } else {
    std::memcpy(stored, &number, sizeof number);
  }
}

float convert_back(const std::byte* stored, DType dtype) {
  float number = 0;
  if (dtype == DType::f16) {
    __half half;
    std::memcpy(&half, stored, sizeof half);
    number = __half2float(half);
  } else if (dtype == DType::bf16) {
    __nv_bfloat16 half;
    std::memcpy(&half, stored, sizeof half);
    number = __bfloat162float(half);
  } else {
    std::memcpy(&number, stored, sizeof number);
  }
  return number;
}

// Calls visit(plain element, stored element) for every element of the logical shape.
template <class Visit>
void for_each_element(const Shape& logical, const Shape& stored, Visit visit) {
  const int rank = logical.rank();
  std::array<std::int64_t, Shape::max_rank> at{};
  for (std::int64_t plain = 0, count = logical.count(); plain < count; ++plain) {
    std::int64_t element = 0;
    for (int axis = 0; axis < rank; ++axis) element = element * stored[axis] + at[idx(axis)];
    visit(idx(plain), idx(element));
    for (int axis = rank - 1; axis >= 0 && ++at[idx(axis)] == logical[axis]; --axis)
      at[idx(axis)] = 0;
  }
}

}  // namespace

std::vector<std::byte> packed(const Value& value, std::span<const std::byte> plain) {
  const DType dtype = value.type.dtype;
  const std::size_t bytes = size_bytes(dtype);
  if (!is_float(dtype)) return {plain.begin(), plain.end()};
  std::vector<std::byte> stored(value.layout.bytes);
  for_each_element(value.type.shape, stored_shape(value), [&](std::size_t p, std::size_t s) {
    float number = 0;
    std::memcpy(&number, &plain[p * sizeof number], sizeof number);
    convert(number, dtype, &stored[s * bytes]);
  });
  return stored;
}

void unpack(const Value& value, std::span<const std::byte> stored, std::span<std::byte> plain) {
  const DType dtype = value.type.dtype;
  const std::size_t bytes = size_bytes(dtype);
  for_each_element(value.type.shape, stored_shape(value), [&](std::size_t p, std::size_t s) {
    if (!is_float(dtype)) {
      std::memcpy(&plain[p * bytes], &stored[s * bytes], bytes);
      return;
    }
    const float number = convert_back(&stored[s * bytes], dtype);
    std::memcpy(&plain[p * sizeof number], &number, sizeof number);
  });
}

}  // namespace warpstep::cuda
