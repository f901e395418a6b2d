// Embeddings of tokens and positions, and their adjoint. Bound by memory; the examples are GPT-2's
// at batch 64 in bf16, 65536 tokens of 768 channels, 101 MB:
//   forward   reads the tokens' rows of the table, 77 MB of which no row is read again before it
//             leaves the L2 cache at the worst, and writes x: 0.05 ms
//   adjoint   reads d_x by token and by position; reads and writes the tokens' rows of the table's
//             gradient: 0.07 ms
// These times are computed from the bytes at 4.3 TB/s, and not measured yet.
#include "kernels/embed/embed.cuda.h"

#include "kernels/cuda/divider.cuh"
#include "kernels/pointwise/column_sums.cuh"

namespace warpstep::cuda {
namespace {

constexpr unsigned embed_threads = 256;

template <class T>
__global__ void __launch_bounds__(embed_threads)
    embed_kernel(const std::int32_t* __restrict__ tokens, const T* __restrict__ table,
                 const T* __restrict__ positions, T* __restrict__ x, unsigned vectors,
                 Divider columns, Divider sequence) {
  constexpr int width = vector_width<T>;
  const unsigned v = blockIdx.x * embed_threads + threadIdx.x;
  if (v >= vectors) return;
  unsigned column = v, position = columns.split(column);
  const std::size_t row = static_cast<std::size_t>(tokens[position]);
  sequence.split(position);
  float of_token[width], of_position[width];
  load(table + (row * columns.divisor() + column) * width, of_token);
  load(positions + (std::size_t{position} * columns.divisor() + column) * width, of_position);
#pragma unroll
  for (int i = 0; i < width; ++i) of_token[i] += of_position[i];
  store(x + std::size_t{v} * width, of_token);
}

}  // namespace

void embed(const EmbedShape& shape, const std::int32_t* tokens, const void* table,
           const void* positions, void* x, DType dtype, cudaStream_t stream) {
  dispatch("embed", dtype, [&]<class T>() {
    const std::int64_t count = shape.tokens * shape.channels;
    if (count == 0) return;
    const unsigned vectors = index32("embed", "elements of x", count, vector_width<T>);
    const unsigned columns = index32("embed", "channels", shape.channels, vector_width<T>);
    launch("embed", embed_kernel<T>,
           {.grid = blocks_for(vectors, embed_threads), .block = embed_threads, .stream = stream},
           tokens, static_cast<const T*>(table), static_cast<const T*>(positions),
           static_cast<T*>(x), vectors, Divider(columns),
           Divider(index32("embed", "positions", shape.sequence)));
  });
}

// The adjoint.

namespace {

constexpr unsigned rows_ahead = 8;    // whose loads are in flight: those of a chunk of few tokens
constexpr unsigned chunks_ahead = 8;  // likewise

// The numbers of the tokens sorted by token, in chunks that depend on their count alone. A run, the
// numbers of one token, may continue in the chunks after its first one. Each chunk has two rows of
// memory: `head`, the sum of a run that began before it, and `tail`, that of a run that begins in
// it and continues.
template <class T>
struct TableGradient {
  const T* d_x;
  const std::int32_t *tokens, *order;
  T* d_table;
  float* parts;  // [chunks][head and tail][columns vectors]
  unsigned count, chunk, chunks, columns;

  __device__ std::int32_t token(unsigned i) const { return tokens[order[i]]; }
  // Whether numbers i - 1 and i of the list are of one run.
  __device__ bool joined(unsigned i) const {
    return i > 0 && i < count && token(i - 1) == token(i);
  }
  __device__ unsigned begin(unsigned k) const { return k * chunk; }
  __device__ unsigned end(unsigned k) const {
    return count - begin(k) < chunk ? count : begin(k) + chunk;
  }
  __device__ float* head(unsigned k, unsigned column) const {
    return parts + (std::size_t{2} * k * columns + column) * vector_width<T>;
  }
  __device__ float* tail(unsigned k, unsigned column) const { return head(k, columns + column); }
  // Adds the whole sum of a run to the table.
  __device__ void give(std::int32_t row, unsigned column,
                       const float (&sum)[vector_width<T>]) const {
    T* to = d_table + (static_cast<std::size_t>(row) * columns + column) * vector_width<T>;
    float total[vector_width<T>];
    load(to, total);
#pragma unroll
    for (int i = 0; i < vector_width<T>; ++i) total[i] += sum[i];
    store(to, total);
  }
};

// A thread sums the runs of its chunk (y) and column vector (x), in order: those inside of the
// chunk go to the table, parts of others to the workspace. Runs are of one token each, so no two
// threads write one place.
template <class T>
__global__ void __launch_bounds__(embed_threads) embed_runs(TableGradient<T> of) {
  constexpr int width = vector_width<T>;
  const unsigned column = blockIdx.y * blockDim.x + threadIdx.x;
  const unsigned k = blockIdx.x * blockDim.y + threadIdx.y;
  if (k >= of.chunks || column >= of.columns) return;
  const unsigned begin = of.begin(k), end = of.end(k);
  float sum[width] = {};
  std::int32_t now = of.token(begin);
  bool before = of.joined(begin);
  for (unsigned first = begin; first < end; first += rows_ahead) {
    Packed<T, width> rows[rows_ahead];
    std::int32_t tokens[rows_ahead] = {};
#pragma unroll
    for (unsigned j = 0; j < rows_ahead; ++j) {
      if (first + j >= end) continue;
      const std::int32_t n = of.order[first + j];
      tokens[j] = of.tokens[n];
      rows[j] = read<width>(of.d_x + (static_cast<std::size_t>(n) * of.columns + column) * width);
    }
#pragma unroll
    for (unsigned j = 0; j < rows_ahead; ++j) {
      if (first + j >= end) continue;
      if (tokens[j] != now) {  // the run before this number is complete
        if (before)
          store_quads(of.head(k, column), sum);
        else
          of.give(now, column, sum);
        now = tokens[j];
        before = false;
#pragma unroll
        for (int i = 0; i < width; ++i) sum[i] = 0;
      }
      float x[width];
      unpack(rows[j], x);
#pragma unroll
      for (int i = 0; i < width; ++i) sum[i] += x[i];
    }
  }
  if (before)
    store_quads(of.head(k, column), sum);
  else if (of.joined(end))
    store_quads(of.tail(k, column), sum);
  else
    of.give(now, column, sum);
}

// For each of the chunks from k on, whether it begins with `token`. Tokens are sorted: those that
// do follow each other.
template <class T>
__device__ inline void begin_with(const TableGradient<T>& of, unsigned k, std::int32_t token,
                                  bool (&found)[chunks_ahead]) {
#pragma unroll
  for (unsigned j = 0; j < chunks_ahead; ++j)
    found[j] = k + j < of.chunks && of.token(of.begin(k + j)) == token;
}

// The run that begins in a chunk and continues, if there is one: its tail, then the heads after it.
// A frequent token's run is in hundreds of chunks: eight heads are read at once, and meanwhile the
// tokens of the next eight.
template <class T>
__global__ void __launch_bounds__(embed_threads) embed_joins(TableGradient<T> of) {
  constexpr int width = vector_width<T>;
  const unsigned column = blockIdx.y * blockDim.x + threadIdx.x;
  const unsigned k = blockIdx.x * blockDim.y + threadIdx.y;
  if (k >= of.chunks || column >= of.columns || !of.joined(of.end(k))) return;
  const std::int32_t token = of.token(of.end(k) - 1);
  if (of.joined(of.begin(k)) && of.token(of.begin(k)) == token) return;  // began before
  float sum[width];
  load_quads(of.tail(k, column), sum);
  bool mine[chunks_ahead];
  begin_with(of, k + 1, token, mine);
  for (unsigned first = k + 1; mine[0]; first += chunks_ahead) {
    float heads[chunks_ahead][width];
#pragma unroll
    for (unsigned j = 0; j < chunks_ahead; ++j)
      if (mine[j]) load_quads(of.head(first + j, column), heads[j]);
    bool next[chunks_ahead];
    begin_with(of, first + chunks_ahead, token, next);
#pragma unroll
    for (unsigned j = 0; j < chunks_ahead; ++j) {
      if (mine[j])
#pragma unroll
        for (int i = 0; i < width; ++i) sum[i] += heads[j][i];
      mine[j] = next[j];
    }
  }
  of.give(token, column, sum);
}

// The sum of every `sequence`-th row of d_x from row blockIdx.x on: a column vector by the block's
// rows of threads.
template <class T>
__global__ void __launch_bounds__(column_threads)
    embed_positions(const T* __restrict__ d_x, T* __restrict__ d_positions, unsigned sequences,
                    unsigned columns) {
  constexpr int width = vector_width<T>;
  const Place place{threadIdx.x, threadIdx.y, blockDim.x, blockDim.y};
  const unsigned column = blockIdx.y * blockDim.x + threadIdx.x;
  const std::size_t at = (std::size_t{blockIdx.x} * columns + column) * width;
  float sum[width] = {};
  if (column < columns)
    add_rows<T>(d_x + at, std::size_t{gridDim.x} * columns * width, 0, sequences, place, sum);
  sum_column(sum, place);
  if (place.row == 0 && column < columns) store(d_positions + at, sum);
}

// 1024 chunks or fewer, by 96 threads for 768 channels: three blocks per multiprocessor.
unsigned tokens_per_chunk(std::int64_t tokens) {
  return static_cast<unsigned>(tokens <= 8 * 1024 ? 8 : (tokens + 1023) / 1024);
}

unsigned power_of_two_within(unsigned count, unsigned most) {
  unsigned power = 1;
  while (power * 2 <= count && power < most) power *= 2;
  return power;
}

template <class T>
void launch_table(const EmbedShape& shape, const EmbedGradBuffers& buffers, float* workspace,
                  cudaStream_t stream) {
  const unsigned columns = index32("embed_grad", "channels", shape.channels, vector_width<T>);
  const unsigned count = index32("embed_grad", "tokens", shape.tokens);
  const unsigned chunk = tokens_per_chunk(shape.tokens), chunks = blocks_for(count, chunk);
  const TableGradient<T> of{static_cast<const T*>(buffers.d_x),
                            buffers.tokens,
                            buffers.order,
                            static_cast<T*>(buffers.d_table),
                            workspace,
                            count,
                            chunk,
                            chunks,
                            columns};
  const dim3 block = block_over(columns, 32);
  const LaunchShape launched{
      .grid = dim3(blocks_for(chunks, block.y), blocks_for(columns, block.x)),
      .block = block,
      .stream = stream};
  launch("embed_runs", embed_runs<T>, launched, of);
  launch("embed_joins", embed_joins<T>, launched, of);
}

template <class T>
void launch_positions(const EmbedShape& shape, const EmbedGradBuffers& buffers,
                      cudaStream_t stream) {
  const unsigned columns = index32("embed_grad", "channels", shape.channels, vector_width<T>);
  const unsigned positions = index32("embed_grad", "positions", shape.sequence);
  const unsigned sequences = index32("embed_grad", "tokens", shape.tokens) / positions;
  const unsigned y = power_of_two_within(sequences, 32);
  const unsigned most = column_threads / y, x = columns < most ? columns : most;
  launch("embed_positions", embed_positions<T>,
         {.grid = dim3(positions, blocks_for(columns, x)), .block = dim3(x, y), .stream = stream},
         static_cast<const T*>(buffers.d_x), static_cast<T*>(buffers.d_positions), sequences,
         columns);
}

}  // namespace

std::size_t embed_grad_workspace(const EmbedShape& shape) {
  const std::int64_t chunk = tokens_per_chunk(shape.tokens);
  const auto rows = static_cast<std::size_t>((shape.tokens + chunk - 1) / chunk) * 2;
  return rows * static_cast<std::size_t>(shape.channels) * sizeof(float);
}

void embed_grad(const EmbedShape& shape, const EmbedGradBuffers& buffers, DType dtype,
                void* workspace, cudaStream_t stream) {
  dispatch("embed_grad", dtype, [&]<class T>() {
    if (shape.tokens * shape.channels == 0) return;
    launch_table<T>(shape, buffers, static_cast<float*>(workspace), stream);
    launch_positions<T>(shape, buffers, stream);
  });
}

}  // namespace warpstep::cuda
