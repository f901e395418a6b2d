// What the kernels of batch norms share: a matrix of rows by column vectors of 16 bytes, and the
// two stages of what is summed over its rows. A block is up to 16 column vectors, 256 bytes, by
// rows, so that a thread stays in its column and keeps what belongs to its channels in registers;
// blocks are row blocks (x) by column blocks (y). Each column block has a ticket of its own: its
// last block adds what the others have left, and the columns end beside each other.
//
// Row blocks take turns over the matrix, so that all that runs reads one stretch of it. Sums walk
// it from the end: what wrote it has left that in the L2 cache (50 MB of an H200), and the pass
// behind them, from the beginning, finds there what they have read last.
#pragma once

#include "kernels/norm/norm.cuda.h"
#include "kernels/pointwise/column_sums.cuh"

namespace warpstep::cuda {

inline constexpr unsigned norm_threads = column_threads;
inline constexpr unsigned norm_columns = 16;  // vectors of a block, side by side

struct NormRows {
  unsigned rows, columns, channels, real;

  __device__ unsigned column() const { return blockIdx.y * blockDim.x + threadIdx.x; }
  // Rows that row block `block` has where a thread takes `at_once` in a turn.
  __device__ unsigned rows_of(unsigned block, unsigned at_once) const {
    const unsigned turn = blockDim.y * at_once, all = turn * gridDim.x;
    const unsigned rest = rows % all, before = block * turn;
    const unsigned last = rest < before ? 0 : rest - before;
    return rows / all * turn + (last < turn ? last : turn);
  }
};

// load(j, place) for up to `at_once` rows of the thread's column, then use(j, place) for the same,
// and so on; all loads of a turn are in flight at once. Places are elements. From the end, or from
// the beginning.
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

// `width` floats of a channel vector: several loads of 16 bytes.
template <int width>
__device__ inline void load_quads(const float* from, float (&to)[width]) {
#pragma unroll
  for (int i = 0; i < width; i += 4) {
    float quad[4];
    load(from + i, quad);
#pragma unroll
    for (int n = 0; n < 4; ++n) to[i + n] = quad[n];
  }
}

// What row blocks leave for the last one of their columns: two floats a channel.
struct NormPartials {
  float* memory;  // [row blocks][2][channels]
  std::uint32_t* tickets;

  __device__ float* of(const NormRows& matrix, unsigned block, unsigned which,
                       std::size_t channel) const {
    return memory + (std::size_t{block} * 2 + which) * matrix.channels + channel;
  }
};

// The threads of a column block's last block, as quads of its channels by row blocks.
struct LastPlace {
  Place place;
  std::size_t channel;  // first of the quad
  bool mine;            // the others only keep the barriers company

  __device__ LastPlace(const NormRows& matrix, unsigned width) {
    const unsigned first = blockIdx.y * blockDim.x, left = matrix.columns - first;
    const unsigned quads = (left < blockDim.x ? left : blockDim.x) * (width / 4);
    const unsigned thread = threadIdx.y * blockDim.x + threadIdx.x;
    place = {thread % quads, thread / quads, quads, blockDim.x * blockDim.y / quads};
    channel = std::size_t{first} * width + place.column * 4;
    mine = place.row < place.rows;
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

// Row blocks of sums: two blocks for each of an H200's 132 multiprocessors, each with 8192 elements
// or more, and no more than 64 K floats for the last of a column block to read, some 3 us.
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

// Row blocks of a pass that treats every row alone: as many as are resident at once on an H200,
// `resident` a multiprocessor, so that none comes later than the others.
inline unsigned norm_pass_blocks(const NormRows& matrix, unsigned at_once, unsigned resident) {
  const dim3 block = norm_block(matrix.columns);
  const unsigned by_machine = 132 * resident / blocks_for(matrix.columns, block.x);
  const unsigned by_rows = blocks_for(matrix.rows, block.y * at_once);
  const unsigned blocks = by_rows < by_machine ? by_rows : by_machine;
  return blocks > 1 ? blocks : 1;
}

}  // namespace warpstep::cuda
