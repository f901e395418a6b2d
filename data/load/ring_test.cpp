#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "data/load/ring.h"
#include "engine/core/random.h"

namespace warpstep::data {
namespace {

// Random shapes of the ring, random delays on both sides. What must hold: a slot is written only
// between release() and the next ready, every part once, and the consumer sees all of it.
TEST(Ring, HandsEverySlotOverWholeForAnyShapeAndTiming) {
  for (std::uint32_t trial = 0; trial < 60; ++trial) {
    const auto r = draw(1, Purpose::synthetic, trial, 0);
    const std::uint32_t slots = 1 + below(r[0], 6);
    const std::uint32_t claims = 1 + below(r[1], 9);
    const std::uint32_t workers = 1 + below(r[2], 8);
    const std::uint64_t first = r[3] % 1000;
    constexpr std::uint64_t batches = 60;
    Ring ring(slots, claims);
    ring.reset(first);
    // Plain memory on purpose: the sanitizer proves that the ring orders the accesses.
    std::vector<std::vector<std::uint64_t>> written(slots, std::vector<std::uint64_t>(claims, 0));
    std::atomic<std::uint64_t> published{0};
    std::vector<std::thread> threads;
    for (std::uint32_t w = 0; w < workers; ++w) {
      threads.emplace_back([&, w] {
        for (std::uint64_t turn = 0;; ++turn) {
          const auto claim = ring.claim();
          if (!claim) return;
          if (draw(2, Purpose::synthetic, w, turn)[0] % 4 == 0) std::this_thread::yield();
          written[claim->batch % slots][claim->part] += claim->batch + 1;
          if (ring.finish(*claim)) {
            published.fetch_add(1);
            ring.publish(*claim);
          }
        }
      });
    }
    for (std::uint64_t b = first; b < first + batches; ++b) {
      if (draw(3, Purpose::synthetic, trial, b)[0] % 8 == 0) {
        std::this_thread::sleep_for(std::chrono::microseconds(100));
      }
      ring.wait(b);
      ASSERT_TRUE(ring.ready(b));
      EXPECT_LE(published.load(), b - first + slots);
      for (std::uint64_t& part : written[b % slots]) {
        ASSERT_EQ(part, b + 1);
        part = 0;
      }
      ring.release(b);
    }
    ring.stop();
    for (std::thread& thread : threads) thread.join();
    EXPECT_TRUE(ring.stopping());
  }
}

TEST(Ring, WakesEverySleepingWorkerToStop) {
  for (int trial = 0; trial < 50; ++trial) {
    Ring ring(2, 3);
    std::vector<std::thread> threads;
    for (int w = 0; w < 8; ++w) {
      threads.emplace_back([&] {
        while (const auto claim = ring.claim()) {
          if (ring.finish(*claim)) ring.publish(*claim);
        }
      });
    }
    if (trial % 2 == 0) ring.wait(1);  // full: all workers sleep or are about to
    ring.stop();
    for (std::thread& thread : threads) thread.join();
  }
}

// When workers are parked and woken at random, every claim is served and every batch arrives.
TEST(Ring, GivesEveryBatchWhileWorkersAreParkedAndWoken) {
  constexpr std::uint32_t workers = 5, claims = 3;
  constexpr std::uint64_t batches = 3000;
  Ring ring(3, claims);
  // Plain memory of each slot, written by its workers.
  std::vector<std::array<std::uint64_t, claims>> written(3);
  std::vector<std::thread> threads;
  for (std::uint32_t worker = 0; worker < workers; ++worker)
    threads.emplace_back([&, worker] {
      while (const auto claim = ring.claim(worker)) {
        written[claim->batch % 3][claim->part] = claim->batch + 1;
        if (ring.finish(*claim)) ring.publish(*claim);
      }
    });
  for (std::uint64_t batch = 0; batch < batches; ++batch) {
    ring.set_active(1 + static_cast<std::uint32_t>(batch * 2654435761U >> 7) % workers);
    ring.wait(batch);
    for (const std::uint64_t number : written[batch % 3]) EXPECT_EQ(number, batch + 1);
    ring.release(batch);
  }
  ring.set_active(1);
  ring.stop();
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace warpstep::data
