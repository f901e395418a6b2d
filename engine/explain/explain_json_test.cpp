#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "engine/explain/explain.h"
#include "tests/stepping.h"

namespace warpstep {
namespace {

// Their sum is what explain says of the memory outside the arena.
TEST(ExplainJson, ListsAllThatPersists) {
  for (const std::int64_t accumulate : {1, 4})
    for (const double average : {0.0, 0.99})
      for (const std::int64_t rank : {-1, 0, 2}) {  // -1: no job
        StepOptions options;
        options.update.accumulate = accumulate;
        options.update.average_decay = average;
        if (rank >= 0) options.update.replica = {.ranks = 3, .rank = rank};
        options.shard_optimizer = rank >= 0;
        const auto backend = open_backend("cpu", {.threads = 1});
        const Program program(
            testing_support::model_step("cifar10cnn", 2, options_for(*backend, options)), backend,
            nullptr, false);
        const auto memory = explain_json(program)["memory"];
        std::size_t listed = 0;
        for (const auto& owner : memory["persistent"]) listed += owner["bytes"].get<std::size_t>();
        const std::size_t all =
            memory["total_bytes"].get<std::size_t>() - memory["arena_bytes"].get<std::size_t>();
        constexpr std::size_t padding = 6 * 12 * 256;  // of sections of 12 tensors
        EXPECT_LE(listed, all);
        EXPECT_GE(listed + padding, all)
            << "accumulate " << accumulate << ", average " << average << ", rank " << rank;
      }
}

}  // namespace
}  // namespace warpstep
