// The emulated grid behaves as CUDA's programming guide says, under any schedule.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "engine/core/error.h"
#include "engine/core/types.h"
#include "kernels/cuda/overlap.cuh"
#include "kernels/cuda/tensor_cores.cuh"

namespace warpstep::cuda {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

class Emulator : public testing::TestWithParam<std::uint64_t> {
 protected:
  void SetUp() override { simt::set_schedule(GetParam()); }
  void TearDown() override { simt::set_schedule(0); }
};
INSTANTIATE_TEST_SUITE_P(Schedules, Emulator, testing::Values(0, 1, 2, 3));

__global__ void count_visits(int* visits) {
  const dim3 g = gridDim, b = blockDim;
  const unsigned block = blockIdx.x + g.x * (blockIdx.y + g.y * blockIdx.z);
  const unsigned thread = threadIdx.x + b.x * (threadIdx.y + b.y * threadIdx.z);
  atomicAdd(&visits[block * b.x * b.y * b.z + thread], 1);
}

TEST_P(Emulator, EveryThreadOfEveryBlockRunsOnce) {
  std::vector<int> visits(3 * 2 * 5 * 7 * 3 * 2);
  launch("count_visits", count_visits, {.grid = {3, 2, 5}, .block = {7, 3, 2}}, visits.data());
  EXPECT_THAT(visits, Each(1));
}

// d [16,8] = a [16,16] b, with b stored [16,8] or, transposed, [8,16].
template <class T, bool transposed>
__global__ void multiply_matrices(const T* a, const T* b, float* d) {
  T* const rows = dynamic_shared<T>();
  for (unsigned i = threadIdx.x; i < 256; i += 32) rows[i] = a[i];
  T* const others = rows + 256;
  for (unsigned i = threadIdx.x; i < 128; i += 32) others[i] = b[i];
  __syncwarp();
  const unsigned lane = threadIdx.x, matrix = lane / 8;
  unsigned of_a[4], of_b[4];
  load_matrices(of_a, rows + (lane % 16) * 16 + lane / 16 * 8);
  if constexpr (transposed)
    load_matrices(of_b, others + lane % 8 * 16 + matrix % 2 * 8);
  else
    load_transposed(of_b, others + (matrix % 2 * 8 + lane % 8) * 8);
  float sum[4] = {1, 1, 1, 1};
  multiply_add<T>(sum, of_a, of_b[0], of_b[1]);
  for (unsigned i = 0; i < 4; ++i) d[(lane / 4 + i / 2 * 8) * 8 + lane % 4 * 2 + i % 2] = sum[i];
}

template <class T, bool transposed>
void expect_product() {
  std::vector<T> a(256), b(128);
  for (unsigned i = 0; i < 256; ++i) a[i] = T(static_cast<float>(i % 7) - 3);
  for (unsigned i = 0; i < 128; ++i) b[i] = T(static_cast<float>(i % 5) - 2);
  std::vector<float> d(128), expected(128, 1);
  for (unsigned i = 0; i < 16; ++i)
    for (unsigned j = 0; j < 8; ++j)
      for (unsigned k = 0; k < 16; ++k)
        expected[i * 8 + j] += static_cast<float>(a[i * 16 + k]) *
                               static_cast<float>(transposed ? b[j * 16 + k] : b[k * 8 + j]);
  launch("multiply_matrices", multiply_matrices<T, transposed>,
         {.grid = 1, .block = 32, .shared_bytes = 384 * sizeof(T)}, a.data(), b.data(), d.data());
  EXPECT_EQ(d, expected);
}

TEST_P(Emulator, TensorCoresMultiplyMatrices) {
  expect_product<__half, false>();
  expect_product<__half, true>();
  expect_product<__nv_bfloat16, false>();
  expect_product<__nv_bfloat16, true>();
}

__global__ void copy_words(const int* in, int* out) {
  int* const words = dynamic_shared<int>();
  const unsigned own = 4 * threadIdx.x;
  begin_copy(words + own, in + own, false);
  end_group();
  begin_copy(words + 128 + own, in, true);
  end_group();
  await_groups<1>();
  __syncthreads();
  const unsigned other = 4 * ((threadIdx.x + 1) % 32);
  out[threadIdx.x] = words[other];
  out[32 + threadIdx.x] = words[128 + other];  // not awaited
  __syncthreads();
  await_groups<0>();
  __syncthreads();
  out[64 + threadIdx.x] = words[128 + other];
}

TEST_P(Emulator, CopiesToSharedMemoryAreThereWhenTheyAreAwaited) {
  std::vector<int> in(128), out(96);
  std::iota(in.begin(), in.end(), 0);
  launch("copy_words", copy_words, {.grid = 1, .block = 32, .shared_bytes = 1024}, in.data(),
         out.data());
  for (int t = 0; t < 32; ++t) EXPECT_EQ(out[idx(t)], (t + 1) % 32 * 4);
  // As when the block began, or what came.
  EXPECT_THAT(std::span(out).subspan(32, 32), Each(simt::schedule() % 2 == 1 ? 0 : -1));
  EXPECT_THAT(std::span(out).subspan(64, 32), Each(0));
}

__global__ void copy_pairs(const int* in, int* out, unsigned skipped) {
  int* const words = dynamic_shared<int>();
  const unsigned own = 2 * threadIdx.x;
  begin_copy<8>(words + own + skipped, in + own, threadIdx.x % 2 == 1);
  end_group();
  await_groups<0>();
  out[own] = words[own];
  out[own + 1] = words[own + 1];
}

TEST_P(Emulator, CopiesOfEightBytesAreAtMultiplesOfEight) {
  std::vector<int> in(64, 7), out(64);
  const LaunchShape shape{.grid = 1, .block = 32, .shared_bytes = 264};
  launch("copy_pairs", copy_pairs, shape, in.data(), out.data(), 0U);
  for (int i = 0; i < 64; ++i) EXPECT_EQ(out[idx(i)], i / 2 % 2 == 0 ? 7 : 0);
  EXPECT_THAT([&] { launch("copy_pairs", copy_pairs, shape, in.data(), out.data(), 1U); },
              testing::ThrowsMessage<simt::Error>(HasSubstr("is not at multiples of 8 bytes")));
}

__global__ void prefix_sums(const int* in, int* out) {
  int* sums = dynamic_shared<int>();
  const unsigned t = threadIdx.x;
  sums[t] = in[t];
  for (unsigned step = 1; step < blockDim.x; step *= 2) {
    __syncthreads();
    const int other = t >= step ? sums[t - step] : 0;
    __syncthreads();
    sums[t] += other;
  }
  out[t] = sums[t];
}

TEST_P(Emulator, BarriersOrderABlock) {
  std::vector<int> in(200), out(200), expected(200);
  std::iota(in.begin(), in.end(), 1);
  std::partial_sum(in.begin(), in.end(), expected.begin());
  launch("prefix_sums", prefix_sums, {.grid = 1, .block = 200, .shared_bytes = 800}, in.data(),
         out.data());
  EXPECT_EQ(out, expected);
}

__global__ void barrier_votes(int below, int* out) {
  const int predicate = static_cast<int>(threadIdx.x) < below ? 7 : 0;
  const int number = __syncthreads_count(predicate);
  const int any = __syncthreads_or(predicate), all = __syncthreads_and(predicate);
  int* mine = out + threadIdx.x * 3;
  mine[0] = number, mine[1] = any, mine[2] = all;
}

TEST_P(Emulator, BarriersCountPredicates) {
  for (const int below : {0, 1, 69, 70}) {
    std::vector<int> out(70 * 3);
    launch("barrier_votes", barrier_votes, {.grid = 1, .block = 70}, below, out.data());
    for (std::size_t t = 0; t < 70; ++t)
      EXPECT_THAT(std::vector(&out[t * 3], &out[t * 3] + 3),
                  ElementsAre(below, below > 0 ? 1 : 0, below == 70 ? 1 : 0));
  }
}

template <class T>
__global__ void shuffles(T* out, int width) {
  const auto lane = static_cast<int>(threadIdx.x);
  const T mine = static_cast<T>(static_cast<float>(lane));
  T* row = out + lane * 4;
  row[0] = __shfl_sync(0xffffffffU, mine, 3, width);
  row[1] = __shfl_xor_sync(0xffffffffU, mine, 5, width);
  row[2] = __shfl_down_sync(0xffffffffU, mine, 3, width);
  row[3] = __shfl_up_sync(0xffffffffU, mine, 3, width);
}

template <class T>
void expect_shuffles() {
  for (const int width : {1, 2, 4, 8, 16, 32}) {
    std::vector<T> out(32 * 4);
    launch("shuffles", shuffles<T>, {.grid = 1, .block = 32}, out.data(), width);
    for (int lane = 0; lane < 32; ++lane) {
      const int first = lane / width * width, behind = first + width;
      const int from = first + 3 % width;
      const int crossed = (lane ^ 5) < behind ? lane ^ 5 : lane;  // earlier groups can be read
      const int down = lane + 3 < behind ? lane + 3 : lane,
                up = lane - 3 >= first ? lane - 3 : lane;
      const T* row = &out[idx(lane) * 4];
      EXPECT_THAT(std::vector<float>(row, row + 4), ElementsAre(from, crossed, down, up))
          << "lane " << lane << " of groups of " << width;
    }
  }
}

TEST_P(Emulator, ShufflesReadOtherLanes) {
  expect_shuffles<int>();
  expect_shuffles<float>();
  expect_shuffles<double>();
  expect_shuffles<__half>();
}

__global__ void votes(unsigned* out) {
  const unsigned lane = threadIdx.x % 32;
  const bool third = lane % 3 == 0;
  unsigned* mine = out + threadIdx.x * 4;
  if (third) {
    const unsigned thirds = 0x49249249U;
    mine[0] = __ballot_sync(thirds, lane < 16);
    mine[1] = static_cast<unsigned>(__all_sync(thirds, lane < 31));
  }
  __syncwarp();
  mine[2] = static_cast<unsigned>(__any_sync(0xffffffffU, lane == 31));
  mine[3] = __ballot_sync(0xffffffffU, !third);
}

TEST_P(Emulator, VotesCountTheLanesOfTheirMask) {
  std::vector<unsigned> out(64 * 4);
  launch("votes", votes, {.grid = 1, .block = 64}, out.data());
  for (std::size_t t = 0; t < 64; ++t) {
    if (t % 32 % 3 == 0) {
      EXPECT_EQ(out[t * 4], 0x9249U);
      EXPECT_EQ(out[t * 4 + 1], 1U);
    }
    EXPECT_EQ(out[t * 4 + 2], 1U);
    EXPECT_EQ(out[t * 4 + 3], ~0x49249249U);
  }
}

struct Cells {
  int sum = 0, difference = 100, largest = -5, smallest = 1000;
  unsigned bits = 0, kept = ~0U, wrapped = 0, swapped = 0;
  unsigned long long wide = 0;
  float real = 0;
};

__global__ void atomics(Cells* cells) {
  const auto t = static_cast<int>(threadIdx.x);
  atomicAdd(&cells->sum, t);
  atomicSub(&cells->difference, 1);
  atomicMax(&cells->largest, t);
  atomicMin(&cells->smallest, t);
  atomicOr(&cells->bits, 1U << (threadIdx.x % 32));
  atomicAnd(&cells->kept, ~(1U << (threadIdx.x % 16)));
  atomicInc(&cells->wrapped, 6);
  atomicCAS(&cells->swapped, threadIdx.x, threadIdx.x + 1);
  atomicAdd(&cells->wide, 1ULL << 33);
  atomicAdd(&cells->real, 0.5F);
}

TEST_P(Emulator, AtomicsLoseNothing) {
  Cells cells;
  launch("atomics", atomics, {.grid = 3, .block = 50}, &cells);
  EXPECT_EQ(cells.sum, 3 * 49 * 50 / 2);
  EXPECT_EQ(cells.difference, 100 - 150);
  EXPECT_EQ(cells.largest, 49);
  EXPECT_EQ(cells.smallest, 0);
  EXPECT_EQ(cells.bits, ~0U);
  EXPECT_EQ(cells.kept, 0xffff0000U);
  EXPECT_EQ(cells.wrapped, 150U % 7);
  EXPECT_GT(cells.swapped, 0U);
  EXPECT_EQ(cells.wide, 150ULL << 33);
  EXPECT_EQ(cells.real, 75.0F);
}

__global__ void take_tickets(unsigned* next, unsigned* tickets) {
  tickets[atomicAdd(next, 1U)] = blockIdx.x * blockDim.x + threadIdx.x;
}

std::vector<unsigned> turns() {
  std::vector<unsigned> next(1), tickets(3 * 70);
  launch("take_tickets", take_tickets, {.grid = 3, .block = 70}, next.data(), tickets.data());
  return tickets;
}

TEST_P(Emulator, ASeedIsAnOrderOfTurns) {
  const auto order = turns();
  EXPECT_EQ(turns(), order) << "the same seed gives the same order";
  EXPECT_EQ(std::ranges::is_sorted(order), GetParam() == 0);
  simt::set_schedule(GetParam() + 1);
  EXPECT_NE(turns(), order);
}

// The last block to finish sums the results of all blocks.
__global__ void last_block_sums(const float* in, float* partial, unsigned* done, float* out) {
  if (threadIdx.x == 0) {
    partial[blockIdx.x] = in[blockIdx.x];
    __threadfence();
    if (atomicInc(done, gridDim.x - 1) == gridDim.x - 1) {
      float sum = 0;
      for (unsigned b = 0; b < gridDim.x; ++b) sum += __ldcg(&partial[b]);
      *out = sum;
    }
  }
}

TEST_P(Emulator, TheLastBlockSeesWhatTheOthersWrote) {
  std::vector<float> in(20, 2), partial(20, NAN), out(1);
  unsigned done = 0;
  launch("last_block_sums", last_block_sums, {.grid = 20, .block = 32}, in.data(), partial.data(),
         &done, out.data());
  EXPECT_EQ(out[0], 40);
  EXPECT_EQ(done, 0U) << "ready for the next launch";
}

__global__ void hold_shared(int bytes) {
  dynamic_shared<char>()[bytes - 1] = 1;
}

__global__ void hold_shared_also(int bytes) {
  dynamic_shared<char>()[bytes - 1] = 2;
}

TEST(EmulatorShapes, AreRefusedAsADeviceRefusesThem) {
  int visits = 0;
  const auto expect_refused = [&](const LaunchShape& shape) {
    EXPECT_THAT([&] { launch("count_visits", count_visits, shape, &visits); },
                testing::ThrowsMessage<DeviceError>(HasSubstr("count_visits")));
  };
  expect_refused({.grid = 1, .block = 0});
  expect_refused({.grid = 0, .block = 1});
  expect_refused({.grid = 1, .block = 1025});
  expect_refused({.grid = 1, .block = {1, 1, 65}});
  expect_refused({.grid = 1, .block = {32, 33}});
  expect_refused({.grid = {1, 65536}, .block = 1});
  expect_refused({.grid = {1, 1, 65536}, .block = 1});
  expect_refused({.grid = 1, .block = 1, .shared_bytes = (48 << 10) + 1});
  EXPECT_EQ(visits, 0);
  launch("count_visits", count_visits, {.grid = 1, .block = 1}, &visits);
  EXPECT_EQ(visits, 1);
}

// Each thread but those of one block, if `left_out` is one, waits for the kernels before.
__global__ void count_awaited(int* visits, unsigned left_out) {
  if (blockIdx.x != left_out) await_previous();
  atomicAdd(visits, 1);
  __syncthreads();
}

TEST_P(Emulator, AKernelThatMayOverlapMustAwaitThePreviousOne) {
  int visits = 0;
  const LaunchShape shape{.grid = 3, .block = 40};
  launch_next("count_awaited", count_awaited, shape, &visits, 3U);
  EXPECT_EQ(visits, 120);
  EXPECT_THAT([&] { launch_next("count_awaited", count_awaited, shape, &visits, 1U); },
              testing::ThrowsMessage<simt::Error>(HasSubstr("count_awaited: a thread ended")));
}

TEST(EmulatorShapes, MoreSharedMemoryIsAMatterOfOptingIn) {
  constexpr int bytes = 99 << 10;
  const LaunchShape shape{.grid = 1, .block = 1, .shared_bytes = bytes};
  EXPECT_THROW(launch("hold_shared", hold_shared, shape, bytes), DeviceError);
  const auto* kernel = reinterpret_cast<const void*>(&hold_shared);
  constexpr auto most = cudaFuncAttributeMaxDynamicSharedMemorySize;
  EXPECT_EQ(cudaFuncSetAttribute(kernel, most, bytes + 1), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFuncSetAttribute(kernel, most, bytes), cudaSuccess);
  launch("hold_shared", hold_shared, shape, bytes);
  EXPECT_THROW(launch("hold_shared_also", hold_shared_also, shape, bytes), DeviceError)
      << "each kernel opts in for itself";
}

TEST(DeviceMath, AgreesWithItsDefinition) {
  EXPECT_FLOAT_EQ(rsqrtf(4), 0.5F);
  EXPECT_FLOAT_EQ(__expf(1), 2.7182817F);
  EXPECT_EQ(__saturatef(NAN), 0);
  EXPECT_EQ(__saturatef(3), 1);
  EXPECT_EQ(__float2int_rn(2.5F), 2);
  EXPECT_EQ(__float_as_uint(1.0F), 0x3f800000U);
  EXPECT_EQ(__umulhi(0x80000000U, 6), 3U);
  EXPECT_THAT((std::array{__popc(7), __ffs(8), __clz(1), __ffs(0)}), ElementsAre(3, 4, 31, 0));
}

}  // namespace
}  // namespace warpstep::cuda
