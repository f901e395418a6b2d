// Steps that are in flight on a device: which batches they may still read, and what becomes of them
// where an exception ends the run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "engine/core/error.h"
#include "engine/graph/layers.h"
#include "engine/passes/compile.h"
#include "engine/run/feeder.h"
#include "engine/run/trainer.h"
#include "tests/deferred_backend.h"

namespace warpstep {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

struct Thrown : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Batches of one grey image, ten per epoch, in `held` slots in turn. Counts those that it
// overwrites before their steps are known to be done.
class Slots final : public BatchSource {
 public:
  explicit Slots(int held) : held_(held), slots_(idx(held), std::vector<std::uint8_t>(12)) {}
  std::int64_t batch_size() const override { return 1; }
  std::uint64_t samples() const override { return 10; }
  std::uint64_t steps_per_epoch() const override { return 10; }
  int held() const override { return held_; }
  const Batch& next() override {
    if (position_ == throws_at) throw Thrown("planted in the source");
    if (++taken > landed + idx(held_)) ++overwritten;
    std::vector<std::uint8_t>& slot = slots_[taken % slots_.size()];
    std::ranges::fill(slot, static_cast<std::uint8_t>(99 + 10 * position_.step));
    batch_ = {.position = position_, .count = 1, .slot = std::as_bytes(std::span(slot))};
    batch_.add("images", std::span(slot));
    batch_.add("labels", std::span(label_));
    position_ = position_.step + 1 == steps_per_epoch()
                    ? Position{position_.epoch + 1, 0}
                    : Position{position_.epoch, position_.step + 1};
    return batch_;
  }
  Position position() const override { return position_; }
  void seek(Position position) override { position_ = position; }

  std::uint64_t taken = 0, landed = 0, overwritten = 0;
  std::optional<Position> throws_at;

 private:
  int held_;
  std::vector<std::vector<std::uint8_t>> slots_;
  std::vector<std::int32_t> label_{3};
  Batch batch_;
  Position position_;
};

Graph small_step() {
  Graph g;
  const Tensor images = g.input("images", {DType::u8, {1, 2, 2, 3}});
  const Tensor labels = g.input("labels", {DType::i32, {1}});
  const std::vector<float> half{0.5F, 0.5F, 0.5F};
  cross_entropy(linear("fc", flatten(normalize(images, half, half)), {.out = 4}), labels);
  return compile_step(g, {});
}

std::shared_ptr<Backend> device_of(std::uint64_t seed) {
  return std::make_shared<testing_support::DeferredBackend>(open_backend("ref"), 2, seed);
}
std::shared_ptr<Backend> device() {
  return device_of(0);
}

// A run with an observer that may throw.
struct FlyingRun final : TrainObserver {
  FlyingRun(std::shared_ptr<Backend> on, int held)
      : backend(std::move(on)), step(small_step(), backend), data(held) {
    step.store().initialize(1);
  }
  void on_step(const StepRecord& record) override {
    ++data.landed;
    notified.push_back(record.step);
    most_ahead = std::max(most_ahead, data.taken - data.landed);
    if (record.step != throws_at) return;
    throws_at = 0;
    throw Thrown("planted in an observer");
  }
  void on_epoch(const EpochRecord& record) override {
    counts.push_back(record.score.count);
    if (record.epoch != throws_after_epoch) return;
    throws_after_epoch = 0;
    throw Thrown("planted in an observer");
  }
  Trainer trainer(const TrainOptions& options) {
    return Trainer({.step = step,
                    .data = data,
                    .observers = {this},
                    .save =
                        [this](const Progress& at) {
                          saved.push_back(at.step);
                          return std::filesystem::path();
                        }},
                   options);
  }
  std::vector<std::vector<float>> weights() {
    std::vector<std::vector<float>> all;
    for (std::size_t p = 0; p < step.store().parameters().size(); ++p)
      all.push_back(step.store().read(p));
    return all;
  }

  std::shared_ptr<Backend> backend;
  Program step;
  Slots data;
  Progress progress;
  std::uint64_t throws_at = 0, most_ahead = 0, throws_after_epoch = 0;
  std::vector<std::uint64_t> notified, saved;
  std::vector<std::int64_t> counts;  // of the epochs' scores
};

TEST(Flights, ReadNoBatchThatTheSourceOverwrites) {
  for (std::uint64_t steps = 1; steps <= 8; ++steps)
    for (int held = 1; held <= 8; ++held) {
      FlyingRun run(device(), held);
      run.trainer({.epochs = 3, .steps_per_launch = steps}).run(run.progress, false);
      EXPECT_EQ(run.data.overwritten, 0U) << steps << " steps a launch, " << held << " held";
      EXPECT_EQ(run.data.landed, 30U);
    }
}

// Of a feeder that was made for another number of steps a launch than the trainer's.
TEST(Flights, ReadTheBatchesOfAFeederOfOtherLaunches) {
  FlyingRun one_by_one(open_backend("ref"), 3);
  one_by_one.trainer({.epochs = 3}).run(one_by_one.progress, false);
  for (std::uint64_t groups = 1; groups <= 4; ++groups)
    for (std::uint64_t steps = 1; steps <= 4; ++steps)
      for (std::uint64_t seed = 0; seed < 4; ++seed) {
        FlyingRun run(device_of(seed), 1);
        Feeder feeder(run.data, *run.backend, run.step.stream(), groups);
        Trainer({.step = run.step, .data = feeder}, {.epochs = 3, .steps_per_launch = steps})
            .run(run.progress, false);
        EXPECT_EQ(run.weights(), one_by_one.weights())
            << steps << " steps a launch, " << groups << " in the feeder, seed " << seed;
      }
}

// While the next launch's batches are taken.
TEST(Flights, AreTwoLaunchesWhereTheSourceHoldsThree) {
  for (std::uint64_t steps = 1; steps <= 3; ++steps) {
    FlyingRun run(device(), static_cast<int>(3 * steps));
    run.trainer({.epochs = 3, .steps_per_launch = steps}).run(run.progress, false);
    EXPECT_EQ(run.most_ahead, 3 * steps - 1) << "when the first of three has landed";
    EXPECT_EQ(run.data.overwritten, 0U);
  }
}

// Steps of both backends; 25 end in the middle of an epoch.
struct Flown {
  std::shared_ptr<Backend> (*open)();
  int held;
  TrainOptions options;
};

std::vector<Flown> flown() {
  const auto host = +[] { return open_backend("ref"); };
  return {{host, 1, {.epochs = 0, .max_steps = 25}},
          {device, 3, {.epochs = 0, .max_steps = 25}},
          {device, 6, {.epochs = 0, .max_steps = 25, .steps_per_launch = 2}}};
}

// The run up to the exception, and that its progress has what the device has done.
void expect_thrown(FlyingRun& run, Trainer& trainer) {
  EXPECT_THROW(trainer.run(run.progress, false), Thrown);
  EXPECT_EQ(run.step.store().step_state().step, static_cast<std::int64_t>(run.progress.step));
  EXPECT_EQ(run.progress.next, (Position{run.progress.step / 10, run.progress.step % 10}));
}

void expect_rest(FlyingRun& run, Trainer& trainer, const FlyingRun& whole,
                 const std::vector<std::vector<float>>& weights) {
  EXPECT_EQ(trainer.run(run.progress, false), Outcome::finished);
  EXPECT_EQ(run.progress.step, 25U);
  EXPECT_EQ(run.weights(), weights);
  EXPECT_EQ(run.data.position(), whole.data.position());
  EXPECT_EQ(run.saved.back(), 25U);
}

TEST(Flights, CountWhereAnObserverThrows) {
  for (const Flown& flown : flown()) {
    FlyingRun whole(flown.open(), flown.held);
    whole.trainer(flown.options).run(whole.progress, false);
    // In an epoch, with its last steps in flight, at its end, with the run's last steps in flight,
    // and at its end.
    for (const std::uint64_t at : {5, 8, 10, 23, 25}) {
      SCOPED_TRACE(fmt::format("{}, held {}, step {}", whole.backend->describe(), flown.held, at));
      FlyingRun run(flown.open(), flown.held);
      Trainer trainer = run.trainer(flown.options);
      run.throws_at = at;
      expect_thrown(run, trainer);
      EXPECT_GE(run.progress.step, at);
      EXPECT_EQ(run.notified.back(), at);
      expect_rest(run, trainer, whole, whole.weights());
      EXPECT_TRUE(std::ranges::is_sorted(run.notified, std::less_equal<>())) << "each once";
      EXPECT_THAT(run.counts, testing::Each(10));
    }
  }
}

TEST(Flights, LoseNoCheckpointAndNoScoreWhereAnObserverOfEpochsThrows) {
  for (const Flown& flown : flown()) {
    FlyingRun whole(flown.open(), flown.held), run(flown.open(), flown.held);
    whole.trainer(flown.options).run(whole.progress, false);
    Trainer trainer = run.trainer(flown.options);
    run.throws_after_epoch = 1;
    expect_thrown(run, trainer);
    expect_rest(run, trainer, whole, whole.weights());
    EXPECT_EQ(run.saved, whole.saved);
    EXPECT_THAT(run.counts, testing::Each(10));
  }
}

TEST(Flights, CountWhereTheSourceThrows) {
  for (const Flown& flown : flown()) {
    FlyingRun whole(flown.open(), flown.held), run(flown.open(), flown.held);
    whole.trainer(flown.options).run(whole.progress, false);
    Trainer trainer = run.trainer(flown.options);
    run.data.throws_at = Position{0, 7};
    expect_thrown(run, trainer);
    EXPECT_EQ(run.progress.step, flown.options.steps_per_launch == 1 ? 7U : 6U);
    run.data.throws_at.reset();
    expect_rest(run, trainer, whole, whole.weights());
  }
}

// The last checkpoint stays one from which the run can continue.
TEST(Flights, AreNotSavedAfterAStepThatDiverged) {
  for (const Flown& flown : flown()) {
    FlyingRun run(flown.open(), flown.held);
    struct Spoil final : TrainObserver {
      explicit Spoil(Store& of) : store(of) {}
      void on_step(const StepRecord& record) override {
        if (record.step != 4) return;
        store.write(0, std::vector<float>(store.read(0).size(), NAN));
      }
      Store& store;
    } spoil(run.step.store());
    Trainer trainer({.step = run.step,
                     .data = run.data,
                     .observers = {&run, &spoil},
                     .save =
                         [&](const Progress& at) {
                           run.saved.push_back(at.step);
                           return std::filesystem::path();
                         }},
                    flown.options);
    EXPECT_THROW(trainer.run(run.progress, false), NumericError);
    EXPECT_EQ(run.progress.step, run.notified.back());
    EXPECT_THROW(trainer.run(run.progress, false), NumericError);
    EXPECT_THAT(run.saved, ElementsAre());
  }
}

TEST(Flights, AreNotSavedWithAStepOfWhichSomeCallsRan) {
  struct Torn final : Runner {
    explicit Torn(Program& program) : Runner(program), eager(eager_runner(program)) {}
    void run() override {
      if (++steps != 4) return eager->step();
      program_.enqueue(0);
      throw Thrown("planted in a call");
    }
    std::unique_ptr<Runner> eager;
    int steps = 0;
  };
  for (const Flown& flown : flown()) {
    FlyingRun run(flown.open(), flown.held);
    Torn runner(run.step);
    Trainer trainer({.step = run.step,
                     .data = run.data,
                     .runner = &runner,
                     .save =
                         [&](const Progress& at) {
                           run.saved.push_back(at.step);
                           return std::filesystem::path();
                         }},
                    flown.options);
    EXPECT_THROW(trainer.run(run.progress, false), Thrown);
    EXPECT_EQ(run.progress.step, flown.options.steps_per_launch == 1 ? 3U : 2U);
    EXPECT_THAT(
        [&] { trainer.run(run.progress, false); },
        ThrowsMessage<UsageError>(AllOf(HasSubstr("step "), HasSubstr("load a checkpoint"))));
    EXPECT_THAT(run.saved, ElementsAre());
  }
}

}  // namespace
}  // namespace warpstep
