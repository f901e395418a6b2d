// Attention's products (attention.cpu.cpp) for queries that continue a sequence whose keys and
// values are cached.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "kernels/cpu/gemm.h"

namespace warpstep::cpu {

// `count` queries of one head, each of which sees the positions up to its own. Strips of queries
// share blocks of keys. Costs packing the keys and values once, so that one query is not worth it.
class ContinuedAttention {
 public:
  // Rows of keys, and of values, lie `key_row` floats apart.
  ContinuedAttention(std::int64_t count, std::int64_t features, std::int64_t key_row);

  std::string implementation() const;
  std::int64_t floats() const { return floats_; }  // of `scratch`, on a cache line

  // o [count, features] of queries [count, features] times the scale, the first of which is at
  // position `first`; keys and values begin at position 0.
  void run(const float* queries, std::int64_t first, const float* keys, const float* values,
           float* o, float* scratch) const;

 private:
  std::int64_t count_, features_, key_row_;
  std::shared_ptr<const Operand> by_keys_, by_features_;
  std::int64_t keys_, values_, scores_, sums_, normalizers_, floats_;
};

}  // namespace warpstep::cpu
