// Shared by the batch norm kernels: a matrix of rows by column vectors of 16 bytes, and sums over
// its rows in two stages. A block is up to 16 column vectors (256 bytes) by rows, so that a thread
// stays in its column and keeps its channels' numbers in registers; the grid is row blocks (x) by
// column blocks (y). Each column block has its own ticket: the last of its blocks to finish adds
// the partial sums of all of them, so that column blocks finish independently.
//
// Row blocks take turns over the matrix, so that all running blocks read one contiguous stretch.
// Sums read it from the end, because the kernel that wrote it left the end in the L2 cache (50 MB
// on an H200); the next pass reads from the beginning, which the sums have read last.
#pragma once

#include "kernels/norm/norm.cuda.h"
#include "kernels/pointwise/column_sums.cuh"

namespace warpstep::cuda {

inline constexpr unsigned norm_threads = column_threads;
inline constexpr unsigned norm_columns = 16;  // column vectors per block

struct NormRows {
  unsigned rows, columns, channels, real;

  __device__ unsigned column() const { return blockIdx.y * blockDim.x + threadIdx.x; }
  // The number of rows of row block `block`, where a thread reads `at_once` rows per turn.
  __device__ unsigned rows_of(unsigned block, unsigned at_once) const {
    const unsigned turn = blockDim.y * at_once, all = turn * gridDim.x;
    const unsigned rest = rows % all, before = block * turn;
    const unsigned last = rest < before ? 0 : rest - before;
    return rows / all * turn + (last < turn ? last : turn);
  }
};

// Walks over the thread's rows of its column in turns of up to `at_once`: first load(j, place) for
// all rows of the turn, so that all its loads are in flight, then use(j, place) for the same rows.
// A place is an index of elements. `from_end`: in reverse order of the rows.
template <int width, unsigned at_once, bool from_end, class Load, class Use>
__device__ inline void walk(const NormRows& matrix, Load load, Use use) {
  if (matrix.column() >= matrix.columns) return;
  const unsigned step = gridDim.x * blockDim.y * at_once;
  for (unsigned first = blockIdx.x * blockDim.y * at_once + threadIdx.y; first < matrix.rows;
       first += step) {
    const auto place = [&](unsigned row) {
      const std::size_t at = from_end ? matrix.rows - 1 - row : row;
      return (at * matrix.columns + matrix.column()) * width;
    };
#pragma unroll
    for (unsigned j = 0; j < at_once; ++j)
      if (const unsigned row = first + j * blockDim.y; row < matrix.rows) load(j, place(row));
#pragma unroll
    for (unsigned j = 0; j < at_once; ++j)
      if (const unsigned row = first + j * blockDim.y; row < matrix.rows) use(j, place(row));
  }
}

// The row blocks' partial sums, which the last block of a column block adds: two floats per
// channel.
struct NormPartials {
  float* memory;  // [row blocks][2][channels]
  std::uint32_t* tickets;

  __device__ float* of(const NormRows& matrix, unsigned block, unsigned which,
                       std::size_t channel) const {
    return memory + (std::size_t{block} * 2 + which) * matrix.channels + channel;
  }
};

// The position of a thread of the last block: a quad of channels, and the row blocks that it adds.
struct LastPlace {
  Place place;
  std::size_t channel;  // first of the quad
  bool active;          // the others only participate in __syncthreads()

  __device__ LastPlace(const NormRows& matrix, unsigned width) {
    const unsigned first = blockIdx.y * blockDim.x, left = matrix.columns - first;
    const unsigned quads = (left < blockDim.x ? left : blockDim.x) * (width / 4);
    const unsigned thread = threadIdx.y * blockDim.x + threadIdx.x;
    place = {thread % quads, thread / quads, quads, blockDim.x * blockDim.y / quads};
    channel = std::size_t{first} * width + place.column * 4;
    active = place.row < place.rows;
  }
};

// The channels' numbers in y = (x - mean) * scale + beta: subtracting first keeps precision where
// the mean is large.
struct Channels {
  const float *gamma, *beta, *mean;
  const float* inv_std_or_var;  // inv_std in training, else the running variance
  float epsilon;
};

template <bool training, int width>
struct OwnChannels {
  float mean[width] = {}, scale[width] = {}, beta[width] = {};

  __device__ OwnChannels(const Channels& from, const NormRows& matrix) {
    if (matrix.column() >= matrix.columns) return;
    const std::size_t channel = std::size_t{matrix.column()} * width;
    float inv_std[width] = {};
    load_quads(from.gamma + channel, scale);
    load_quads(from.beta + channel, beta);
    if constexpr (training) {
      load_quads(from.mean + channel, mean);
      load_quads(from.inv_std_or_var + channel, inv_std);
    }
#pragma unroll
    for (unsigned i = 0; i < width; ++i) {
      if (!training && channel + i < matrix.real) {
        mean[i] = from.mean[channel + i];
        inv_std[i] = 1 / sqrtf(from.inv_std_or_var[channel + i] + from.epsilon);
      }
      scale[i] *= inv_std[i];
    }
  }
};

template <class T>
NormRows norm_rows(const char* name, const NormShape& shape) {
  return {.rows = index32(name, "rows", shape.rows),
          .columns = index32(name, "channels", shape.channels, vector_width<T>),
          .channels = static_cast<unsigned>(shape.channels),
          .real = static_cast<unsigned>(shape.real)};
}

inline dim3 norm_block(unsigned columns) {
  return block_over(columns, norm_columns);
}

inline LaunchShape norm_launch(const NormRows& matrix, unsigned row_blocks, cudaStream_t stream) {
  const dim3 block = norm_block(matrix.columns);
  return {.grid = dim3(row_blocks, blocks_for(matrix.columns, block.x)),
          .block = block,
          .stream = stream};
}

// The number of row blocks for sums: two blocks for each of an H200's 132 multiprocessors, at least
// 8192 elements per block, and at most 64 K floats that the last block of a column block reads,
// about 3 us.
inline unsigned norm_sum_blocks(std::int64_t rows, std::int64_t channels, DType dtype) {
  const auto width = static_cast<std::int64_t>(16 / size_bytes(dtype));
  const std::int64_t across = norm_columns * width, most = channels < across ? channels : across;
  if (most == 0) return 1;
  const std::int64_t by_work = rows * most / 8192, by_rest = 32768 / most;
  const std::int64_t by_machine = 264 / ((channels + across - 1) / across);
  std::int64_t blocks = by_work < by_rest ? by_work : by_rest;
  if (blocks > by_machine) blocks = by_machine;
  return static_cast<unsigned>(blocks > 1 ? blocks : 1);
}

// The number of row blocks for a pass without sums: as many as an H200 runs at once, `resident` per
// multiprocessor, so that all of them start together.
inline unsigned norm_pass_blocks(const NormRows& matrix, unsigned at_once, unsigned resident) {
  const dim3 block = norm_block(matrix.columns);
  const unsigned by_machine = 132 * resident / blocks_for(matrix.columns, block.x);
  const unsigned by_rows = blocks_for(matrix.rows, block.y * at_once);
  const unsigned blocks = by_rows < by_machine ? by_rows : by_machine;
  return blocks > 1 ? blocks : 1;
}

// Two floats of each channel and rank: of_ranks[rank][2][channels]. Null in a norm of one rank.
struct OfRanks {
  float* memory = nullptr;
  unsigned channels = 0, ranks = 1, own = 0;

  __device__ float& of(unsigned rank, unsigned which, std::size_t channel) const {
    return memory[(std::size_t{rank} * 2 + which) * channels + channel];
  }
};

inline bool is_empty(const NormShape& shape) {
  return shape.rows == 0 || shape.channels == 0;
}

// Two floats per channel and row block: see NormPartials.
inline std::size_t partial_floats(const NormShape& shape, DType dtype) {
  return norm_sum_blocks(shape.rows, shape.channels, dtype) * 2 *
         static_cast<std::size_t>(shape.channels);
}

inline std::size_t rank_floats(const NormShape& shape) {
  return shape.ranks > 1 ? static_cast<std::size_t>(shape.ranks * 2 * shape.channels) : 0;
}

inline LaunchShape join_launch(const NormShape& shape, cudaStream_t stream) {
  constexpr unsigned threads = 128;
  return {.grid = dim3(blocks_for(static_cast<unsigned>(shape.channels), threads)),
          .block = dim3(threads),
          .stream = stream};
}

inline OfRanks of_ranks(const NormShape& shape, DType dtype, void* workspace, int rank) {
  if (shape.ranks == 1) return {};
  return {batch_norm_of_ranks(shape, dtype, workspace), static_cast<unsigned>(shape.channels),
          static_cast<unsigned>(shape.ranks), static_cast<unsigned>(rank)};
}

}  // namespace warpstep::cuda
