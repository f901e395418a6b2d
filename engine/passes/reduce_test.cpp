// Sums over ranks: which gradients, in which order, and what may run beside them.
#include "engine/passes/reduce.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "engine/passes/schedule.h"
#include "engine/run/store.h"
#include "tests/stepping.h"

namespace warpstep {
namespace {

StepOptions job_of(std::int64_t ranks, std::size_t bucket_bytes) {
  StepOptions options;
  options.update.replica.ranks = ranks;
  options.exchange = {.in_f32 = false, .bucket_bytes = bucket_bytes};
  return options;
}

Graph step_of(const char* model, const StepOptions& options) {
  return testing_support::model_step(model, 2, options);
}

std::vector<std::size_t> exchanges(const Graph& graph) {
  std::vector<std::size_t> found;
  for (std::size_t n = 0; n < graph.nodes.size(); ++n)
    if (std::holds_alternative<AllReduce>(graph.nodes[n].op)) found.push_back(n);
  return found;
}

TEST(ReduceGradients, AddsNothingToAJobOfOneRank) {
  EXPECT_THAT(exchanges(step_of("mlp", job_of(1, 1000))), testing::IsEmpty());
}

TEST(ReduceGradients, SumsEachGradientOnceBehindItsNodeAndInFrontOfItsReaders) {
  for (const Precision precision : {Precision::fp32, Precision::fp16})
    for (const std::size_t bucket_bytes : {std::size_t{0}, std::size_t{1}, std::size_t{100'000}}) {
      StepOptions options = job_of(4, bucket_bytes);
      options.precision = precision;
      options.update.clip_norm = 1;
      const Graph graph = step_of("cifar10cnn", options);
      const std::vector<int> producers = graph.producers();
      std::multiset<int> summed;
      for (const std::size_t n : exchanges(graph))
        for (const int id : graph.nodes[n].in) {
          summed.insert(id);
          EXPECT_LT(producers[idx(id)], static_cast<int>(n));
          for (std::size_t other = idx(producers[idx(id)]) + 1; other < n; ++other)
            EXPECT_EQ(std::ranges::count(graph.nodes[other].in, id), 0)
                << graph.nodes[other].title() << " reads " << graph.value(id).name;
        }
      EXPECT_EQ(summed.size(), graph.parameters.size());
      for (const Parameter& parameter : graph.parameters)
        EXPECT_EQ(summed.count(parameter.gradient), 1U) << parameter.name;
      if (bucket_bytes == 0) {
        EXPECT_EQ(exchanges(graph).size(), 1U);
      } else {
        EXPECT_GE(exchanges(graph).size(), 3U);
      }
    }
}

TEST(ReduceGradients, FillsBucketsFromTheLastLayers) {
  const Graph graph = step_of("mlp", job_of(2, 0));
  std::vector<std::vector<std::string>> names;
  for (const Bucket& bucket : gradient_buckets(graph, 1000)) {
    names.emplace_back();
    std::size_t bytes = 0;
    for (const std::size_t p : bucket.parameters) {
      names.back().push_back(graph.parameters[p].name);
      bytes += idx(graph.value(graph.parameters[p].gradient).type.shape.count()) * sizeof(float);
    }
    EXPECT_EQ(bucket.bytes, bytes);
  }
  ASSERT_GE(names.size(), 3U);
  EXPECT_THAT(names.front().front(), testing::StartsWith("fc3"));
  EXPECT_THAT(names.back().back(), testing::StartsWith("fc1"));
}

// Sums over steps are complete at the end only.
TEST(ReduceGradients, SumsWhatWasAccumulatedAtOnce) {
  StepOptions options = job_of(2, 1);
  options.update.accumulate = 3;
  const Graph graph = step_of("mlp", options);
  const std::vector<std::size_t> found = exchanges(graph);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_TRUE(std::holds_alternative<Accumulate>(graph.nodes[found[0] - 1].op));
  for (const int id : graph.nodes[found[0]].in) EXPECT_EQ(graph.value(id).role, Role::accumulator);
}

TEST(ReduceGradients, ReadsWholeRunsOfTheSection) {
  for (const std::size_t bucket_bytes : {std::size_t{0}, std::size_t{1}, std::size_t{100'000}}) {
    Graph graph = step_of("cifar10cnn", job_of(2, bucket_bytes));
    open_backend("ref")->choose_layouts(graph);
    std::int64_t elements = 0;
    for (const std::size_t n : exchanges(graph))
      for (const SectionRun& run : section_runs(graph, graph.nodes[n])) elements += run.elements;
    EXPECT_EQ(elements, section_elements(graph));
    if (bucket_bytes == 0) {
      EXPECT_EQ(section_runs(graph, graph.nodes[exchanges(graph)[0]]).size(), 1U);
    }
  }
}

TEST(ReduceGradients, RunBesideWhatFollowsUntilTheirFirstReader) {
  const Graph graph = step_of("cifar10cnn", job_of(2, 1));
  const Lanes lanes = with_exchange_lane(two_lanes(graph), graph);
  ASSERT_TRUE(lanes.used(Lanes::exchange));
  std::size_t overlapped = 0;
  for (const std::size_t n : exchanges(graph)) {
    EXPECT_EQ(lanes.lane[n], Lanes::exchange);
    const auto waited_at = idx(lanes.waited_at[n]);
    ASSERT_LT(waited_at, graph.nodes.size());
    EXPECT_EQ(lanes.lane[waited_at], 0);
    const auto reads = [&](std::size_t node) {
      return std::ranges::any_of(graph.nodes[node].in, [&](int id) {
        return std::ranges::count(graph.nodes[n].in, id) > 0;
      });
    };
    for (std::size_t between = n + 1; between < waited_at; ++between)
      EXPECT_FALSE(reads(between)) << graph.nodes[between].title();
    overlapped += waited_at - n - 1;
  }
  EXPECT_GE(overlapped, 10U) << "nothing runs beside the exchange";
}

}  // namespace
}  // namespace warpstep
