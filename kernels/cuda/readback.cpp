#include "kernels/cuda/readback.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "kernels/cuda/check.h"
#include "kernels/cuda/cuda.h"

namespace warpstep::cuda {
namespace {

template <class Half, class Convert>
void widen(const std::byte* from, std::size_t count, std::byte* to, Convert convert) {
  for (std::size_t i = 0; i < count; ++i) {
    Half half;
    std::memcpy(&half, from + i * sizeof half, sizeof half);
    const float number = convert(half);
    std::memcpy(to + i * sizeof number, &number, sizeof number);
  }
}

// Takes the stored bytes of a value piece by piece and fills in the host's. The padding is at the
// ends of axes, so that rows of the innermost axis stay in order.
class Unpacker {
 public:
  Unpacker(const Value& value, std::span<std::byte> plain)
      : dtype_(value.type.dtype),
        logical_(value.type.shape),
        stored_(value.layout.native ? stored_shape(value) : value.type.shape),
        plain_(plain),
        stored_bytes_(size_bytes(dtype_)),
        plain_bytes_(is_float(dtype_) && value.layout.native ? sizeof(float) : stored_bytes_) {
    const int rank = logical_.rank();
    row_ = rank == 0 ? 1 : idx(logical_[rank - 1]);
    stored_row_ = rank == 0 ? 1 : idx(stored_[rank - 1]);
    rows_ = row_ == 0 ? 0 : idx(logical_.count()) / row_;
    if (logical_ == stored_ && plain_bytes_ == stored_bytes_) {
      row_ = stored_row_ = 1;
      rows_ = plain.size() / plain_bytes_;
      is_same_ = true;
    }
  }

  std::size_t row_bytes() const { return std::max<std::size_t>(1, stored_row_ * stored_bytes_); }

  // Whole rows, from the byte at which the piece before ended.
  void take(std::span<const std::byte> piece) {
    if (is_same_) {
      const std::size_t bytes = std::min(piece.size(), plain_.size() - done_);
      if (bytes > 0) std::memcpy(plain_.data() + done_, piece.data(), bytes);
      done_ += bytes;
      return;
    }
    const std::size_t end = begin_ + piece.size() / row_bytes();
    for (; done_ < rows_ && place_ < end; next_row())
      copy_row(piece.data() + (place_ - begin_) * row_bytes(),
               plain_.data() + done_ * row_ * plain_bytes_);
    begin_ = end;
  }

 private:
  void copy_row(const std::byte* from, std::byte* to) const {
    if (plain_bytes_ == stored_bytes_)
      std::memcpy(to, from, row_ * plain_bytes_);
    else if (dtype_ == DType::f16)
      widen<__half>(from, row_, to, [](__half half) { return __half2float(half); });
    else
      widen<__nv_bfloat16>(from, row_, to,
                           [](__nv_bfloat16 half) { return __bfloat162float(half); });
  }

  void next_row() {
    ++done_;
    const int outer = logical_.rank() - 1;
    for (int axis = outer - 1; axis >= 0 && ++at_[idx(axis)] == logical_[axis]; --axis)
      at_[idx(axis)] = 0;
    std::int64_t place = 0;
    for (int axis = 0; axis < outer; ++axis) place = place * stored_[axis] + at_[idx(axis)];
    place_ = idx(place);
  }

  DType dtype_;
  Shape logical_, stored_;
  std::span<std::byte> plain_;
  std::size_t stored_bytes_, plain_bytes_;  // of an element
  std::size_t row_ = 0, stored_row_ = 0;    // elements
  std::size_t rows_ = 0;
  bool is_same_ = false;
  std::array<std::int64_t, Shape::max_rank> at_{};  // of the next row; the last axis is unused
  std::size_t done_ = 0;                            // rows; bytes where both are the same
  std::size_t place_ = 0;                           // of the next row, in stored rows
  std::size_t begin_ = 0;                           // of the next piece, in stored rows
};

}  // namespace

void Readback::read(const Value& value, const void* stored, std::span<std::byte> plain) {
  const std::size_t bytes = value.layout.bytes;
  if (bytes > small_bytes)
    return read_in_pieces(value, static_cast<const std::byte*>(stored), plain);
  std::vector<std::byte> copy(bytes);
  copy_now(copy.data(), stored, bytes);
  Unpacker(value, plain).take(copy);
}

void Readback::read_in_pieces(const Value& value, const std::byte* stored,
                              std::span<std::byte> plain) {
  Unpacker unpacker(value, plain);
  const std::size_t row = unpacker.row_bytes();
  const std::lock_guard lock(mutex_);
  if (!stream_) stream_.emplace();
  if (const std::size_t wanted = std::max(piece_bytes, row); bytes_ < wanted) {
    pieces_ = nullptr;
    bytes_ = 0;
    pieces_ = allocate_pinned(2 * wanted);
    bytes_ = wanted;
  }
  const std::size_t piece = bytes_ / row * row, all = value.layout.bytes;
  const auto place = [&](std::size_t at) { return pieces_.get() + at / piece % 2 * bytes_; };
  const auto enqueue = [&](std::size_t at) {
    check(cudaMemcpyAsync(place(at), stored + at, std::min(piece, all - at), cudaMemcpyDefault,
                          stream_->handle()),
          "cudaMemcpyAsync");
    return stream_->mark();
  };
  std::uint64_t mark = enqueue(0);
  for (std::size_t at = 0; at < all; at += piece) {
    const std::uint64_t copied = mark;
    if (at + piece < all) mark = enqueue(at + piece);
    stream_->wait_for(copied);
    unpacker.take({place(at), std::min(piece, all - at)});
  }
}

}  // namespace warpstep::cuda
