// Sums over ranks: which gradients, in which order, and what may run beside them.
#include "engine/passes/reduce.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "engine/core/error.h"
#include "engine/graph/model_line.h"
#include "engine/passes/schedule.h"
#include "engine/run/store.h"
#include "tests/small_graphs.h"
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
      for (const std::size_t n : exchanges(graph)) {
        EXPECT_EQ(model_line(graph.nodes[n]), "");
        for (const int id : graph.nodes[n].in) {
          summed.insert(id);
          EXPECT_LT(producers[idx(id)], static_cast<int>(n));
          for (std::size_t other = idx(producers[idx(id)]) + 1; other < n; ++other)
            EXPECT_EQ(std::ranges::count(graph.nodes[other].in, id), 0)
                << graph.nodes[other].title() << " reads " << graph.value(id).name;
        }
      }
      EXPECT_EQ(summed.size(), graph.parameters.size());
      for (const Parameter& parameter : graph.parameters)
        EXPECT_EQ(summed.count(parameter.gradient), 1U) << parameter.name;
      if (bucket_bytes == 0) {
        EXPECT_EQ(exchanges(graph).size(), 1U);
      } else if (bucket_bytes == 1) {
        EXPECT_EQ(exchanges(graph).size(), graph.parameters.size());
      } else {
        EXPECT_GE(exchanges(graph).size(), 3U);
      }
    }
}

TEST(ReduceGradients, RefusesSharesOfGradientsWhoseNormsAreNeeded) {
  StepOptions options = job_of(2, 0);
  options.optimizer.kind = Optimizer::Kind::lars;
  EXPECT_NO_THROW(step_of("mlp", options));
  options.shard_optimizer = true;
  EXPECT_THAT([&] { step_of("mlp", options); },
              testing::ThrowsMessage<UsageError>(testing::HasSubstr("LARS needs the norms")));
}

// p is added to activations, by themselves or behind a view: one gradient is that of both.
Graph added_parameter(const StepOptions& options, bool viewed) {
  Graph g;
  const Tensor x = g.input("x", {DType::f32, {4, 1, 1, 6}});
  const Tensor h = viewed ? flatten(conv("in", x, {.out = 8, .kernel = 1}))
                          : linear("in", flatten(x), {.out = 8});
  const Tensor sum = add(h, parameter(g, "p", {4, 8}, {}));
  cross_entropy(linear("out", sum, {.out = 3}), g.input("labels", {DType::i32, {4}}));
  return compile_step(std::move(g), options);
}

// Nodes of the backward half behind node `after` that read the value or a view of it.
std::vector<std::string> backward_readers(const Graph& graph, int id, std::size_t after) {
  std::set<int> same{id};
  std::vector<std::string> readers;
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& node = graph.nodes[n];
    const bool reads = std::ranges::any_of(node.in, [&](int in) { return same.contains(in); });
    if (reads && is_view(node.op)) same.insert(node.out[0]);
    if (reads && n > after && node.phase != Phase::update && !is_measure(node.op))
      readers.push_back(node.title());
  }
  return readers;
}

TEST(ReduceGradients, WaitsForWhatReadsAGradientAsAnActivations) {
  for (const bool viewed : {false, true})
    for (const bool shards : {false, true})
      for (const Precision precision : {Precision::fp32, Precision::fp16})
        for (const std::size_t bucket_bytes : {std::size_t{0}, std::size_t{1}, std::size_t{150}}) {
          StepOptions options = job_of(2, bucket_bytes);
          options.precision = precision;
          options.shard_optimizer = shards;
          options.update.clip_norm = 1;
          const Graph graph = added_parameter(options, viewed);
          const int shared = graph.parameters[2].gradient;
          ASSERT_EQ(graph.parameters[2].name, "p");
          ASSERT_THAT(backward_readers(graph, shared, 0), testing::Not(testing::IsEmpty()));
          std::multiset<int> summed;
          for (const std::size_t n : exchanges(graph))
            for (const int id : graph.nodes[n].in) {
              summed.insert(id);
              EXPECT_THAT(backward_readers(graph, id, n), testing::IsEmpty())
                  << graph.value(id).name << ", buckets of " << bucket_bytes;
              for (std::size_t before = 0; before < n; ++before)
                EXPECT_FALSE(kind(graph.nodes[before].op) == OpKind::update &&
                             std::ranges::count(graph.nodes[before].in, id) > 0 &&
                             !std::holds_alternative<AllReduce>(graph.nodes[before].op))
                    << graph.nodes[before].title() << " reads this rank's " << graph.value(id).name;
            }
          EXPECT_EQ(summed.size(), graph.parameters.size());
          EXPECT_EQ(summed.count(shared), 1U);
        }
}

// Sums over steps are values of their own, which are complete behind all those readers.
TEST(ReduceGradients, LeavesAnActivationsGradientAloneWhereItSumsOverSteps) {
  StepOptions options = job_of(2, 1);
  options.update.accumulate = 3;
  const Graph graph = added_parameter(options, false);
  const std::vector<std::size_t> found = exchanges(graph);
  ASSERT_EQ(found.size(), 1U);
  for (const int id : graph.nodes[found[0]].in) EXPECT_EQ(graph.value(id).role, Role::accumulator);
  EXPECT_THAT(backward_readers(graph, graph.parameters[2].gradient, found[0]), testing::IsEmpty());
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

std::size_t first_of(const Graph& graph, const auto& is) {
  return idx(std::ranges::find_if(graph.nodes, is) - graph.nodes.begin());
}

// Shares of all ranks are all elements, and what a rank updates is its share, also where weights
// and biases have updates of their own.
TEST(ReduceGradients, SharesTheUpdateOut) {
  for (const Precision precision : {Precision::fp32, Precision::fp16}) {
    StepOptions options = job_of(3, 100'000);
    options.precision = precision;
    options.shard_optimizer = true;
    options.optimizer.decays_vectors = false;
    options.optimizer.kind = Optimizer::Kind::adamw;
    options.optimizer.weight_decay = 0.1;
    options.update.average_decay = 0.5;
    std::int64_t updated = 0;
    std::size_t moment_bytes = 0;
    for (options.update.replica.rank = 0; options.update.replica.rank < 3;
         ++options.update.replica.rank) {
      Graph graph = step_of("mlp", options);
      const std::shared_ptr<Backend> backend = open_backend("ref");
      backend->choose_layouts(graph);
      for (const std::size_t n : exchanges(graph))
        EXPECT_TRUE(std::get<AllReduce>(graph.nodes[n].op).to_owners);
      const std::size_t gather = first_of(
          graph, [](const Node& node) { return std::holds_alternative<AllGather>(node.op); });
      ASSERT_LT(gather, graph.nodes.size());
      EXPECT_GT(first_of(graph,
                         [](const Node& node) { return std::holds_alternative<Average>(node.op); }),
                gather);
      const std::vector<SectionRun> runs = section_runs(graph, graph.nodes[gather]);
      ASSERT_EQ(runs.size(), precision == Precision::fp16 ? 2U : 1U);
      EXPECT_EQ(runs[0].ends.back(), idx(section_elements(graph)));
      const std::size_t rank = idx(options.update.replica.rank);
      std::int64_t own = 0;
      for (std::size_t n = 0; n < gather; ++n)
        if (std::holds_alternative<UpdateAll>(graph.nodes[n].op)) {
          const Node& node = graph.nodes[n];
          const OwnPart part =
              own_part(graph, update_run(graph, node, section_elements(graph, node)));
          if (part.elements > 0) {
            EXPECT_EQ(part.moments, own);  // one part after the other
          }
          own += part.elements;
        }
      EXPECT_EQ(own, static_cast<std::int64_t>(runs[0].ends[rank] -
                                               (rank == 0 ? 0 : runs[0].ends[rank - 1])));
      updated += own;
      moment_bytes += Store(backend, graph).section_bytes(Store::Section::moment2);
      if (rank == 2) {
        EXPECT_EQ(updated, section_elements(graph));
        EXPECT_EQ(moment_bytes, idx(section_elements(graph)) * sizeof(float));
      }
    }
  }
}

TEST(SynchronizeNorms, CountsTheRowsOfAllRanks) {
  StepOptions options = job_of(4, 0);
  options.sync_norms = true;
  std::size_t norms = 0;
  for (const Node& node : step_of("resnet9", options).nodes) {
    if (const auto* norm = std::get_if<BatchNorm>(&node.op)) {
      EXPECT_EQ(norm->ranks, 4);
    }
    if (const auto* grad = std::get_if<BatchNormGrad>(&node.op)) {
      EXPECT_EQ(grad->norm.ranks, 4);
    }
    norms += std::holds_alternative<BatchNormGrad>(node.op) ? 1 : 0;
  }
  EXPECT_EQ(norms, 8U);
}

// A convolution's call sums this rank's rows and exchanges nothing.
TEST(SynchronizeNorms, KeepsNormsApartFromConvolutions) {
  StepOptions options = job_of(4, 0);
  options.computes = [](const AnyOp&, const Types&) { return true; };
  using testing_support::count;
  EXPECT_GT(count<NormConvDataGrad>(step_of("resnet9", options)), 0);
  options.sync_norms = true;
  for (const Precision precision : {Precision::fp32, Precision::fp16}) {
    options.precision = precision;
    for (const char* model : {"resnet9", "resnet18"}) {
      const Graph graph = step_of(model, options);
      EXPECT_EQ(count<NormConv>(graph) + count<NormConvDataGrad>(graph), 0) << model;
      EXPECT_EQ(count<BatchNorm>(graph), count<BatchNormGrad>(graph)) << model;
      for (const Node& node : graph.nodes)
        if (const auto* grad = std::get_if<BatchNormGrad>(&node.op)) {
          EXPECT_FALSE(grad->shortcut_norm) << node.title();
        }
    }
  }
  EXPECT_EQ(count<BatchNormGrad>(step_of("resnet9", options)), 8);
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
