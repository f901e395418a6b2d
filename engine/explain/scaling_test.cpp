#include "engine/explain/scaling.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/stepping.h"

namespace warpstep {
namespace {

Graph job_step(std::size_t bucket_bytes, bool shards = false, bool sync_norms = false,
               std::int64_t accumulate = 1) {
  StepOptions options;
  options.update.replica.ranks = 8;
  options.exchange = {.in_f32 = false, .bucket_bytes = bucket_bytes};
  options.shard_optimizer = shards;
  options.sync_norms = sync_norms;
  options.update.accumulate = accumulate;
  return testing_support::model_step("resnet9", 2, options);
}

double a_millisecond(const Node& node) {
  return is_view(node.op) ? 0 : 1e-3;
}

ScaledStep scaled(const Graph& step, std::int64_t ranks, const Link& link, bool beside = true) {
  Lanes lanes = one_lane(step);
  return scale_step(step, beside ? with_exchange_lane(lanes, step) : lanes, a_millisecond, ranks,
                    link);
}

double gradient_bytes(const Graph& step) {
  double bytes = 0;
  for (const Parameter& parameter : step.parameters)
    bytes += static_cast<double>(step.value(parameter.gradient).type.bytes());
  return bytes;
}

TEST(Scaling, OfOneRankIsTheStepItself) {
  const ScaledStep one = scaled(job_step(0), 1, {1e9, 1e-5});
  EXPECT_EQ(one.exposed, 0);
  EXPECT_EQ(one.efficiency(), 1);
  EXPECT_TRUE(one.exchanges.empty());
}

TEST(Scaling, WithoutOverlapIsTheAlphaBetaModel) {
  const Graph step = job_step(0);
  const Link link{1e9, 1e-5};
  for (const std::int64_t ranks : {2, 8, 9}) {
    const ScaledStep all = scaled(step, ranks, link, false);
    const double r = static_cast<double>(ranks), hops = ranks == 2 ? 1 : ranks == 8 ? 3 : 4;
    const double expected = 2 * ((r - 1) / r * gradient_bytes(step) / 1e9 + hops * 1e-5);
    EXPECT_NEAR(all.exchange, expected, 1e-12);
    EXPECT_NEAR(all.exposed, expected, 1e-12);
  }
}

// All but the last bucket is exchanged beside the backward half, and the link has one at a time.
TEST(Scaling, HidesWhatTheBackwardHalfLasts) {
  const Graph step = job_step(1);
  const ScaledStep fast = scaled(step, 8, {1e12, 0}), slow = scaled(step, 8, {1e6, 0});
  ASSERT_GE(fast.exchanges.size(), 3U);
  const ExchangeTime& last = fast.exchanges.back();
  EXPECT_NEAR(fast.exposed, last.end - last.begin, 1e-12);
  EXPECT_LT(fast.exposed, fast.exchange);
  for (std::size_t i = 1; i < slow.exchanges.size(); ++i)
    EXPECT_GE(slow.exchanges[i].begin, slow.exchanges[i - 1].end);
  EXPECT_LT(slow.exposed, slow.exchange);
  EXPECT_GT(slow.exposed, 0.9 * slow.exchange);
  EXPECT_LT(slow.efficiency(), fast.efficiency());
  EXPECT_NEAR(slow.alone, fast.alone, 1e-12);
}

TEST(Scaling, SharesMoveAsMuchInTwoHalves) {
  const ScaledStep plain = scaled(job_step(0), 8, {1e9, 0}),
                   shared = scaled(job_step(0, true), 8, {1e9, 0});
  EXPECT_NEAR(shared.exchange, plain.exchange, 1e-9);
  EXPECT_EQ(shared.exchanges.size(), 2U);
}

// Of eight ranks each updates an eighth; one rank alone, which efficiency compares with, all.
TEST(Scaling, SharesTheUpdateOut) {
  const auto predicted = [](const Graph& step, std::int64_t ranks) {
    return scale_step(
        step, one_lane(step),
        [&](const Node& node) { return is_view(node.op) ? 0 : 1e-9 * step.cost(node).bytes; },
        ranks, {1e9, 0});
  };
  const Graph plain = job_step(0), sharded = job_step(0, true);
  double update = 0;
  for (const Node& node : plain.nodes)
    if (is_shared_out(node.op)) update += 1e-9 * plain.cost(node).bytes;
  ASSERT_GT(update, 0);
  for (const std::int64_t ranks : {2, 8}) {
    const double others = static_cast<double>(ranks - 1) / static_cast<double>(ranks);
    const ScaledStep all = predicted(plain, ranks), own = predicted(sharded, ranks);
    EXPECT_NEAR(all.alone - own.alone, others * update, 1e-9);
    EXPECT_NEAR(all.exposed, own.exposed, 1e-9);
    EXPECT_NEAR(own.of_one_rank, all.of_one_rank, 1e-9);
    EXPECT_NEAR(own.efficiency(), all.of_one_rank / (own.alone + own.exposed), 1e-12);
  }
}

TEST(Scaling, CountsTheUpdateInOneOfItsSteps) {
  const Graph one = job_step(0), eight = job_step(0, false, false, 8);
  const auto time = [](const Graph& step) {
    return scale_step(step, one_lane(step),
                      [](const Node& node) { return is_update(node.op) ? 1.0 : 0.0; }, 8, {1e9, 0});
  };
  EXPECT_EQ(time(one).alone, 1);
  EXPECT_EQ(time(eight).alone, 1.0 / 8);
  EXPECT_EQ(time(eight).of_one_rank, 1.0 / 8);
}

TEST(Scaling, CountsTheStatisticsOfNorms) {
  const ScaledStep own = scaled(job_step(0), 8, {1e9, 1e-3}),
                   all = scaled(job_step(0, false, true), 8, {1e9, 1e-3});
  EXPECT_GE(all.exposed, own.exposed + 16 * 3e-3);  // eight norms, twice, three hops
  EXPECT_THAT(scaling_text({own, all}), testing::HasSubstr("all_reduce"));
  EXPECT_EQ(scaling_json({own, all})[1]["exchanges"].size(), all.exchanges.size());
}

TEST(Scaling, ExchangesGradientsOnceAnUpdate) {
  for (const Link& link : {Link{1e6, 0}, Link{1e9, 1e-5}}) {
    const ScaledStep one = scaled(job_step(1), 8, link),
                     sum = scaled(job_step(1, false, false, 8), 8, link);
    EXPECT_GT(one.exposed, 0);
    EXPECT_GE(sum.efficiency(), one.efficiency());
    EXPECT_EQ(sum.accumulate, 8);
    double once = 0;
    for (const ExchangeTime& exchange : sum.exchanges) once += exchange.end - exchange.begin;
    EXPECT_NEAR(sum.exchange, once / 8, 1e-12);
  }
  // Norms exchange in every step.
  const auto hops = [](bool sync_norms) {
    return scaled(job_step(0, false, sync_norms, 8), 8, {1e15, 1e-3}).exchange;
  };
  EXPECT_NEAR(hops(true) - hops(false), 16 * 3e-3, 1e-9);
  EXPECT_THAT(scaling_text({scaled(job_step(0, false, false, 8), 8, {1e9, 0})}),
              testing::HasSubstr("means of the 8 steps of an update"));
}

}  // namespace
}  // namespace warpstep
