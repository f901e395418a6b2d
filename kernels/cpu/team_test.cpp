// The floating-point mode of a step on the CPU backend: denormals are zero in all threads that
// compute, and the thread that steps has its own mode afterwards.
#include <gtest/gtest.h>
#include <omp.h>

#include <array>
#include <limits>
#include <numeric>

#include "engine/core/cpus.h"
#include "engine/core/error.h"
#include "engine/graph/layers.h"
#include "engine/run/runner.h"

namespace warpstep {
namespace {

constexpr std::int64_t elements = 1 << 20;  // enough for every thread of a team
constexpr float denormal = std::numeric_limits<float>::min() / 4;

bool flushes() {
  const volatile float tiny = denormal;
  return tiny * 2.0F == 0.0F;
}

TEST(FloatingPointMode, OfAStepFlushesDenormalsAndEndsWithIt) {
  const std::shared_ptr<Backend> backend = open_backend("cpu");
  Graph graph;
  const Tensor x = graph.input("x", {DType::f32, {elements}});
  const Tensor sum = add(x, x);
  Program program(graph, backend);
  std::vector<float> values(idx(elements), denormal);
  const std::array<const void*, 1> slots{values.data()};
  program.set_inputs(slots);
  ASSERT_FALSE(flushes());
  eager_runner(program)->step();
  EXPECT_FALSE(flushes()) << "the step's mode is left behind";
  const std::vector<float> sums = program.read(sum.id);
  EXPECT_EQ(std::accumulate(sums.begin(), sums.end(), 0.0F), 0.0F)
      << "of " << omp_get_max_threads() << " threads";
}

TEST(Team, RunsWhereItIsPlaced) {
  const CpuSet all = allowed_cpus();
  ASSERT_FALSE(all.empty());
  const auto backend = open_backend("cpu");
  const auto threads = static_cast<std::size_t>(omp_get_max_threads());
  std::vector<int> team;  // the last CPU first; more threads than CPUs share them
  for (std::size_t i = 0; i < threads; ++i) team.push_back(all[all.size() - 1 - i % all.size()]);
  place_threads({.team = team, .others = all});
  const auto stream = backend->make_stream(Precedence::first);
  std::vector<CpuSet> found(threads);
#pragma omp parallel
  {
    found[static_cast<std::size_t>(omp_get_thread_num())] = allowed_cpus();
    run_on(all);
  }
  place_threads({});
  for (std::size_t i = 0; i < threads; ++i) EXPECT_EQ(found[i], CpuSet{team[i]}) << i;
}

}  // namespace
}  // namespace warpstep
