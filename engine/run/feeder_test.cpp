#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <future>
#include <map>
#include <numeric>
#include <thread>

#include "engine/core/error.h"
#include "engine/run/feeder.h"

namespace warpstep {
namespace {

// A device whose steps end when the test decides it.
struct SlowSteps final : Stream {
  void wait() override { wait_for(marks); }
  std::uint64_t mark() override { return ++marks; }
  void wait_for(std::uint64_t mark) override {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return done >= mark; });
  }
  void finish(std::uint64_t mark) {
    const std::lock_guard lock(mutex);
    done = mark;
    changed.notify_all();
  }
  std::mutex mutex;
  std::condition_variable changed;
  std::uint64_t done = 0;
  std::atomic<std::uint64_t> marks{0};
};

struct Copies final : Stream {
  void wait() override {}
};

class Device : public Backend {
 public:
  std::string_view name() const override { return "device"; }
  std::string describe() const override { return ""; }
  void choose_layouts(Graph&) const override {}
  std::unique_ptr<Kernel> bind(const Graph&, const Node&) const override { return nullptr; }
  std::shared_ptr<std::byte> allocate(std::size_t bytes) const override {
    return {new std::byte[bytes], std::default_delete<std::byte[]>()};
  }
  std::unique_ptr<Stream> make_stream(Precedence) const override {
    return std::make_unique<Copies>();
  }
  int steps_in_flight() const override { return 2; }
  void write(const Value&, void*, std::span<const std::byte>) const override {}
  void read(const Value&, const void*, std::span<std::byte>) const override {}
};

// Batch b of 4 bytes b, one label b; throws at `broken`, and where it is to go to epoch 7.
class Numbers final : public BatchSource {
 public:
  std::int64_t batch_size() const override { return 4; }
  std::uint64_t samples() const override { return 40; }
  std::uint64_t steps_per_epoch() const override { return 10; }
  const Batch& next() override {
    if (at == broken) fail<DataError>("batch {} is broken", at);
    std::fill_n(slot.begin(), 4, static_cast<std::byte>(at));
    const auto label = static_cast<std::int32_t>(at);
    std::memcpy(slot.data() + 4, &label, sizeof label);
    batch.position = position();
    batch.inputs = {{"images", std::span(slot).first(4)}, {"labels", std::span(slot).last(4)}};
    batch.slot = slot;
    batch.count = 4;
    ++at;
    return batch;
  }
  Position position() const override { return {at / 10, at % 10}; }
  void seek(Position p) override {
    if (p.epoch == 7) fail<DataError>("no thread starts");
    at = p.epoch * 10 + p.step;
  }

  std::uint64_t at = 0, broken = 1000;
  alignas(8) std::array<std::byte, 8> slot{};
  Batch batch;
};

void expect_batch(const Batch& batch, std::uint64_t number) {
  EXPECT_EQ(batch.position, (Position{number / 10, number % 10}));
  EXPECT_THAT(batch.get<std::uint8_t>("images"),
              ::testing::Each(static_cast<std::uint8_t>(number)));
  EXPECT_EQ(batch.get<std::int32_t>("labels")[0], static_cast<std::int32_t>(number));
}

TEST(Feeder, GivesTheBatchesInOrderFromTheDevicesMemory) {
  Numbers source;
  Device device;
  SlowSteps steps;
  steps.finish(1000);
  Feeder feeder(source, device, steps);
  for (std::uint64_t i = 0; i < 35; ++i) {
    EXPECT_EQ(feeder.position(), (Position{i / 10, i % 10}));
    const Batch& batch = feeder.next();
    expect_batch(batch, i);
    EXPECT_NE(batch.slot.data(), source.slot.data());
  }
  const FeedStats stats = feeder.stats();
  EXPECT_GE(stats.batches, 35U);
  EXPECT_EQ(stats.bytes, 8 * stats.batches);
  EXPECT_GT(stats.copy_ns, 0U);
}

// That much of the step's time is counted as the copy's, and not as the loader's.
TEST(Feeder, CountsNoWaitForACopyThatWasDoneBefore) {
  Numbers source;
  Device device;
  SlowSteps steps;
  Feeder feeder(source, device, steps);
  while (feeder.stats().batches < 2) std::this_thread::yield();  // the first one is ready
  const Batch batch = feeder.next();
  EXPECT_EQ(batch.wait_ns, 0U);
  EXPECT_EQ(batch.copy_wait_ns, 0U);
}

// The last batches' slots grow.
struct Growing final : BatchSource {
  std::int64_t batch_size() const override { return 4; }
  std::uint64_t samples() const override { return 40; }
  std::uint64_t steps_per_epoch() const override { return 10; }
  const Batch& next() override {
    const std::size_t bytes = at < 2 ? 8 : 1000;
    batch.position = position();
    batch.slot = std::span(slot).first(bytes);
    batch.inputs = {{"images", batch.slot}};
    if (!has_slot) batch.slot = {};
    batch.count = 4;
    ++at;
    return batch;
  }
  Position position() const override { return {at / 10, at % 10}; }
  void seek(Position p) override { at = p.epoch * 10 + p.step; }

  std::uint64_t at = 0;
  bool has_slot = true;
  std::vector<std::byte> slot = std::vector<std::byte>(1000);
  Batch batch;
};

// Its allocations, and whether every copy is in one of them.
class MeasuringDevice final : public Device {
 public:
  std::shared_ptr<std::byte> allocate(std::size_t bytes) const override {
    std::shared_ptr<std::byte> memory = Device::allocate(std::max<std::size_t>(bytes, 1000));
    sizes[memory.get()] = bytes;
    return memory;
  }
  void upload(Stream&, void* to, const void*, std::size_t bytes) const override {
    fits = fits && sizes.at(to) >= bytes;
  }
  mutable std::map<void*, std::size_t> sizes;
  mutable std::atomic<bool> fits{true};
};

TEST(Feeder, CopiesIntoBuffersOfTheBatchsSize) {
  Growing source;
  MeasuringDevice device;
  SlowSteps steps;
  steps.finish(1000);
  Feeder feeder(source, device, steps);
  for (int i = 0; i < 6; ++i) feeder.next();
  EXPECT_TRUE(device.fits);
}

// Its inputs would keep the host's addresses.
TEST(Feeder, RefusesBatchesWithoutASlot) {
  Growing source;
  source.has_slot = false;
  MeasuringDevice device;
  SlowSteps steps;
  Feeder feeder(source, device, steps);
  EXPECT_THAT([&] { feeder.next(); },
              testing::ThrowsMessage<UsageError>(testing::HasSubstr("set Batch::slot")));
  EXPECT_THAT([&] { Feeder(source, device, steps, 0); },
              testing::ThrowsMessage<UsageError>("a launch runs 1 step or more, not 0"));
}

TEST(Feeder, WritesABufferOnlyWhenItsStepIsDone) {
  Numbers source;
  Device device;
  SlowSteps steps;
  Feeder feeder(source, device, steps);
  const Batch first = feeder.next(), second = feeder.next();
  EXPECT_NE(first.get<std::byte>("images").data(), second.get<std::byte>("images").data());
  // Neither step is done: the third batch has to wait, and the first buffer is unchanged.
  std::future<Batch> third = std::async(std::launch::async, [&] { return feeder.next(); });
  EXPECT_EQ(third.wait_for(std::chrono::milliseconds(30)), std::future_status::timeout);
  expect_batch(first, 0);
  steps.finish(1);
  const Batch batch = third.get();
  expect_batch(batch, 2);
  EXPECT_EQ(batch.get<std::byte>("images").data(), first.get<std::byte>("images").data());
  EXPECT_GT(batch.wait_ns, 0U);
  expect_batch(second, 1);
  steps.finish(1000);
}

// Batches 0 to 3, 4 to 7, 8 and 9, and the next epoch's 0 to 3 are read by a launch each.
TEST(Feeder, KeepsTheBatchesOfALaunchUntilItIsDone) {
  Numbers source;
  Device device;
  SlowSteps steps;
  Feeder feeder(source, device, steps, 4);
  EXPECT_EQ(feeder.held(), 12);
  std::vector<Batch> taken;
  const auto take = [&](std::uint64_t end) {
    while (taken.size() < end) taken.push_back(feeder.next());
  };
  const auto place = [&](std::size_t batch) {
    return taken[batch].get<std::byte>("images").data();
  };
  take(8);
  std::future<void> third = std::async(std::launch::async, [&] { take(10); });
  EXPECT_EQ(third.wait_for(std::chrono::milliseconds(30)), std::future_status::timeout);
  for (std::uint64_t i = 0; i < 8; ++i) expect_batch(taken[i], i);
  steps.finish(1);  // batches 0 to 3 were read
  third.get();
  for (std::uint64_t i = 4; i < 10; ++i) expect_batch(taken[i], i);
  EXPECT_EQ(place(8), place(0));
  EXPECT_EQ(steps.marks, 2U) << "one for each launch";
  steps.finish(1000);
  take(14);
  for (std::uint64_t i = 10; i < 14; ++i) expect_batch(taken[i], i);
  EXPECT_EQ(place(10), place(4)) << "an epoch begins with a group";
  feeder.seek({0, 6});
  expect_batch(feeder.next(), 6);
  expect_batch(feeder.next(), 7);
  expect_batch(feeder.next(), 8);
}

TEST(Feeder, SeeksOnlyWhenTheStepsThatReadAreDone) {
  Numbers source;
  Device device;
  SlowSteps steps;
  Feeder feeder(source, device, steps);
  const Batch first = feeder.next(), second = feeder.next();  // the first step is marked
  std::future<void> seeking = std::async(std::launch::async, [&] { feeder.seek({2, 0}); });
  EXPECT_EQ(seeking.wait_for(std::chrono::milliseconds(30)), std::future_status::timeout);
  expect_batch(first, 0);
  expect_batch(second, 1);
  steps.finish(1000);
  seeking.get();
  expect_batch(feeder.next(), 20);
}

// Also where the thread that copies waits for none of them, as it has filled all buffers.
TEST(Feeder, SeeksOnlyWhenAStepThatNoBufferWaitsForIsDone) {
  Numbers source;
  Device device;
  SlowSteps steps;
  Feeder feeder(source, device, steps);
  const Batch first = feeder.next();
  steps.mark();  // of the step that reads it
  std::future<void> seeking = std::async(std::launch::async, [&] { feeder.seek({2, 0}); });
  EXPECT_EQ(seeking.wait_for(std::chrono::milliseconds(30)), std::future_status::timeout);
  expect_batch(first, 0);
  steps.finish(1000);
  seeking.get();
  expect_batch(feeder.next(), 20);
}

TEST(Feeder, SeeksAndStopsAtAnyMoment) {
  Device device;
  for (std::uint64_t round = 0; round < 50; ++round) {
    Numbers source;
    SlowSteps steps;
    steps.finish(1000);
    Feeder feeder(source, device, steps);
    for (std::uint64_t i = 0; i < round % 4; ++i) feeder.next();
    feeder.seek({round % 3, 7});
    expect_batch(feeder.next(), round % 3 * 10 + 7);
    expect_batch(feeder.next(), round % 3 * 10 + 8);
  }
}

TEST(Feeder, ThrowsWhenTheTurnOfABrokenBatchComes) {
  Numbers source;
  source.broken = 3;
  Device device;
  SlowSteps steps;
  steps.finish(1000);
  Feeder feeder(source, device, steps);
  for (std::uint64_t i = 0; i < 3; ++i) expect_batch(feeder.next(), i);
  EXPECT_THROW(feeder.next(), DataError);
  EXPECT_THROW(feeder.next(), DataError);  // and again
  feeder.seek({0, 5});
  expect_batch(feeder.next(), 5);
}

TEST(Feeder, ThrowsAfterASeekThatFailed) {
  Device device;
  for (std::uint64_t before = 0; before < 4; ++before) {
    Numbers source;
    SlowSteps steps;
    steps.finish(1000);
    Feeder feeder(source, device, steps);
    for (std::uint64_t i = 0; i < before; ++i) feeder.next();
    EXPECT_THROW(feeder.seek({7, 0}), DataError);
    EXPECT_THROW(feeder.next(), DataError);
    feeder.seek({0, 5});
    expect_batch(feeder.next(), 5);
  }
}

}  // namespace
}  // namespace warpstep
