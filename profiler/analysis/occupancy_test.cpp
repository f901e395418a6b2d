#include <gtest/gtest.h>

#include "profiler/analysis/device.h"
#include "profiler/session/testing_builder.h"

namespace warpstep::profiler {
namespace {

Device h200() {
  return testing::SessionBuilder().gpu().raw().devices[0];
}

// By compute capability, as NVIDIA's programming guide lists them.
Device device(std::uint32_t major, std::uint32_t minor) {
  Device d = h200();
  d.compute_major = major;
  d.compute_minor = minor;
  const auto set = [&](std::uint32_t threads, std::uint32_t blocks, std::uint64_t optin,
                       std::uint64_t shared) {
    d.max_threads_per_multiprocessor = threads;
    d.max_blocks_per_multiprocessor = blocks;
    d.shared_per_block_optin = optin;
    d.shared_per_multiprocessor = shared;
  };
  if (major == 7) {
    set(1024, 16, 65536, 65536);
    d.reserved_shared_per_block = 0;
  }
  if (major == 8 && minor == 0) set(2048, 32, 166912, 167936);
  if (major == 8 && minor == 6) set(1536, 16, 101376, 102400);
  if (major == 12) set(1536, 24, 101376, 102400);
  return d;
}

struct Row {
  std::uint32_t major, minor, block, registers, shared;
  int blocks;
};

// Drawn launches with the answers of CUDA 13's cuda_occupancy.h (opt-in limit); 3.6 million others
// agreed as well.
constexpr Row rows[] = {
    {7, 5, 512, 104, 7208, 1},   {7, 5, 32, 73, 39936, 1},    {7, 5, 96, 160, 23365, 2},
    {7, 5, 103, 74, 21042, 3},   {7, 5, 896, 40, 65866, 0},   {7, 5, 348, 229, 16554, 0},
    {8, 0, 832, 56, 13297, 1},   {8, 0, 446, 8, 12893, 4},    {8, 0, 224, 128, 36702, 2},
    {8, 0, 939, 16, 158154, 1},  {8, 0, 32, 120, 0, 16},      {8, 0, 693, 276, 73728, 0},
    {8, 6, 736, 24, 27539, 2},   {8, 6, 128, 104, 18778, 4},  {8, 6, 96, 253, 73028, 1},
    {8, 6, 224, 64, 0, 4},       {9, 0, 111, 74, 17281, 6},   {9, 0, 17, 200, 5198, 8},
    {9, 0, 416, 6, 145483, 1},   {9, 0, 365, 168, 16895, 1},  {10, 0, 668, 32, 47766, 3},
    {10, 0, 256, 56, 7417, 4},   {10, 0, 512, 38, 218552, 1}, {10, 0, 128, 256, 44849, 2},
    {12, 0, 197, 16, 31419, 3},  {12, 0, 450, 12, 2430, 3},   {12, 0, 864, 0, 86016, 1},
    {12, 0, 152, 206, 52705, 1},
};

TEST(Occupancy, AgreesWithCudasCalculator) {
  for (const Row& row : rows) {
    const Launch launch{{1000, 1, 1}, {row.block, 1, 1}, row.registers, row.shared};
    EXPECT_EQ(occupancy(device(row.major, row.minor), launch).blocks, row.blocks)
        << row.major << "." << row.minor << " block " << row.block << " registers " << row.registers
        << " shared " << row.shared;
  }
}

TEST(Occupancy, CountsKernelsAboveTheOrdinarySharedMemory) {
  const Occupancy large = occupancy(h200(), {{264, 1, 1}, {128, 1, 1}, 168, 200 * 1024});
  EXPECT_EQ(large.blocks, 1);
  EXPECT_EQ(large.limiter, "shared memory");
  const Occupancy largest = occupancy(h200(), {{264, 1, 1}, {384, 1, 1}, 168, 227 * 1024});
  EXPECT_EQ(largest.blocks, 1);
  EXPECT_DOUBLE_EQ(largest.estimated, 0.1875);
  EXPECT_DOUBLE_EQ(largest.waves, 2);
  EXPECT_EQ(occupancy(h200(), {{264, 1, 1}, {128, 1, 1}, 32, 227 * 1024 + 1}).blocks, 0);
}

TEST(Occupancy, NamesWhatLimits) {
  const Occupancy registers = occupancy(h200(), {{1024, 1, 1}, {256, 1, 1}, 64, 0});
  EXPECT_EQ(registers.blocks, 4);
  EXPECT_EQ(registers.limiter, "registers");
  EXPECT_DOUBLE_EQ(registers.theoretical, 0.5);
  const Occupancy full = occupancy(h200(), {{1024, 1, 1}, {256, 1, 1}, 32, 0});
  EXPECT_EQ(full.blocks, 8);
  EXPECT_EQ(full.limiter, "threads");
  EXPECT_NEAR(full.estimated, 0.9697, 1e-4);  // the grid has less than 8 a multiprocessor
  EXPECT_DOUBLE_EQ(full.theoretical, 1);
  const Occupancy shared = occupancy(h200(), {{1024, 1, 1}, {512, 1, 1}, 40, 16384});
  EXPECT_EQ(shared.blocks, 3);
  EXPECT_DOUBLE_EQ(shared.estimated, 0.75);
  EXPECT_EQ(occupancy(h200(), {{10'000, 1, 1}, {32, 1, 1}, 16, 0}).limiter, "blocks");
}

TEST(Occupancy, OfImpossibleLaunchesIsZero) {
  EXPECT_EQ(occupancy(h200(), {}).blocks, 0);
  EXPECT_EQ(occupancy(Device{}, {{1, 1, 1}, {32, 1, 1}, 16, 0}).blocks, 0);
  const Occupancy huge = occupancy(h200(), {{~0U, ~0U, ~0U}, {~0U, ~0U, ~0U}, ~0U, ~0U});
  EXPECT_EQ(huge.blocks, 0);
  EXPECT_EQ(huge.estimated, 0);
}

}  // namespace
}  // namespace warpstep::profiler
