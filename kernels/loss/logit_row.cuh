// A row of logits, read by a group of lanes: the first vector of each lane stays in registers.
#pragma once

#include <cmath>

#include "kernels/cuda/vector.cuh"

namespace warpstep::cuda {

// One lane's part of a row. `ahead` vectors are on their way while one is used.
template <class T, unsigned ahead = 1>
class LogitRow {
 public:
  static constexpr int width = vector_width<T>;
  using Vector = Packed<T, width>;  // addresses by its number cost the fewest instructions

  __device__ LogitRow(const T* row, unsigned vectors, int classes, unsigned lane, unsigned lanes)
      : row_(reinterpret_cast<const Vector*>(row)),
        vectors_(vectors),
        classes_(classes),
        lane_(lane),
        lanes_(lanes) {
    if (lane >= vectors) return;
    const Vector first = row_[lane];
    unpack(first, first_);
    pad(lane, first_, -INFINITY);
  }
  // f(vector's number, its elements) for each vector of the lane; elements after the last class are
  // -inf. f may write over the vector that it gets.
  template <class F>
  __device__ void each(F f) const {
    if (lane_ >= vectors_) return;
    unsigned v = lane_ + lanes_;
    Vector next[ahead];
#pragma unroll
    for (unsigned j = 0; j < ahead; ++j)
      if (v + j * lanes_ < vectors_) next[j] = row_[v + j * lanes_];
    f(lane_, first_);
    while (is_whole(v)) {
#pragma unroll
      for (unsigned j = 0; j < ahead; ++j) {
        if (!is_whole(v)) break;
        float x[width];
        unpack(next[j], x);
        const unsigned own = v, later = v + ahead * lanes_;
        if (later < vectors_) next[j] = row_[later];
        v += lanes_;
        f(own, x);
      }
    }
    // Apart, as else each vector would pay for the padding: ptxas makes 15 predicated instructions
    // of it, not a branch.
#pragma unroll 1
    for (; v < vectors_; v += lanes_) {
      const Vector last = row_[v];
      float x[width];
      unpack(last, x);
      pad(v, x, -INFINITY);
      f(v, x);
    }
  }
  // Whether all elements of a vector are of classes.
  __device__ bool is_whole(unsigned vector) const {
    return vector < static_cast<unsigned>(classes_) / width;
  }
  // Sets the elements after the last class.
  __device__ void pad(unsigned vector, float (&x)[width], float value) const {
    const int left = classes_ - static_cast<int>(vector * width);
    if (left >= width) return;
#pragma unroll
    for (int i = 0; i < width; ++i)
      if (i >= left) x[i] = value;
  }
  // Zeros in place of the lane's vectors of a row of the same size.
  __device__ void clear(T* row) const {
    for (unsigned v = lane_; v < vectors_; v += lanes_) reinterpret_cast<Vector*>(row)[v] = {};
  }

 private:
  const Vector* row_;
  unsigned vectors_;
  int classes_;
  unsigned lane_, lanes_;
  float first_[width];
};

}  // namespace warpstep::cuda
