// Elements of any floating dtype in memory, as float: the numbers that the emulated libraries
// compute with.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "engine/core/error.h"
#include "engine/core/types.h"

namespace warpstep::cuda {

inline float load(const void* base, DType dtype, std::int64_t index) {
  switch (dtype) {
    case DType::f32: return static_cast<const float*>(base)[index];
    case DType::f16: return __half2float(static_cast<const __half*>(base)[index]);
    case DType::bf16: return __bfloat162float(static_cast<const __nv_bfloat16*>(base)[index]);
    default: fail<Error>("no library of ours computes with {}", name(dtype));
  }
}

inline void store(void* base, DType dtype, std::int64_t index, float value) {
  switch (dtype) {
    case DType::f32: static_cast<float*>(base)[index] = value; return;
    case DType::f16: static_cast<__half*>(base)[index] = __float2half(value); return;
    case DType::bf16: static_cast<__nv_bfloat16*>(base)[index] = __float2bfloat16(value); return;
    default: fail<Error>("no library of ours computes with {}", name(dtype));
  }
}

// A block of memory that a call reads or writes.
struct Piece {
  std::string name;
  const void* address = nullptr;
  std::size_t bytes = 0;

  bool overlaps(const Piece& other) const {
    const auto begin = reinterpret_cast<std::uintptr_t>(address);
    const auto others = reinterpret_cast<std::uintptr_t>(other.address);
    return begin < others + other.bytes && others < begin + bytes;
  }
};

// The alignment that the libraries require of every address.
inline void require_aligned(const std::string& who, const Piece& piece) {
  if (piece.address == nullptr) fail<Error>("{}: {} is null", who, piece.name);
  if (reinterpret_cast<std::uintptr_t>(piece.address) % 16 != 0)
    fail<Error>("{}: {} at {} is not aligned to 16 bytes", who, piece.name, piece.address);
}
inline void require_apart(const std::string& who, const Piece& written, const Piece& other) {
  if (written.overlaps(other))
    fail<Error>("{}: {} is written over {}", who, written.name, other.name);
}

}  // namespace warpstep::cuda
