// The order of a run's steps, evaluations and checkpoints, on the reference backend.

#include "engine/run/trainer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "engine/core/error.h"
#include "tests/deferred_backend.h"
#include "tests/stepping.h"

namespace warpstep {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::ThrowsMessage;
using testing_support::model_step;

constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();
constexpr float infinite = std::numeric_limits<float>::infinity();

// Endless batches of one image, three per epoch, each of another grey.
class GreyImages final : public BatchSource {
 public:
  std::int64_t batch_size() const override { return 1; }
  std::uint64_t samples() const override { return 3; }
  std::uint64_t steps_per_epoch() const override { return 3; }
  const Batch& next() override {
    if (broken || broken_at == position_) fail<DataError>("planted");
    if (throws) throw std::runtime_error("thrown");
    std::ranges::fill(image_, static_cast<std::uint8_t>(99 + 20 * position_.step));
    batch_ = {.position = position_, .count = 1};
    batch_.add("images", std::span(image_));
    batch_.add("labels", std::span(label_));
    position_ = position_.step + 1 == steps_per_epoch()
                    ? Position{position_.epoch + 1, 0}
                    : Position{position_.epoch, position_.step + 1};
    return batch_;
  }
  Position position() const override { return position_; }
  void seek(Position position) override { position_ = position; }

  bool broken = false, throws = false;
  std::optional<Position> broken_at;

 private:
  std::vector<std::uint8_t> image_ = std::vector<std::uint8_t>(784, 99);
  std::vector<std::int32_t> label_{3};
  Batch batch_;
  Position position_;
};

// Logs everything that a run reports: "s4" for step 4, "e" for an epoch, "v" for an evaluation and
// "c" for a checkpoint, each with the number of steps done. Stops the run after step `stop_at`.
class Log final : public TrainObserver {
 public:
  explicit Log(std::uint64_t stop_at = 0) : stop_at_(stop_at) {}
  void on_step(const StepRecord& r) override {
    add('s', r.step);
    losses.push_back(static_cast<double>(r.loss));
    if (r.step == stop_at_) stop = true;
  }
  void on_epoch(const EpochRecord& r) override { add('e', r.step); }
  void on_evaluation(const EvaluationRecord& r) override {
    add('v', r.step);
    losses.push_back(r.score.loss_sum);
  }
  void on_checkpoint(const std::filesystem::path& path) override { text += path.string() + " "; }

  std::string text;
  std::vector<double> losses;  // of steps and evaluations
  std::atomic<bool> stop{false};

 private:
  void add(char what, std::uint64_t step) { text += fmt::format("{}{} ", what, step); }

  std::uint64_t stop_at_;
};

struct SmallRun {
  std::shared_ptr<Backend> backend;
  Program step{model_step("mlp", 1, {}), backend};
  Program evaluation{model_step("mlp", 1, {.training = false}), backend, step.shared_store()};
  GreyImages training, validation;
  Progress progress;
  std::vector<double> losses;

  explicit SmallRun(std::shared_ptr<Backend> own = open_backend("ref")) : backend(std::move(own)) {
    step.store().initialize(1);
  }

  std::string train(const TrainOptions& options, std::uint64_t stop_at = 0) {
    Log log(stop_at);
    Trainer trainer(
        {.step = step,
         .data = training,
         .evaluation = &evaluation,
         .evaluation_data = &validation,
         .observers = {&log},
         .save =
             [](const Progress& at) { return std::filesystem::path(fmt::format("c{}", at.step)); }},
        options);
    const Outcome outcome = trainer.run(progress, log.stop);
    losses = log.losses;
    return log.text + (outcome == Outcome::finished        ? "finished"
                       : outcome == Outcome::stopped_early ? "stopped early"
                                                           : "interrupted");
  }
};

TEST(Trainer, EvaluatesAndSavesAfterEachEpoch) {
  EXPECT_EQ(SmallRun().train({.epochs = 2}), "s1 s2 s3 e3 v3 c3 s4 s5 s6 e6 v6 c6 finished");
}

// The device waits for the other ranks then, and memory that it uses cannot be freed.
TEST(Trainer, EndsTheDevicesExchangesWhereAnotherRankFails) {
  struct OnDevice final : testing_support::DeferredBackend {
    using DeferredBackend::DeferredBackend;
    void give_up_exchanges(const RankError& error) const override { given_up += error.what(); }
    mutable std::string given_up;
  };
  struct Peer final : TrainObserver {
    void on_step(const StepRecord& record) override {
      if (record.step == 2) fail<PeerError>("rank 1 has left");
    }
  };
  const auto backend = std::make_shared<OnDevice>(open_backend("ref"), 2);
  SmallRun run(backend);
  Peer peer;
  Trainer trainer({.step = run.step, .data = run.training, .observers = {&peer}}, {.epochs = 2});
  EXPECT_THROW(trainer.run(run.progress, false), PeerError);
  EXPECT_EQ(backend->given_up, "rank 1 has left");
}

// Also where no checkpoint is due.
TEST(Trainer, EvaluatesEverySoManySteps) {
  EXPECT_EQ(SmallRun().train({.epochs = 2, .evaluate_every_epochs = 0, .evaluate_every_steps = 2}),
            "s1 s2 v2 c2 s3 e3 c3 s4 v4 c4 s5 s6 e6 v6 c6 finished");
}

TEST(Trainer, WaitsForWhatAStreamHasToFinish) {
  const TrainOptions options{.epochs = 3, .evaluate_every_steps = 2, .evaluate_first = true};
  SmallRun at_once;
  const std::string events = at_once.train(options);
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    SmallRun late(std::make_shared<testing_support::DeferredBackend>(open_backend("ref"), 2, seed));
    EXPECT_EQ(events, late.train(options)) << seed;
    EXPECT_EQ(at_once.losses, late.losses) << seed;
    for (std::size_t p = 0; p < at_once.step.store().parameters().size(); ++p)
      EXPECT_EQ(at_once.step.store().read(p), late.step.store().read(p)) << p << ", seed " << seed;
  }
}

TEST(Trainer, EvaluatesBeforeTheFirstStepOnRequest) {
  SmallRun run;
  const TrainOptions options{.epochs = 1, .evaluate_first = true};
  EXPECT_EQ(run.train(options, 2), "v0 s1 s2 c2 interrupted");
  EXPECT_EQ(run.train(options), "s3 e3 v3 c3 finished") << "once in a run";
}

// What a run, of two epochs as a rule, reports until its data turns out to be broken, or something
// else throws.
template <class Exception = BrokenData>
std::string reported_until_broken(SmallRun& run, const TrainOptions& options = {.epochs = 2}) {
  Log log;
  Trainer trainer({.step = run.step,
                   .data = run.training,
                   .evaluation = &run.evaluation,
                   .evaluation_data = &run.validation,
                   .observers = {&log},
                   .save = [](const Progress&) { return std::filesystem::path("c"); }},
                  options);
  EXPECT_THROW(trainer.run(run.progress, log.stop), Exception);
  return log.text;
}

TEST(Trainer, SavesWhatItTrainedWhenValidationDataIsBroken) {
  SmallRun run;
  run.validation.broken = true;
  EXPECT_EQ(reported_until_broken(run), "s1 s2 s3 e3 c ");
  run.validation.broken = false;
  EXPECT_EQ(run.train({.epochs = 2}), "v3 c3 s4 s5 s6 e6 v6 c6 finished");
}

// As an op of a user's own does.
TEST(Trainer, SavesWhatItTrainedWhereTheEvaluationThrows) {
  SmallRun run;
  run.validation.throws = true;
  EXPECT_EQ(reported_until_broken<std::runtime_error>(run), "s1 s2 s3 e3 c ");
  run.validation.throws = false;
  EXPECT_EQ(run.train({.epochs = 2}), "v3 c3 s4 s5 s6 e6 v6 c6 finished");
}

TEST(Trainer, SavesWhatItTrainedBeforeABrokenBatch) {
  SmallRun run;
  run.training.broken_at = Position{1, 1};
  EXPECT_EQ(reported_until_broken(run), "s1 s2 s3 e3 v3 c s4 c ");
  run.training.broken_at.reset();
  EXPECT_EQ(run.train({.epochs = 2}), "s5 s6 e6 v6 c6 finished");
}

TEST(Trainer, SavesBetweenEpochsAndAtTheLastStep) {
  EXPECT_EQ(SmallRun().train(
                {.epochs = 0, .max_steps = 5, .evaluate_every_epochs = 0, .save_every_steps = 2}),
            "s1 s2 c2 s3 e3 c3 s4 c4 s5 v5 c5 finished");
}

TEST(Trainer, SavesOnceAfterAnEvaluationThatIsDueWithACheckpoint) {
  const TrainOptions options{.epochs = 0,
                             .max_steps = 4,
                             .evaluate_every_epochs = 0,
                             .evaluate_every_steps = 2,
                             .save_every_steps = 1};
  EXPECT_EQ(SmallRun().train(options), "s1 c1 s2 v2 c2 s3 e3 c3 s4 v4 c4 finished");
  SmallRun stopped;
  EXPECT_EQ(stopped.train(options, 2), "s1 c1 s2 c2 interrupted");
  EXPECT_EQ(stopped.train(options), "v2 c2 s3 e3 c3 s4 v4 c4 finished");
  SmallRun broken;
  broken.validation.broken = true;
  EXPECT_EQ(reported_until_broken(broken, options), "s1 c s2 c ");
}

// The last checkpoint of a run that diverges is one that it can go on from.
TEST(Trainer, SavesNoWeightsThatAnEvaluationFindsDiverged) {
  struct Spoil final : TrainObserver {
    explicit Spoil(Store& of) : store(of) {}
    void on_step(const StepRecord& r) override {
      if (r.step != 2) return;
      const std::size_t last = store.parameters().size() - 1;
      store.write(last, std::vector<float>(store.read(last).size(), not_a_number));
    }
    void on_checkpoint(const std::filesystem::path& path) override { saved += path.string(); }
    Store& store;
    std::string saved;
  };
  SmallRun run;
  Spoil spoil(run.step.store());
  Trainer trainer(
      {.step = run.step,
       .data = run.training,
       .evaluation = &run.evaluation,
       .evaluation_data = &run.validation,
       .observers = {&spoil},
       .save =
           [](const Progress& at) { return std::filesystem::path(fmt::format("c{} ", at.step)); }},
      {.epochs = 9, .evaluate_every_steps = 1, .save_every_steps = 1});
  EXPECT_THAT(
      [&] { trainer.run(run.progress, false); },
      ThrowsMessage<NumericError>(AllOf(HasSubstr("the validation loss is nan after step 2"),
                                        HasSubstr("These weights were not saved"))));
  EXPECT_EQ(spoil.saved, "c1 ");
}

// No rate of learning or seed helps.
TEST(Trainer, SaysThatTheFirstWeightsAreNotSound) {
  SmallRun run;
  Store& store = run.step.store();
  const std::size_t last = store.parameters().size() - 1;
  store.write(last, std::vector<float>(store.read(last).size(), not_a_number));
  EXPECT_THAT([&] { run.train({.epochs = 1, .evaluate_first = true}); },
              ThrowsMessage<NumericError>(AllOf(HasSubstr("the validation loss is nan before the "
                                                          "first step, so the initial weights or"),
                                                Not(HasSubstr("diverged")))));
}

TEST(Trainer, ContinuesWhereItWasStopped) {
  SmallRun run;
  EXPECT_EQ(run.train({.epochs = 2}, 2), "s1 s2 c2 interrupted");
  EXPECT_EQ(run.train({.epochs = 2}, 3), "s3 e3 c3 interrupted") << "without its evaluation";
  EXPECT_EQ(run.train({.epochs = 2}), "v3 c3 s4 s5 s6 e6 v6 c6 finished");
  EXPECT_EQ(run.train({.epochs = 2}), "finished");
}

// A step of the least improvement that no evaluation makes: the first one after training is the
// best, whatever an evaluation before had.
TEST(Trainer, EndsEarlyWhereEvaluationsStopImproving) {
  const TrainOptions options{.epochs = 9, .patience = 2, .min_delta = 100, .watch_loss = true};
  EXPECT_EQ(SmallRun().train(options),
            "s1 s2 s3 e3 v3 c3 s4 s5 s6 e6 v6 c6 s7 s8 s9 e9 v9 c9 stopped early");
  SmallRun improving;
  improving.train({.epochs = 4, .patience = 1, .min_delta = -100});
  EXPECT_EQ(improving.progress.step, 12U) << "each is better than the best minus 100";
  EXPECT_EQ(improving.progress.watch->best_step, 12U);
}

TEST(Trainer, CountsWorseEvaluationsAcrossPauses) {
  TrainOptions options{.epochs = 9, .patience = 2, .min_delta = 100, .watch_loss = true};
  SmallRun run;
  EXPECT_EQ(run.train(options, 4), "s1 s2 s3 e3 v3 c3 s4 c4 interrupted");
  EXPECT_EQ(run.train(options, 9), "s5 s6 e6 v6 c6 s7 s8 s9 e9 c9 interrupted");
  EXPECT_EQ(run.train(options), "v9 c9 stopped early");
  EXPECT_EQ(run.train(options), "stopped early") << "nothing is left";
  options.watch_loss = false;  // another figure: its best is not known yet
  options.epochs = 4;
  EXPECT_EQ(run.train(options), "s10 s11 s12 e12 v12 c12 finished");
}

TEST(Trainer, CountsNoEvaluationThatOnlyTheEndOfTheStepsMakes) {
  const TrainOptions options{.epochs = 9, .patience = 2, .min_delta = 100, .watch_loss = true};
  TrainOptions stops = options;
  stops.max_steps = 5;
  SmallRun run, alone;
  EXPECT_EQ(run.train(stops), "s1 s2 s3 e3 v3 c3 s4 s5 v5 c5 finished");
  EXPECT_THAT(run.train(options), testing::EndsWith("v9 c9 stopped early"));
  EXPECT_THAT(alone.train(options), testing::EndsWith("v9 c9 stopped early"));
  EXPECT_EQ(run.progress.watch->worse, alone.progress.watch->worse);
}

TEST(Trainer, ForgetsTheBestWhereNothingWatches) {
  TrainOptions options{.epochs = 9, .patience = 1, .min_delta = 100, .watch_loss = true};
  SmallRun run;
  EXPECT_THAT(run.train(options), testing::EndsWith("stopped early"));
  options.patience = 0;
  options.epochs = 4;
  EXPECT_THAT(run.train(options), testing::EndsWith("finished"));
  EXPECT_FALSE(run.progress.watch);
  options.patience = 1;
  options.epochs = 5;
  EXPECT_THAT(run.train(options), testing::StartsWith("s13 ")) << "these steps were not watched";
}

TEST(Trainer, EndsAnEpochAtTheLimitOfBatches) {
  EXPECT_EQ(SmallRun().train({.epochs = 2, .limit_batches = 1, .evaluate_every_epochs = 2}),
            "s1 e1 c1 s2 e2 v2 c2 finished");
}

// Those that this process ran, also of an epoch that it did not begin.
TEST(Trainer, CountsTheStepsOfEachEpochAlone) {
  struct Epochs final : TrainObserver {
    void on_epoch(const EpochRecord& r) override {
      steps.push_back(r.steps);
      counts.push_back(r.count);
      times_ns.push_back(r.times.total_ns());
    }
    void on_step(const StepRecord& r) override { all_ns += r.times.total_ns(); }
    std::vector<std::uint64_t> steps, times_ns;
    std::vector<std::int64_t> counts;
    std::uint64_t all_ns = 0;
  };
  SmallRun run;
  run.train({.epochs = 3}, 1);
  Epochs seen;
  Trainer trainer({.step = run.step, .data = run.training, .observers = {&seen}}, {.epochs = 3});
  trainer.run(run.progress, false);
  EXPECT_THAT(seen.steps, ElementsAre(2, 3, 3));
  EXPECT_THAT(seen.counts, ElementsAre(2, 3, 3));
  EXPECT_EQ(seen.times_ns[0] + seen.times_ns[1] + seen.times_ns[2], seen.all_ns);
}

// Of a run that was stopped between two updates as well: there ranks would else exchange in a step
// that only accumulates, and not in that of the update.
TEST(Trainer, ExchangesInTheStepsOfTheUpdates) {
  struct Logged final : Runner {
    explicit Logged(Program& program) : Runner(program), eager(eager_runner(program)) {}
    void run() override {
      text += program_.accumulates() ? 'a' : 'u';
      eager->step();
    }
    std::unique_ptr<Runner> eager;
    std::string text;
  };
  StepOptions options;
  options.update.accumulate = 3;
  Program step(model_step("mlp", 1, options), open_backend("ref"));
  step.store().initialize(1);
  GreyImages data;
  Logged runner(step);
  Progress progress;
  for (const std::uint64_t steps : {2, 3, 7, 9}) {
    Trainer trainer({.step = step, .data = data, .runner = &runner},
                    {.epochs = 0, .max_steps = steps});
    trainer.run(progress, false);
    runner.text += ' ';
  }
  EXPECT_EQ(runner.text, "aa u aaua au ");
}

TEST(Trainer, EvaluatesTheSameBatchesEachTime) {
  SmallRun run;
  for (const std::uint64_t epochs : {1, 2}) {
    run.train({.epochs = epochs, .limit_batches = 2});
    EXPECT_EQ(run.validation.position(), (Position{0, 2}));
  }
}

// Of an mlp whose loss is scaled, as in fp16.
Program scaled_step() {
  StepOptions options;
  options.update.clip_norm = 1;  // which looks for gradients that are not finite
  Graph graph = model_step("mlp", 1, options);
  for (Node& node : graph.nodes)
    if (auto* clock = std::get_if<Clock>(&node.op)) clock->scaling.enabled = true;
  Program step(std::move(graph), open_backend("ref"));
  step.store().initialize(1);
  return step;
}

void write_last(Store& store, float value) {
  const std::size_t last = store.parameters().size() - 1;
  store.write(last, std::vector<float>(store.read(last).size(), value));
}

// They count where a speed is measured, and in no score.
TEST(Trainer, CountsTheImagesOfASkippedStep) {
  struct Counted final : TrainObserver {
    void on_step(const StepRecord& r) override { record = r; }
    void on_epoch(const EpochRecord& r) override { epoch = r; }
    StepRecord record;
    EpochRecord epoch;
  };
  Program step = scaled_step();
  write_last(step.store(), infinite);
  GreyImages data;
  Counted seen;
  Trainer trainer({.step = step, .data = data, .observers = {&seen}},
                  {.epochs = 1, .limit_batches = 1});
  Progress progress;
  trainer.run(progress, false);
  EXPECT_TRUE(seen.record.overflow);
  EXPECT_TRUE(std::isnan(seen.record.loss));
  EXPECT_EQ(seen.record.count, 1);
  EXPECT_EQ(seen.record.score.count, 0);
  EXPECT_EQ(seen.epoch.count, 1);
}

TEST(Trainer, CountsTheStepsWithoutAnUpdateSinceTheLastOne) {
  struct Mended final : TrainObserver {  // in step 4 alone
    explicit Mended(Store& store) : store_(store) {}
    void on_step(const StepRecord& r) override {
      EXPECT_EQ(r.overflow, r.step != 4);
      write_last(store_, r.step == 3 ? 0 : infinite);
    }

   private:
    Store& store_;
  };
  Program step = scaled_step();
  write_last(step.store(), infinite);
  Mended mended(step.store());
  GreyImages data;
  Trainer trainer({.step = step, .data = data, .observers = {&mended}}, {.epochs = 10});
  Progress progress;
  // 18 overflows take the scale from 65536 below 1; three of them came before step 4.
  EXPECT_THAT([&] { trainer.run(progress, false); },
              ThrowsMessage<NumericError>(
                  AllOf(HasSubstr("in step 19 "), HasSubstr("the last 15 steps made no update"))));
}

// The first update, then the first at or after each multiple.
TEST(Trainer, MeasuresTheBlocksOfSomeSteps) {
  struct Measured final : TrainObserver {
    void on_step(const StepRecord& r) override {
      if (r.blocks.empty()) return;
      steps.push_back(r.step);
      EXPECT_EQ(r.blocks[1].name, "fc1");
      EXPECT_GT(r.blocks[1].update_norm, 0);
    }
    std::vector<std::uint64_t> steps;
  };
  const auto measured = [](std::int64_t accumulate, std::uint64_t every, int runs = 1) {
    StepOptions options{.statistics = true};
    options.update.accumulate = accumulate;
    Program step(model_step("mlp", 1, options), open_backend("ref"));
    step.store().initialize(1);
    GreyImages data;
    Measured seen;
    for (int run = 0; run < runs; ++run) {
      Trainer trainer({.step = step, .data = data, .observers = {&seen}},
                      {.epochs = 0, .max_steps = 9, .measure_every_steps = every});
      Progress progress;
      trainer.run(progress, false);
    }
    return seen.steps;
  };
  EXPECT_THAT(measured(1, 4), ElementsAre(1, 4, 8));
  EXPECT_THAT(measured(2, 3), ElementsAre(2, 4, 6));
  // The second run of one store begins with the end of an update.
  EXPECT_THAT(measured(2, 3, 2), ElementsAre(2, 4, 6, 1, 3, 7, 9));
  EXPECT_THAT(measured(1, 0), ElementsAre());
}

// Zeros learn nothing, and no loss shows why.
TEST(Trainer, RefusesParametersThatWereNeverSet) {
  Program step(model_step("mlp", 1, {}), open_backend("ref"));
  GreyImages data;
  Trainer trainer({.step = step, .data = data}, {.epochs = 0, .max_steps = 1});
  Progress progress;
  const auto run = [&] { trainer.run(progress, false); };
  const auto refused = [&](const std::string& name) {
    EXPECT_THAT(run, ThrowsMessage<UsageError>(
                         HasSubstr(name + " was never set and is all zeros: before Trainer::run(), "
                                          "call store().initialize(seed)")));
  };
  Store& store = step.store();
  refused(store.parameters()[0].name);
  // A file that has all parameters but the last.
  for (std::size_t p = 0; p + 1 < store.parameters().size(); ++p) store.write(p, store.read(p));
  refused(store.parameters().back().name);
  store.initialize(1);
  run();
  EXPECT_EQ(progress.step, 1U);
}

TEST(Trainer, RefusesProgramsThatMakeNoSenseWhereTheyAre) {
  const auto backend = open_backend("ref");
  SmallRun run(backend);
  Program own(model_step("mlp", 1, {.training = false}), backend);  // with a store of its own
  const auto refused = [&](Program& step, Program& evaluation, const std::string& words) {
    Trainer trainer({.step = step,
                     .data = run.training,
                     .evaluation = &evaluation,
                     .evaluation_data = &run.validation},
                    {.epochs = 1});
    EXPECT_THAT([&] { trainer.run(run.progress, false); },
                ThrowsMessage<UsageError>(HasSubstr(words)));
  };
  refused(run.evaluation, run.evaluation, "the step's program does not train");
  refused(run.step, run.step, "the evaluation's program would train on its data");
  refused(run.step, own,
          "was never set and is all zeros: before Trainer::run(), call store().initialize(seed) "
          "of the evaluation's program");
  EXPECT_EQ(run.progress.step, 0U);
  own.store().initialize(1);
  Trainer trainer({.step = run.step,
                   .data = run.training,
                   .evaluation = &own,
                   .evaluation_data = &run.validation},
                  {.epochs = 1});
  EXPECT_EQ(trainer.run(run.progress, false), Outcome::finished);
}

TEST(Trainer, RefusesAPositionBeyondTheEpoch) {
  for (const std::uint64_t step : {3, 9}) {
    SmallRun run;
    run.progress = {.step = 12, .next = {1, step}};
    EXPECT_THAT([&] { run.train({.epochs = 9}); },
                ThrowsMessage<DataError>(
                    HasSubstr(fmt::format("after {} steps of epoch 2, but an epoch of this data "
                                          "has 3",
                                          step))));
  }
  SmallRun run;
  run.progress = {.step = 5, .next = {1, 2}};
  EXPECT_THAT([&] { run.train({.epochs = 9, .limit_batches = 2}); },
              ThrowsMessage<DataError>(HasSubstr("an epoch of this data has 2")));
}

TEST(Trainer, RefusesPartsThatCannotTrain) {
  SmallRun run;
  const auto refused = [&](Trainer::Parts parts, const std::string& words) {
    EXPECT_THAT([&] { Trainer(parts, {.epochs = 1}); },
                ThrowsMessage<UsageError>(HasSubstr(words)));
  };
  refused({.step = run.step, .data = run.training, .observers = {nullptr}},
          "an observer of the trainer is a null pointer");
  refused({.step = run.step,
           .data = run.training,
           .evaluation = &run.evaluation,
           .evaluation_data = &run.training},
          "cannot read the source of the steps; make a second one");
  struct Empty final : BatchSource {
    std::int64_t batch_size() const override { return 1; }
    std::uint64_t samples() const override { return 0; }
    std::uint64_t steps_per_epoch() const override { return 0; }
    const Batch& next() override { return batch; }
    Position position() const override { return {}; }
    void seek(Position) override {}
    Batch batch;
  } empty;
  Trainer trainer({.step = run.step, .data = empty}, {.epochs = 1});
  EXPECT_THAT([&] { trainer.run(run.progress, false); },
              ThrowsMessage<DataError>("the training data have no batches"));
}

}  // namespace
}  // namespace warpstep
