// Rows of logits, read by a group of lanes, a vector of 16 bytes at a time.
#pragma once

#include <cmath>

#include "kernels/cuda/tensor_cores.cuh"
#include "kernels/cuda/vector.cuh"

namespace warpstep::cuda {

// One lane's part of a row.
template <class T>
class LogitVectors {
 public:
  static constexpr int width = vector_width<T>;
  using Vector = Packed<T, width>;  // addresses by its number cost the fewest instructions

  __device__ LogitVectors(unsigned vectors, int classes, unsigned lane, unsigned lanes)
      : vectors_(vectors), classes_(classes), lane_(lane), lanes_(lanes) {}
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

 protected:
  // f(vector's number, its elements) for the lane's vectors from `v` on that are not whole.
  // Apart, as else each vector would pay for the padding: ptxas makes 15 predicated instructions
  // of it, not a branch.
  template <class F>
  __device__ void each_padded(const Vector* row, unsigned v, F f) const {
#pragma unroll 1
    for (; v < vectors_; v += lanes_) {
      const Vector last = row[v];
      float x[width];
      unpack(last, x);
      pad(v, x, -INFINITY);
      f(v, x);
    }
  }

  unsigned vectors_;
  int classes_;
  unsigned lane_, lanes_;
};

// A row in the device's memory: the first vector of each lane stays in registers, and `ahead`
// vectors are on their way while one is used.
template <class T, unsigned ahead = 1>
class LogitRow : public LogitVectors<T> {
  using Base = LogitVectors<T>;
  using Base::vectors_, Base::lane_, Base::lanes_;

 public:
  using Base::width, Base::is_whole, Base::pad;
  using typename Base::Vector;

  __device__ LogitRow(const T* row, unsigned vectors, int classes, unsigned lane, unsigned lanes)
      : Base(vectors, classes, lane, lanes), row_(reinterpret_cast<const Vector*>(row)) {
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
    this->each_padded(row_, v, f);
  }
  // each(), for the last time.
  template <class F>
  __device__ void finish(F f) const {
    each(f);
  }
  // Zeros in place of the lane's vectors of a row of the same size.
  __device__ void clear(T* row) const {
    for (unsigned v = lane_; v < vectors_; v += lanes_) reinterpret_cast<Vector*>(row)[v] = {};
  }

 private:
  const Vector* row_;
  float first_[width];
};

// A row in the block's shared memory, `kept`, of whose vectors each lane reads those that it has
// copied there. The next row's are on their way from the moment that the lane is done with this
// one's.
template <class T>
class KeptLogitRow : public LogitVectors<T> {
  using Base = LogitVectors<T>;
  using Base::vectors_, Base::lane_, Base::lanes_;

 public:
  using Base::width, Base::is_whole;
  using typename Base::Vector;

  // Of the first row, which may be null: there is none.
  __device__ KeptLogitRow(const T* row, void* kept, unsigned vectors, int classes, unsigned lane,
                          unsigned lanes)
      : Base(vectors, classes, lane, lanes),
        kept_(static_cast<Vector*>(kept)),
        next_(reinterpret_cast<const Vector*>(row)) {
    for (unsigned v = lane_; v < vectors_; v += lanes_) begin_next(v);
  }
  // Waits for the row, and names the one after it; null: there is none.
  __device__ void begin(const T* next) {
    end_group();
    await_groups<0>();
    next_ = reinterpret_cast<const Vector*>(next);
  }
  template <class F>
  __device__ void each(F f) const {
    unsigned v = lane_;
#pragma unroll 2
    for (; is_whole(v); v += lanes_) {
      const Vector own = kept_[v];
      float x[width];
      unpack(own, x);
      f(v, x);
    }
    this->each_padded(kept_, v, f);
  }
  template <class F>
  __device__ void finish(F f) const {
    each([&](unsigned v, const float(&x)[width]) {
      f(v, x);
      begin_next(v);
    });
  }
  __device__ void clear(T* row) const {
    for (unsigned v = lane_; v < vectors_; v += lanes_) {
      reinterpret_cast<Vector*>(row)[v] = {};
      begin_next(v);
    }
  }

 private:
  __device__ void begin_next(unsigned v) const {
    if (next_ != nullptr) begin_copy(kept_ + v, next_ + v, false);
  }

  Vector* kept_;
  const Vector* next_;
};

}  // namespace warpstep::cuda
