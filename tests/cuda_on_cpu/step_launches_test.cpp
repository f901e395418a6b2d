// Several steps in one launch: the bits and the times of steps that are launched one by one.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <map>
#include <numeric>
#include <stdexcept>
#include <thread>
#include <vector>

#include "engine/graph/layers.h"
#include "engine/run/feeder.h"
#include "engine/run/trainer.h"
#include "tests/cuda_on_cpu/fake_runtime.h"
#include "tests/stepping.h"
#include "tests/tested_backend.h"

namespace warpstep {
namespace {

using testing_support::open_tested_backend;
using testing_support::Stepping;

constexpr const char* launched_backend = "cuda_emulated";

// Seven batches an epoch, each with its own images and labels, and made in this time.
class Sevens final : public BatchSource {
 public:
  explicit Sevens(std::chrono::milliseconds each = {}) : each_(each) {}
  std::int64_t batch_size() const override { return 2; }
  std::uint64_t samples() const override { return 14; }
  std::uint64_t steps_per_epoch() const override { return 7; }
  const Batch& next() override {
    if (each_.count() > 0) std::this_thread::sleep_for(each_);
    std::ranges::fill(std::span(slot_).first(pixels), static_cast<std::byte>(40 * position_.step));
    for (std::int32_t row = 0; row < 2; ++row) {
      slot_[idx(row) * pixels / 2 + 99] = static_cast<std::byte>(200);
      const auto label =
          static_cast<std::int32_t>((position_.step + position_.epoch + idx(row)) % 10);
      std::memcpy(slot_.data() + pixels + idx(row) * sizeof label, &label, sizeof label);
    }
    batch_ = {.position = position_, .count = 2, .slot = slot_};
    batch_.inputs = {{"images", std::span(slot_).first(pixels)},
                     {"labels", std::span(slot_).subspan(pixels)}};
    position_ = position_.step == 6 ? Position{position_.epoch + 1, 0}
                                    : Position{position_.epoch, position_.step + 1};
    return batch_;
  }
  Position position() const override { return position_; }
  void seek(Position position) override { position_ = position; }

 private:
  static constexpr std::size_t pixels = 2 * 8 * 8 * 3;
  std::chrono::milliseconds each_;
  std::vector<std::byte> slot_ = std::vector<std::byte>(pixels + 2 * sizeof(std::int32_t));
  Batch batch_;
  Position position_;
};

Graph small_network(const Backend& backend, StepOptions options) {
  Graph g;
  const Tensor images = g.input("images", {DType::u8, {2, 8, 8, 3}});
  const Tensor labels = g.input("labels", {DType::i32, {2}});
  const std::vector<float> half{0.5F, 0.5F, 0.5F};
  const Tensor h = linear("fc1", flatten(normalize(images, half, half)), {.out = 16});
  cross_entropy(linear("fc2", relu(h), {.out = 10}), labels);
  return compile_step(g, options_for(backend, std::move(options)));
}

// Trains over 17 steps with evaluations and checkpoints in between, and keeps all that is reported
// of them but times. Asked to stop in step `stop_at`, or ended by an exception of an observer in
// step `throw_at`, it continues.
struct LaunchedRun final : TrainObserver {
  LaunchedRun(std::uint64_t steps_per_launch, std::uint64_t stop_at, std::uint64_t throw_at = 0)
      : stop_at_(stop_at), throw_at_(throw_at) {
    const auto backend = open_tested_backend(launched_backend);
    StepOptions options{.precision = Precision::fp16, .statistics = true};
    options.update.accumulate = 2;
    Stepping step(small_network(*backend, options), backend);
    step.program.store().initialize(3);
    Program evaluation(small_network(*backend, {.training = false, .precision = Precision::fp16}),
                       backend, step.program.shared_store());
    Sevens images, others;
    Feeder training(images, *backend, step.program.stream(), steps_per_launch);
    Feeder validation(others, *backend, evaluation.stream());
    Trainer trainer({.step = step.program,
                     .data = training,
                     .evaluation = &evaluation,
                     .evaluation_data = &validation,
                     .observers = {this},
                     .save =
                         [&](const Progress& at) {
                           saved.emplace(at.step, all_numbers(step));
                           return std::filesystem::path();
                         }},
                    {.epochs = 0,
                     .max_steps = 17,
                     .evaluate_every_steps = 6,
                     .save_every_steps = 5,
                     .measure_every_steps = 4,
                     .steps_per_launch = steps_per_launch});
    Progress progress;
    fake_cuda::reset_counts();
    if (throw_at > 0) {
      EXPECT_THROW(trainer.run(progress, stop_), std::runtime_error);
      EXPECT_EQ(step.program.store().step_state().step, static_cast<std::int64_t>(progress.step));
    }
    while (trainer.run(progress, stop_) == Outcome::interrupted) {
      stopped_at = progress.step;
      stop_ = false;
    }
    launches = fake_cuda::calls("cudaGraphLaunch");
    EXPECT_EQ(fake_cuda::runs("report"), 17U);
  }

  void on_step(const StepRecord& r) override {
    reported += fmt::format("step {} {} {} {} {}", r.step, r.loss, r.score.correct, r.learning_rate,
                            r.loss_scale);
    for (const BlockStatistics& block : r.blocks)
      reported += fmt::format(" {} {}", block.name, block.update_norm);
    reported += "\n";
    EXPECT_EQ(r.times.total_ns(), r.end_ns - r.begin_ns);
    EXPECT_GT(r.times.kernels_ns, 0U) << "step " << r.step;
    if (r.step == stop_at_) stop_ = true;
    if (r.step != throw_at_) return;
    throw_at_ = 0;
    throw std::runtime_error("planted");
  }
  void on_evaluation(const EvaluationRecord& r) override {
    reported += fmt::format("evaluation {} {}\n", r.step, r.score.loss_sum);
  }

  std::string reported;
  std::map<std::uint64_t, std::vector<float>> saved;
  std::uint64_t launches = 0, stopped_at = 0;

 private:
  std::uint64_t stop_at_, throw_at_;
  std::atomic<bool> stop_{false};
};

// Launches of four end after steps 4, 5, 6, 7 | 10, 11, 12, 14 | 15, 17.
TEST(CudaStep, HasTheSameBitsInALaunchOfSeveral) {
  const LaunchedRun one(1, 99), four(4, 99), stopped(4, 8);
  EXPECT_EQ(four.reported, one.reported);
  EXPECT_EQ(four.saved, one.saved);
  EXPECT_EQ(four.saved.size(), 8U) << "after steps 5, 6, 7, 10, 12, 14, 15 and 17";
  EXPECT_EQ(one.launches, 14U) << "all but the first step of each kind: accumulates, measures";
  EXPECT_EQ(four.launches, 8U) << "all but those with such a step, 1 to 4 and 6";
  EXPECT_EQ(stopped.stopped_at, 10U) << "the launch of step 8 is finished";
  EXPECT_EQ(stopped.reported, one.reported);
  EXPECT_EQ(stopped.saved, one.saved);
}

TEST(CudaStep, InFlightCountsWhereAnObserverThrows) {
  const LaunchedRun whole(1, 99);
  for (const std::uint64_t steps : {1, 4})
    for (const std::uint64_t at : {5, 8, 16}) {
      const LaunchedRun thrown(steps, 99, at);
      EXPECT_EQ(thrown.saved.at(17), whole.saved.at(17)) << steps << " a launch, step " << at;
    }
}

// A feeder that keeps how long the trainer waited for each batch.
class Waits final : public Feeder {
 public:
  using Feeder::Feeder;
  const Batch& next() override {
    const Batch& batch = Feeder::next();
    of_batches.push_back(batch.wait_ns);
    return batch;
  }
  std::vector<std::uint64_t> of_batches;
};

// The host waits for all batches of a launch before it: none of that may get lost. The time of the
// launch's first step has all of these waits, or as much as its own kernels leave.
TEST(CudaStep, WaitsForEachBatchOfALaunch) {
  struct Times final : TrainObserver {
    void on_step(const StepRecord& r) override { of_steps.push_back(r.times); }
    std::vector<StepTimes> of_steps;
  } times;
  const auto backend = open_tested_backend(launched_backend);
  Stepping step(small_network(*backend, {}), backend);
  step.program.store().initialize(3);
  Sevens images(std::chrono::milliseconds(60));
  Waits training(images, *backend, step.program.stream(), 4);
  Trainer trainer({.step = step.program, .data = training, .observers = {&times}},
                  {.epochs = 0, .max_steps = 14, .steps_per_launch = 4});
  Progress progress;
  trainer.run(progress, std::atomic<bool>(false));
  ASSERT_EQ(times.of_steps.size(), 14U);
  ASSERT_EQ(training.of_batches.size(), 14U);
  std::size_t first = 0;
  for (const std::size_t steps : {4U, 3U, 4U, 3U}) {
    const StepTimes& all = times.of_steps[first];
    const auto begin = training.of_batches.begin() + static_cast<std::ptrdiff_t>(first);
    const std::uint64_t waited =
        std::accumulate(begin, begin + static_cast<std::ptrdiff_t>(steps), std::uint64_t{0});
    EXPECT_GE(all.data_ns + all.copies_ns, std::min(waited, all.total_ns() - all.kernels_ns))
        << "the launch of step " << first + 1;
    for (std::size_t i = first + 1; i < first + steps; ++i)
      EXPECT_EQ(times.of_steps[i].data_ns + times.of_steps[i].copies_ns, 0U) << "step " << i + 1;
    first += steps;
  }
}

}  // namespace
}  // namespace warpstep
