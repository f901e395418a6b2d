// A row of logits, read by a group of lanes: the first vector of each lane stays in registers.
#pragma once

#include <cmath>

#include "kernels/cuda/vector.cuh"

namespace warpstep::cuda {

// One lane's part of a row. Elements after the last class are -inf.
template <class T>
class LogitRow {
 public:
  static constexpr int width = vector_width<T>;

  __device__ LogitRow(const T* row, unsigned vectors, int classes, unsigned lane, unsigned lanes)
      : row_(row), vectors_(vectors), classes_(classes), lane_(lane), lanes_(lanes) {
    if (lane < vectors) widen_all(fetch(lane), lane, first_);
  }
  // f(class of the first element, width elements) for each vector of the lane. The next one is on
  // its way meanwhile; f may write over the one that it gets.
  template <class F>
  __device__ void each(F f) const {
    if (lane_ >= vectors_) return;
    f(lane_ * width, first_);
    unsigned v = lane_ + lanes_;
    Packed<T, width> next;
    if (v < vectors_) next = fetch(v);
    while (v < vectors_) {
      float x[width];
      widen_all(next, v, x);
      const unsigned own = v;
      v += lanes_;
      if (v < vectors_) next = fetch(v);
      f(own * width, x);
    }
  }

 private:
  __device__ Packed<T, width> fetch(unsigned vector) const {
    return read<width>(row_ + std::size_t{vector} * width);
  }
  __device__ void widen_all(const Packed<T, width>& packed, unsigned vector,
                            float (&x)[width]) const {
    unpack(packed, x);
#pragma unroll
    for (int i = 0; i < width; ++i)
      if (static_cast<int>(vector * width) + i >= classes_) x[i] = -INFINITY;
  }

  const T* row_;
  unsigned vectors_;
  int classes_;
  unsigned lane_, lanes_;
  float first_[width];
};

}  // namespace warpstep::cuda
