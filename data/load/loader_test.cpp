#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <map>
#include <set>
#include <thread>

#include "data/load/image_batches.h"
#include "data/load/loader.h"
#include "engine/core/clock.h"
#include "engine/core/record.h"
#include "engine/core/run_delay.h"
#include "tests/data_testing.h"
#include "tests/data_uneven.h"
#include "tests/largest_allocation.h"

namespace warpstep::data {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using testing::images_of;
using testing::in_memory;
using testing::labels_of;
using testing::message_of;
using testing::NoThreads;
using testing::Uneven;
using testing_support::fail_allocation;
using testing_support::has_failed_allocation;

LoaderOptions options(std::int64_t batch, int workers, int prefetch = 3, Tail tail = Tail::drop) {
  LoaderOptions result;
  result.batch = batch;
  result.workers = workers;
  result.prefetch = prefetch;
  result.seed = 7;
  result.tail = tail;
  return result;
}

std::uint64_t hash_of(const Batch& batch) {
  Hash hash;
  hash.add(batch.position.epoch);
  hash.add(batch.position.step);
  hash.add(static_cast<std::uint64_t>(batch.count));
  hash.add(images_of(batch));
  for (const std::int32_t label : labels_of(batch)) hash.add(static_cast<std::uint64_t>(label));
  return hash.value();
}

std::vector<std::uint64_t> hashes(Loader& loader, std::uint64_t batches) {
  std::vector<std::uint64_t> result;
  for (std::uint64_t i = 0; i < batches; ++i) result.push_back(hash_of(loader.next()));
  return result;
}

TEST(Loader, GivesTheSameBatchesForAnyWorkersAndPrefetch) {
  for (const Tail tail : {Tail::drop, Tail::pad}) {
    const auto dataset = std::make_shared<Uneven>(53);
    Loader reference(dataset, options(8, 1, 2, tail));
    const auto expected = hashes(reference, 3 * reference.steps_per_epoch());
    for (const int workers : {1, 2, 4, 8}) {
      for (const int prefetch : {2, 3, 4, 5}) {
        Loader loader(dataset, options(8, workers, prefetch, tail));
        EXPECT_EQ(hashes(loader, expected.size()), expected) << workers << " x " << prefetch;
      }
    }
  }
}

TEST(Loader, GivesEverySampleOnceAnEpochInItsPlace) {
  const auto dataset = in_memory(50);
  Loader loader(dataset, options(8, 2, 3, Tail::pad));
  ASSERT_EQ(loader.steps_per_epoch(), 7U);
  std::map<std::string, int> seen;
  for (std::uint64_t step = 0; step < 7; ++step) {
    const Batch& batch = loader.next();
    EXPECT_EQ(batch.position, (Position{0, step}));
    EXPECT_EQ(batch.count, step == 6 ? 2 : 8);
    for (std::size_t row = 0; row < 8; ++row) {
      const auto image = images_of(batch).subspan(row * 60, 60);
      if (static_cast<std::int64_t>(row) >= batch.count) {
        EXPECT_THAT(image, Each(0));
        EXPECT_EQ(labels_of(batch)[row], -1);
      } else {
        ++seen[std::string(image.begin(), image.end())];
      }
    }
  }
  ASSERT_EQ(seen.size(), 50U);
  Scratch scratch;
  std::vector<std::uint8_t> pixels(60);
  for (std::uint64_t i = 0; i < 50; ++i) {
    dataset->read(i, scratch, pixels);
    EXPECT_EQ(seen[std::string(pixels.begin(), pixels.end())], 1);
  }
}

TEST(Loader, ShufflesEveryEpochAnewAndBySeed) {
  const auto dataset = in_memory(64);
  Loader a(dataset, options(64, 2));
  auto other = options(64, 2);
  other.seed = 8;
  Loader b(dataset, other);
  const auto pixels = [](Loader& loader) {
    const Batch& batch = loader.next();
    return std::string(images_of(batch).begin(), images_of(batch).end());
  };
  const std::set<std::string> all{pixels(a), pixels(a), pixels(a), pixels(b)};
  EXPECT_EQ(all.size(), 4U);
}

TEST(Loader, KeepsTheOrderWithoutShuffle) {
  const auto dataset = in_memory(12);
  auto plain = options(4, 2);
  plain.shuffle = Shuffle::none;
  Loader loader(dataset, plain);
  std::vector<std::uint8_t> pixels(60);
  Scratch scratch;
  for (std::uint64_t i = 0; i < 24; i += 4) {
    const Batch& batch = loader.next();
    for (std::uint64_t row = 0; row < 4; ++row) {
      dataset->read((i + row) % 12, scratch, pixels);
      EXPECT_TRUE(std::equal(pixels.begin(), pixels.end(),
                             images_of(batch).begin() + static_cast<std::ptrdiff_t>(60 * row)));
      EXPECT_EQ(labels_of(batch)[row], dataset->label((i + row) % 12));
    }
  }
}

TEST(Loader, GoesOnAfterSeekAsIfItHadNeverStopped) {
  const auto dataset = std::make_shared<Uneven>(30);
  Loader reference(dataset, options(4, 2, 3, Tail::pad));
  const auto expected = hashes(reference, 32);  // 4 epochs of 8 steps
  Loader loader(dataset, options(4, 4, 4, Tail::pad));
  for (std::uint64_t at = 0; at < 30; ++at) {
    const std::uint64_t batch = at * 11 % 30;
    loader.seek({batch / 8, batch % 8});
    EXPECT_EQ(loader.position(), (Position{batch / 8, batch % 8}));
    EXPECT_EQ(hash_of(loader.next()), expected[batch]);
    EXPECT_EQ(hash_of(loader.next()), expected[batch + 1]);
    EXPECT_EQ(loader.position(), (Position{(batch + 2) / 8, (batch + 2) % 8}));
  }
  auto late = options(4, 2, 3, Tail::pad);
  late.start = {2, 5};
  Loader started(dataset, late);
  EXPECT_EQ(hash_of(started.next()), expected[21]);
}

TEST(Loader, ThrowsWhenTheTurnOfABrokenSampleComes) {
  for (const int workers : {1, 4}) {
    Loader good(std::make_shared<Uneven>(40), options(4, 1));
    const auto expected = hashes(good, 20);
    const auto dataset = std::make_shared<Uneven>(40, 17);
    Loader loader(dataset, options(4, workers, 5));
    std::uint64_t given = 0;
    const std::string message = message_of([&] {
      for (; given < 10; ++given) ASSERT_EQ(hash_of(loader.next()), expected[given]);
    });
    ASSERT_LT(given, 10U);
    EXPECT_EQ(message, fmt::format("memory[17]: is broken (sample 17 of uneven, epoch 1, step {})",
                                   given + 1));
    EXPECT_EQ(loader.position(), (Position{0, given}));
    EXPECT_EQ(message_of([&] { loader.next(); }), message);  // and stays so
    loader.seek({0, given + 1});
    EXPECT_EQ(hash_of(loader.next()), expected[given + 1]);
  }
}

// Nobody would ever fill the batch that next() waits for.
TEST(Loader, StaysFailedWhereASeekCannotStartItsWorkers) {
  Loader loader(std::make_shared<Uneven>(40), options(4, 2));
  const auto expected = hashes(loader, 7);
  std::string refusal;
  {
    const NoThreads none;
    refusal = message_of<Error>([&] { loader.seek({0, 3}); });
    EXPECT_EQ(message_of<Error>([&] { loader.seek({0, 3}); }), refusal);  // tries again
  }
  EXPECT_THAT(refusal, HasSubstr("only 0 of 2 data workers could be started: "));
  EXPECT_EQ(message_of<Error>([&] { loader.next(); }), refusal);
  EXPECT_EQ(message_of<Error>([&] { loader.ready_within(std::chrono::seconds(1)); }), refusal);
  loader.seek({0, 3});
  EXPECT_EQ(hash_of(loader.next()), expected[3]);
}

TEST(Loader, StopsTheWorkersThatRunWhereMemoryForAnotherIsMissing) {
  const auto dataset = std::make_shared<Uneven>(40);
  const auto runs_out = [](auto work) {
    std::size_t failures = 0;
    for (bool has_failed = true; has_failed; failures += has_failed ? 1 : 0) {
      fail_allocation(failures);
      try {
        work();
      } catch (const std::bad_alloc&) {
      } catch (const UsageError&) {  // of the slots
      }
      has_failed = has_failed_allocation();
    }
    return failures;
  };
  EXPECT_GT(runs_out([&] { const Loader loader(dataset, options(4, 3)); }), 6U);
  Loader loader(dataset, options(4, 3));
  const std::uint64_t expected = hash_of(loader.next());
  // Each thread needs some.
  const std::size_t failures = runs_out([&, step = std::uint64_t{0}]() mutable {
    loader.seek({0, 2 + step++ % 2});
  });
  EXPECT_GE(failures, 3U);
  loader.seek({});
  EXPECT_EQ(hash_of(loader.next()), expected);
}

TEST(Loader, NamesTheFirstBrokenRowWhateverTheTiming) {
  class AllBroken : public Uneven {
   public:
    using Uneven::Uneven;
    Sample fetch(std::uint64_t index, Scratch&) const override {
      std::this_thread::sleep_for(std::chrono::microseconds((40 - index) * 20));
      throw std::runtime_error(fmt::format("no {}", index));
    }
  };
  auto plain = options(16, 8);
  plain.shuffle = Shuffle::none;
  for (int round = 0; round < 20; ++round) {
    Loader loader(std::make_shared<AllBroken>(40), plain);
    EXPECT_THAT(message_of([&] { loader.next(); }), HasSubstr("no 0 (sample 0 of"));
  }
}

TEST(Loader, StopsWhileTheRingIsFullOrFilling) {
  for (int round = 0; round < 60; ++round) {
    Loader loader(std::make_shared<Uneven>(16), options(4, 1 + round % 8, 2));
    if (round % 3 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
    if (round % 2 == 0) loader.next();
  }
}

TEST(Loader, FillsTheRingAndNoMoreWhenNobodyTakes) {
  Loader loader(in_memory(64), options(8, 2, 4));
  for (int i = 0; i < 5000 && loader.stats().samples < 32; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(loader.stats().samples, 32U);
  loader.next();
  loader.next();  // gives the first slot back
  for (int i = 0; i < 5000 && loader.stats().samples < 40; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(loader.stats().samples, 40U);
}

TEST(Loader, TakesOneSampleAndABatchLargerThanTheSet) {
  Loader one(in_memory(1), options(1, 8, 5));
  const Batch first = one.next();
  EXPECT_EQ(first.count, 1);
  for (std::uint64_t epoch = 1; epoch < 50; ++epoch) {
    EXPECT_EQ(one.next().position, (Position{epoch, 0}));
  }
  Loader padded(in_memory(3), options(8, 4, 3, Tail::pad));
  ASSERT_EQ(padded.steps_per_epoch(), 1U);
  for (int epoch = 0; epoch < 5; ++epoch) {
    const Batch& batch = padded.next();
    EXPECT_EQ(batch.count, 3);
    EXPECT_EQ(labels_of(batch)[2] >= 0, true);
    EXPECT_EQ(labels_of(batch)[3], -1);
  }
}

TEST(Loader, RefusesOptionsThatCannotBeMeant) {
  const auto dataset = in_memory(3);
  const auto refused = [&](const LoaderOptions& o) {
    return message_of<UsageError>([&] { Loader loader(dataset, o); });
  };
  EXPECT_THAT(refused(options(8, 1)), AllOf(HasSubstr("3 samples"), HasSubstr("batch of 8")));
  EXPECT_THAT(refused(options(0, 1)), HasSubstr("batch 0"));
  EXPECT_THAT(refused(options(1, -1)), HasSubstr("-1 data workers"));
  EXPECT_THAT(refused(options(1, 1, 1)), HasSubstr("prefetch 1"));
  auto late = options(1, 1);
  late.start = {0, 3};
  EXPECT_THAT(refused(late), HasSubstr("step 3 of epoch 0"));
  Loader loader(dataset, options(1, 1));
  EXPECT_THAT(message_of<UsageError>([&] { loader.seek({1, 3}); }), HasSubstr("3 steps"));
}

// Batches without content, of which one worker throws.
class Throwing final : public BatchMaker {
 public:
  explicit Throwing(std::string where, bool throws_number = false)
      : where_(std::move(where)), throws_number_(throws_number) {}
  std::string path() const override { return "memory"; }
  std::string name(std::uint64_t) const override { return "memory"; }
  std::string sample_text() const override { return "nothing"; }
  std::uint64_t samples() const override { return 100; }
  std::uint64_t steps_per_epoch() const override { return 10; }
  std::int64_t batch() const override { return 10; }
  std::size_t slot_bytes() const override { return 64; }
  std::int64_t claim() const override { return 5; }
  std::vector<std::string> stages() const override { return {}; }
  bool is_light() const override { return false; }
  std::uint64_t worker_bytes() const override { return 0; }
  std::uint64_t order_bytes() const override { return 0; }
  std::uint64_t data_bytes() const override { return 0; }
  void fill(Position position, std::int64_t begin, std::int64_t, std::span<std::byte>, MakerState&,
            std::vector<BadSample>&, const std::function<bool()>&) override {
    if (begin > 0) throw_at("fill", position);
  }
  void finish(Position position, std::span<std::byte>, MakerState&,
              std::vector<BadSample>&) const override {
    throw_at("finish", position);
  }
  void prepare_next(Position position) override { throw_at("prepare_next", position); }
  void describe(std::span<const std::byte>, Batch&) const override {}

 private:
  void throw_at(const std::string& here, Position position) const {
    if (here != where_ || position.step != 2) return;
    if (throws_number_) throw 42;
    throw std::bad_alloc();
  }
  std::string where_;
  bool throws_number_;
};

TEST(Loader, ReportsWhatAWorkerThrowsWhenItsBatchIsDue) {
  for (const char* where : {"prepare_next", "fill", "finish"}) {
    for (const DataErrors errors : {DataErrors::fail, DataErrors::skip}) {
      auto own = options(10, 2);
      own.errors = errors;
      Loader loader(std::make_unique<Throwing>(where), own);
      loader.next();
      loader.next();
      EXPECT_THAT(message_of([&] { loader.next(); }),
                  HasSubstr("memory: std::bad_alloc (epoch 1, step 3)"))
          << where;
    }
  }
}

// In a worker's thread nobody else would catch it.
TEST(Loader, ReportsWhatIsNoStandardException) {
  for (const char* where : {"prepare_next", "fill", "finish"}) {
    Loader loader(std::make_unique<Throwing>(where, true), options(10, 2));
    loader.next();
    loader.next();
    EXPECT_THAT(message_of([&] { loader.next(); }),
                HasSubstr("memory: an exception of type int, which is not a std::exception (epoch "
                          "1, step 3)"))
        << where;
  }
}

// A child that would wait for the parent's threads for ever.
TEST(Loader, IsRefusedInAForkedProcess) {
  constexpr int workers = 12;  // whose stacks are more than a fork keeps
  auto loader = std::make_unique<Loader>(testing::in_memory(64), options(8, workers));
  loader->next();
  const pid_t child = ::fork();
  if (child == 0) {
    const auto is_named = [](const std::string& message) {
      return message.ends_with("make a loader of its own there");
    };
    const bool are_named = is_named(message_of<UsageError>([&] { loader->next(); })) &&
                           is_named(message_of<UsageError>([&] {
                             loader->seek({1, 0});
                           }));
    loader.reset();  // as where an exception leaves its scope
    ::_exit(are_named ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  loader->next();
}

// Of a user's own, whose sums and products would overflow.
class Far final : public Transform {
 public:
  explicit Far(std::function<void(Geometry&)> plan) : plan_(std::move(plan)) {}
  TransformStage stage() const override { return TransformStage::geometry; }
  std::string name() const override { return "far"; }
  std::string text() const override { return "far"; }
  void plan(Geometry& geometry, const Draw&) const override { plan_(geometry); }

 private:
  std::function<void(Geometry&)> plan_;
};

TEST(Loader, RefusesPlansThatCannotBeCounted) {
  constexpr std::int64_t far = std::int64_t{1} << 62;
  for (const auto& plan : std::vector<std::function<void(Geometry&)>>{
           [](Geometry& g) { g.out.y = far; }, [](Geometry& g) { g.out.x = -far; },
           [](Geometry& g) { g.source.height = g.source.width = far; },
           [](Geometry& g) { g.height = 0; }, [](Geometry& g) { g.height = g.width = far; },
           [](Geometry& g) {
             g.kept = Window{far, far, far, far};
           }}) {
    LoaderOptions with = options(4, 1);
    with.recipe = Recipe(std::vector<TransformPtr>{std::make_shared<Far>(plan)});
    Loader loader(in_memory(8), with);
    EXPECT_THAT(message_of([&] { loader.next(); }),
                HasSubstr("sides and distances are at most 2^30 pixels (sample "));
  }
}

TEST(Loader, RefusesNullPointers) {
  EXPECT_THAT(
      message_of<UsageError>([] { Loader(std::shared_ptr<const Dataset>(), options(1, 1)); }),
      HasSubstr("a loader of no data set: the pointer is null"));
  EXPECT_THAT(message_of<UsageError>([] { Loader(std::unique_ptr<BatchMaker>(), options(1, 1)); }),
              HasSubstr("a loader of no batch maker: the pointer is null"));
  EXPECT_THAT(message_of<UsageError>([] { ImageBatches(nullptr, options(1, 1)); }),
              HasSubstr("batches of no data set: the pointer is null"));
  struct None : SlotMemory {
    std::byte* allocate(std::size_t) override { return nullptr; }
    void release(std::byte*, std::size_t) noexcept override {}
  } none;
  auto own = options(4, 2);
  own.memory = &none;
  EXPECT_THAT(message_of<UsageError>([&] { Loader(in_memory(8), own); }),
              HasSubstr("LoaderOptions::memory allocated nothing"));
}

// It would write the rows of its own batches into slots of others.
TEST(Loader, RefusesAMakerOfAnotherBatchSize) {
  LoaderOptions options;
  options.batch = 8;
  EXPECT_EQ(message_of<UsageError>([&] { Loader(std::make_unique<Throwing>(""), options); }),
            "memory: the batch maker was made for batches of 10, the loader for 8; give both the "
            "same LoaderOptions");
}

TEST(Loader, UsesTheSlotMemoryItIsGivenAndGivesItBack) {
  class Counted : public SlotMemory {
   public:
    std::byte* allocate(std::size_t bytes) override {
      held += bytes;
      return static_cast<std::byte*>(::operator new (bytes, std::align_val_t{64}));
    }
    void release(std::byte* memory, std::size_t bytes) noexcept override {
      held -= bytes;
      ::operator delete (memory, std::align_val_t{64});
    }
    std::size_t held = 0;
  };
  Counted memory;
  {
    auto own = options(4, 2);
    own.memory = &memory;
    Loader loader(in_memory(8), own);
    EXPECT_EQ(memory.held, loader.memory().slots);
    // 4 images of 60 bytes, 4 labels and 4 plans of 56 bytes, by cache lines.
    EXPECT_EQ(memory.held, 3U * (256 + 64 + 256));
    loader.next();
  }
  EXPECT_EQ(memory.held, 0U);
}

TEST(Loader, GivesBatchesAwayWithTheirMemory) {
  const auto dataset = std::make_shared<Uneven>(53);
  Loader reference(dataset, options(8, 1));
  const auto expected = hashes(reference, 30);
  std::vector<std::vector<std::byte>> others;  // must outlive the loader
  std::vector<std::pair<Batch, std::uint64_t>> kept;
  Loader loader(dataset, options(8, 4, 2));
  for (int i = 0; i < 30; ++i) {
    const Batch batch = loader.next();
    others.emplace_back(batch.slot.size());
    const std::span<std::byte> given = loader.exchange(others.back());
    EXPECT_EQ(given.data(), batch.slot.data());
    kept.emplace_back(batch, hash_of(batch));
  }
  // Workers have written later batches, but not here.
  for (std::size_t i = 0; i < kept.size(); ++i) {
    EXPECT_EQ(kept[i].second, expected[i]);
    EXPECT_EQ(hash_of(kept[i].first), expected[i]);
  }
  EXPECT_THAT(message_of<UsageError>([&] { loader.exchange(others.front()); }), HasSubstr("once"));
  loader.next();
  EXPECT_THAT(message_of<UsageError>([&] { loader.exchange({}); }), HasSubstr("exchanged for 0"));
}

TEST(Loader, CountsTheWaitForAReadyBatch) {
  Loader loader(std::make_shared<Uneven>(53), options(8, 1));
  std::uint64_t waited = 0;
  for (int i = 0; i < 20; ++i) {
    const std::uint64_t begin = now_ns();
    const bool was_ready = loader.ready_within(std::chrono::nanoseconds(1));
    while (!loader.ready_within(std::chrono::seconds(1))) {
    }
    const std::uint64_t most = now_ns() - begin;
    const std::uint64_t counted = loader.next().wait_ns;
    EXPECT_LE(counted, most);
    EXPECT_TRUE(was_ready || counted > 0);
    waited += counted;
  }
  EXPECT_GT(waited, 0U);
  EXPECT_EQ(loader.stats().trainer_wait_ns, waited);
}

TEST(Loader, CountsTheCpuTimeOfItsWorkers) {
  const std::uint64_t begin = now_ns();
  Loader loader(std::make_shared<Uneven>(53), options(8, 2));
  for (int i = 0; i < 40; ++i) loader.next();
  const LoaderStats stats = loader.stats();
  EXPECT_GT(stats.cpu_ns, 0U);
  EXPECT_EQ(stats.cpu_ns, stats.workers[0].cpu_ns + stats.workers[1].cpu_ns);
  loader.seek({0, 1});  // other threads
  const std::uint64_t later = loader.stats().cpu_ns;
  EXPECT_GE(later, stats.cpu_ns);
  EXPECT_LE(later, 2 * (now_ns() - begin));
}

TEST(Loader, RecordsWhatLongClaimsWaitedForACore) {
  RunDelay delay;
  delay.since_last();
  if (!delay.since_last()) GTEST_SKIP() << "this kernel has no schedstat";
  record::keep_entries(true);
  {
    Loader loader(std::make_shared<Uneven>(53), options(8, 2));  // its samples sleep
    for (int i = 0; i < 40; ++i) loader.next();
  }
  record::keep_entries(false);
  std::size_t delays = 0;
  record::drain([&](std::uint32_t, std::span<const record::Entry> entries) {
    for (std::size_t i = 1; i < entries.size(); ++i) {
      if (entries[i].name != spans::worker_delay.id()) continue;
      ++delays;
      EXPECT_EQ(entries[i - 1].name, spans::worker_cpu.id());
      EXPECT_LT(entries[i].arg, 1'000'000'000U);
    }
  });
  EXPECT_GT(delays, 8U);
}

TEST(Loader, CountsBatchesSamplesAndBytes) {
  Loader loader(std::make_shared<Uneven>(16), options(4, 2));
  for (int i = 0; i < 300; ++i) loader.next();
  const LoaderStats stats = loader.stats();
  EXPECT_EQ(stats.batches, 300U);
  EXPECT_LT(stats.first_taken_ns, stats.last_taken_ns);
  EXPECT_GE(stats.samples, 1200U);
  EXPECT_EQ(stats.bytes, stats.samples * 60);
  ASSERT_EQ(stats.slowest.size(), 8U);
  for (const SlowSample& slow : stats.slowest) {
    EXPECT_FALSE(slow.name.empty());
    EXPECT_FALSE(slow.class_name.empty());
  }
}

}  // namespace
}  // namespace warpstep::data
