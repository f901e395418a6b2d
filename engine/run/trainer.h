// The training loop: batches in, steps, evaluations and checkpoints out, and a word to every
// observer on the way.
#pragma once

#include <atomic>
#include <filesystem>
#include <functional>
#include <optional>
#include <vector>

#include "engine/core/batch.h"
#include "engine/run/runner.h"

namespace warpstep {

// Where a step's time went; the parts add up to it. What runs at once is counted once: kernels
// before waiting, waiting before the CPU.
struct StepTimes {
  std::uint64_t data_ns = 0;     // waiting for a batch to be made
  std::uint64_t copies_ns = 0;   // waiting for its copy to the device
  std::uint64_t kernels_ns = 0;  // the device's own clock, from the first call to the last
  std::uint64_t cpu_ns = 0;      // this thread enqueued the step and told observers
  std::uint64_t other_ns = 0;    // gaps: the device was idle, or the thread was not scheduled

  std::uint64_t total_ns() const { return data_ns + copies_ns + kernels_ns + cpu_ns + other_ns; }
  StepTimes& operator+=(const StepTimes& other);
};

// Sums over samples, from which means follow exactly.
struct Score {
  double loss_sum = 0;  // of per-sample losses
  std::int64_t correct = 0;
  std::int64_t count = 0;

  double loss() const { return count ? loss_sum / static_cast<double>(count) : 0; }
  double accuracy() const {
    return count ? static_cast<double>(correct) / static_cast<double>(count) : 0;
  }
  Score& operator+=(const Score& other);
};

struct StepRecord {
  std::uint64_t step = 0;           // of the run, from 1
  std::uint64_t epoch = 0;          // from 1
  std::uint64_t step_in_epoch = 0;  // from 1
  std::uint64_t steps_per_epoch = 0;
  float loss = 0;            // mean over the batch
  float loss_scale = 1;      // that its gradients were computed with
  bool overflow = false;     // a gradient was not finite: no update was made
  std::int64_t skipped = 0;  // updates of the run so far that this happened to
  float gradient_norm = 0;   // L2, of the update; 0 where it is not computed
  Score score;               // of this batch
  Score epoch_score;         // of the epoch so far
  float learning_rate = 0;
  StepTimes times;
  std::uint64_t begin_ns = 0, end_ns = 0;  // engine/core/clock.h; times.total_ns() apart
};

struct EpochRecord {
  std::uint64_t epoch = 0;  // finished ones
  std::uint64_t step = 0;
  Score score;  // over the epoch's steps, while the weights changed
  StepTimes times;
  std::uint64_t steps = 0;  // of this epoch that this process ran
  std::int64_t images = 0;  // in them
};

struct EvaluationRecord {
  std::uint64_t epoch = 0;  // finished when it was made; 0: the untrained model
  std::uint64_t step = 0;
  Score score;
  std::uint64_t ns = 0;
};

class TrainObserver {
 public:
  virtual ~TrainObserver();
  virtual void on_step(const StepRecord&) {}
  virtual void on_epoch(const EpochRecord&) {}
  virtual void on_evaluation(const EvaluationRecord&) {}
  virtual void on_checkpoint(const std::filesystem::path&) {}
};

// What a run needs to go on from where it was: with the parameters, moments and StepState,
// everything.
struct Progress {
  std::uint64_t step = 0;                      // finished, of the run
  Position next;                               // of the data
  Score epoch_score;                           // of the epoch that `next` is in
  std::optional<EvaluationRecord> evaluation;  // the last one
};

struct TrainOptions {
  std::uint64_t epochs = 1;         // 0: no limit but max_steps
  std::uint64_t max_steps = 0;      // 0: no limit but epochs
  std::uint64_t limit_batches = 0;  // an epoch or evaluation ends after so many; 0: all
  std::uint64_t evaluate_every_epochs = 1;
  bool evaluate_untrained = true;
  std::uint64_t save_every_steps = 0;  // besides the end of each epoch; 0: never
};

enum class Outcome : std::uint8_t { finished, interrupted };

// Mean loss and accuracy of `program` (a step without training) over one pass of `source` from its
// start.
Score evaluate(Program& program, BatchSource& source, std::uint64_t limit_batches = 0,
               Runner* runner = nullptr);  // null: eager

// The same, given up between two batches once *stop is set: nothing is returned then.
std::optional<Score> evaluate_until(Program& program, BatchSource& source,
                                    std::uint64_t limit_batches, const std::atomic<bool>& stop,
                                    Runner* runner = nullptr);

class Trainer {
 public:
  struct Parts {
    Program& step;  // a training step
    BatchSource& data;
    // The forward half, sharing the step's store; with a store of its own it is given the average
    // of the weights, if the step keeps one, before each evaluation.
    Program* evaluation = nullptr;
    BatchSource* evaluation_data = nullptr;
    Runner* runner = nullptr;  // null: a graph_runner of the step
    std::vector<TrainObserver*> observers;
    // Called with the progress at the end of each epoch and when the run stops; returns the file it
    // wrote.
    std::function<std::filesystem::path(const Progress&)> save;
    Runner* evaluation_runner = nullptr;  // null: eager
  };

  Trainer(Parts parts, const TrainOptions& options);

  // Runs to the end, or until *stop: then the step at hand is finished, an evaluation given up,
  // and the progress saved. Throws NumericError when the run has diverged (divergence.h), DataError
  // from the data; what was saved before stays.
  Outcome run(Progress& progress, const std::atomic<bool>& stop);

 private:
  // A step that was enqueued and whose report is to come.
  struct Flight {
    std::uint64_t mark = 0;
    std::int64_t count = 0;  // rows that are samples
    std::uint64_t wait_ns = 0;
    std::uint64_t copy_wait_ns = 0;
    std::uint64_t launch_ns = 0;  // of this thread
  };

  std::uint64_t steps_per_epoch() const;
  bool finished(const Progress& progress) const;
  std::size_t most_in_flight() const;
  // Whether something is due when all that was enqueued is done.
  bool drains(const Progress& progress) const;
  void launch();
  const Batch& next_batch();
  void land(Progress& progress);
  StepRecord record_of(const Progress& progress, const Flight& flight) const;
  void end_epoch(Progress& progress);
  bool evaluation_due(const Progress& progress) const;
  bool evaluate_now(Progress& progress, const std::atomic<bool>& stop);  // false: given up
  void save(const Progress& progress);

  Parts parts_;
  TrainOptions options_;
  std::unique_ptr<Runner> own_runner_;
  std::vector<Flight> flights_;  // oldest first
  bool scales_loss_ = false;
  std::int64_t first_step_ = 0;         // of the step state when the run's was 0
  std::uint64_t skipped_in_a_row_ = 0;  // steps without an update, up to the last one
  EpochRecord epoch_;
  std::uint64_t last_step_end_ns_ = 0;
  std::uint64_t observed_ns_ = 0;  // in observers since the last step's end
};

// What the trainer and evaluations share.

// The batch's images and labels, and the rows' plans for a step that takes them.
void give_batch(Program& program, const Batch& batch);

// `to`, the store of an evaluation, takes the averages and the buffers of `from`, through the
// memory of the host; Error where the models differ.
void take_average(const Store& from, Store& to);

// Whether a run may go on with what a step or an evaluation gave.

// Throws NumericError that says where the run stood, when the loss is not finite, or gradients are
// not: without a loss scale at once, with one when it is below least_loss_scale. `skipped` counts
// the steps in a row, this one included, that made no update because their gradients overflowed.
void require_sound(const StepRecord& record, bool scales_loss, std::uint64_t skipped);
void require_sound(const EvaluationRecord& record);

}  // namespace warpstep
