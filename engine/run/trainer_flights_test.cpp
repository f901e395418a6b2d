// Steps that are in flight on a device: which batches they may still read.
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "engine/graph/layers.h"
#include "engine/passes/compile.h"
#include "engine/run/trainer.h"
#include "tests/deferred_backend.h"

namespace warpstep {
namespace {

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
    if (++taken > landed + idx(held_)) ++overwritten;
    std::vector<std::uint8_t>& slot = slots_[taken % slots_.size()];
    std::ranges::fill(slot, static_cast<std::uint8_t>(99 + 10 * position_.step));
    batch_ = {.position = position_, .count = 1};
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

std::shared_ptr<Backend> device() {
  return std::make_shared<testing_support::DeferredBackend>(open_backend("ref"), 2);
}

// A run with an observer.
struct FlyingRun final : TrainObserver {
  FlyingRun(std::shared_ptr<Backend> on, int held)
      : backend(std::move(on)), step(small_step(), backend), data(held) {
    step.store().initialize(1);
  }
  void on_step(const StepRecord&) override {
    ++data.landed;
    most_ahead = std::max(most_ahead, data.taken - data.landed);
  }
  void train(const TrainOptions& options) {
    Trainer({.step = step, .data = data, .observers = {this}}, options).run(progress, false);
  }

  std::shared_ptr<Backend> backend;
  Program step;
  Slots data;
  Progress progress;
  std::uint64_t most_ahead = 0;
};

TEST(Flights, ReadNoBatchThatTheSourceOverwrites) {
  for (std::uint64_t steps = 1; steps <= 8; ++steps)
    for (int held = 1; held <= 8; ++held) {
      FlyingRun run(device(), held);
      run.train({.epochs = 3, .steps_per_launch = steps});
      EXPECT_EQ(run.data.overwritten, 0U) << steps << " steps a launch, " << held << " held";
      EXPECT_EQ(run.data.landed, 30U);
    }
}

// While the next launch's batches are taken.
TEST(Flights, AreTwoLaunchesWhereTheSourceHoldsThree) {
  for (std::uint64_t steps = 1; steps <= 3; ++steps) {
    FlyingRun run(device(), static_cast<int>(3 * steps));
    run.train({.epochs = 3, .steps_per_launch = steps});
    EXPECT_EQ(run.most_ahead, 3 * steps - 1) << "when the first of three has landed";
    EXPECT_EQ(run.data.overwritten, 0U);
  }
}

}  // namespace
}  // namespace warpstep
