// The training loop: steps, evaluations and checkpoints over a source of batches; observers are
// notified of each.
#pragma once

#include <atomic>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "engine/core/batch.h"
#include "engine/core/error.h"
#include "engine/run/evaluate.h"
#include "engine/run/runner.h"

namespace warpstep {

// Where a step's time went; the parts add up to it. Time in which two of them overlap is counted
// once: kernels before waiting, waiting before the CPU.
struct StepTimes {
  std::uint64_t data_ns = 0;     // waiting for the loader to finish a batch
  std::uint64_t copies_ns = 0;   // waiting for its copy to the device
  std::uint64_t kernels_ns = 0;  // the device's own clock, from the first call to the last
  std::uint64_t cpu_ns = 0;      // this thread enqueued the step and notified observers
  std::uint64_t other_ns = 0;    // gaps: the device was idle, or the thread was not scheduled

  std::uint64_t total_ns() const { return data_ns + copies_ns + kernels_ns + cpu_ns + other_ns; }
  StepTimes& operator+=(const StepTimes& other);
};

// A block of the model in one step, see engine/graph/ops/statistics.h. NaN where there is nothing
// to measure: a block without parameters, or whose output is kept nowhere.
struct BlockStatistics {
  std::string name;                                               // "h.3"
  double gradient_norm = 0, parameter_norm = 0, update_norm = 0;  // L2, over its parameters
  double mean = 0, rms = 0, largest = 0, zeros = 0;               // of its output; zeros is a share
};
std::vector<BlockStatistics> block_statistics(const Program& step, std::int64_t at);

struct StepRecord {
  std::uint64_t step = 0;           // of the run, from 1
  std::uint64_t epoch = 0;          // from 1
  std::uint64_t step_in_epoch = 0;  // from 1
  std::uint64_t steps_per_epoch = 0;
  float loss = 0;            // mean over the batch
  float loss_scale = 1;      // the factor in its gradients
  bool overflow = false;     // a gradient was not finite: the update was skipped
  std::int64_t skipped = 0;  // skipped updates of the run so far
  float gradient_norm = 0;   // L2, of the update; 0 if not computed
  // Images or tokens of the batch. In a skipped step with a loss that is not finite the score has
  // none of them.
  std::int64_t count = 0;
  Score score;        // of this batch
  Score epoch_score;  // of the epoch so far
  float learning_rate = 0;
  std::vector<BlockStatistics> blocks;  // empty in a step that did not measure them
  StepTimes times;
  std::uint64_t begin_ns = 0, end_ns = 0;  // engine/core/clock.h; times.total_ns() apart
};

struct EpochRecord {
  std::uint64_t epoch = 0;  // finished ones
  std::uint64_t step = 0;
  Score score;  // over the epoch's steps, while the weights changed
  StepTimes times;
  std::uint64_t steps = 0;  // of this epoch that this process ran
  std::int64_t count = 0;   // images or tokens in them
};

struct EvaluationRecord {
  std::uint64_t epoch = 0;  // epochs finished before it
  std::uint64_t step = 0;
  Score score;
  std::uint64_t ns = 0;
  double epochs_done = 0;  // with a fraction; not in checkpoints
};

class TrainObserver {
 public:
  virtual ~TrainObserver();
  virtual void on_step(const StepRecord&) {}
  virtual void on_epoch(const EpochRecord&) {}
  virtual void on_evaluation(const EvaluationRecord&) {}
  virtual void on_checkpoint(const std::filesystem::path&) {}
};

// What a run that ends early has seen of the figure that it watches.
struct Watch {
  bool loss = false;  // the validation loss; else the accuracy
  double best = 0;
  std::uint64_t best_step = 0;  // whose evaluation had it
  std::uint64_t worse = 0;      // evaluations since, none of them better
};

// All that a run needs to continue, with the parameters, moments and StepState.
struct Progress {
  std::uint64_t step = 0;                      // finished steps of the run
  Position next;                               // of the data
  Score epoch_score;                           // of the epoch that `next` is in
  std::optional<EvaluationRecord> evaluation;  // the last one
  std::optional<Watch> watch;                  // null before one, and without a patience
};

struct TrainOptions {
  std::uint64_t epochs = 1;         // 0: limited by max_steps only
  std::uint64_t max_steps = 0;      // 0: limited by epochs only
  std::uint64_t limit_batches = 0;  // per epoch or evaluation; 0: all
  std::uint64_t evaluate_every_epochs = 1;
  std::uint64_t evaluate_every_steps = 0;  // in addition; 0: never
  bool evaluate_first = false;             // before the first step
  std::uint64_t save_every_steps = 0;      // in addition to the end of each epoch; 0: never
  // Steps between those that measure the blocks, if the step can (StepOptions::statistics); the
  // first update and then the first at or after each multiple. 0: none.
  std::uint64_t measure_every_steps = 0;
  // Evaluations in a row that may fail to exceed the best one by more than min_delta; then the run
  // ends early. That before the first step does not count. 0: the run goes to its end.
  std::uint64_t patience = 0;
  double min_delta = 0;
  bool watch_loss = false;  // else the accuracy
  // Steps that are enqueued as one launch, on a device where steps queue and while the source holds
  // as many batches; at most most_per_launch. A launch ends at a multiple of it in the epoch, and
  // earlier where the epoch or the run ends or an evaluation or a checkpoint is due. A source that
  // holds more keeps steps in flight while the next batches are taken, up to two launches.
  std::uint64_t steps_per_launch = 1;
};
// The reports of three launches, two of them unfinished, fit into the ring.
constexpr std::uint64_t most_per_launch = report_ring / 4;

enum class Outcome : std::uint8_t { finished, stopped_early, interrupted };

struct BrokenData : DataError {  // of a batch; the steps before it were saved
  using DataError::DataError;
};

class Trainer {
 public:
  struct Parts {
    Program& step;  // a training step
    BatchSource& data;
    // The forward half. It usually shares the step's store; if it has another one, the averaged
    // weights are copied there before each evaluation, provided that the step keeps an average;
    // without one the caller sets its parameters.
    Program* evaluation = nullptr;
    BatchSource* evaluation_data = nullptr;
    Runner* runner = nullptr;  // null: a graph_runner of the step
    std::vector<TrainObserver*> observers;
    // Called with the progress at the end of each epoch and when the run stops; returns the file it
    // wrote.
    std::function<std::filesystem::path(const Progress&)> save;
    Runner* evaluation_runner = nullptr;  // null: eager
    // Of a data-parallel job: scores are those of all ranks, all stop after the same step, and
    // evaluations use rank 0's buffers. `data` and `evaluation_data` are this rank's shares.
    Communicator* communicator = nullptr;
  };

  // Throws UsageError for options without a limit, a null observer, and one source for both.
  Trainer(Parts parts, const TrainOptions& options);

  // Runs to the end, or until *stop: then finishes the current step, abandons an evaluation and
  // saves the progress. Throws UsageError if a parameter was never set (its store is new), or if
  // the step does not train or the evaluation does, NumericError when the run has diverged
  // (require_sound), BrokenData where a batch cannot be read, after the steps before it were saved,
  // DataError from saving or when `progress` does not fit the data; files saved earlier remain.
  // What else an evaluation throws comes after the steps before it were saved, too, unless it is a
  // DeviceError.
  // Where an observer's on_step() or the source throws, a device still runs the steps in flight:
  // `progress` has them, too, although no observer is notified of them, and the next run() saves
  // them and continues after them; a Feeder or loader that threw gives batches again after a seek()
  // to another place. `progress` ends before a step that has diverged. After an exception within a
  // step's calls the weights are spoilt, and the next run() throws UsageError. A job of several
  // ranks cannot continue.
  Outcome run(Progress& progress, const std::atomic<bool>& stop);

 private:
  // A step that was enqueued and has not reported yet.
  struct Flight {
    std::optional<std::uint64_t> mark;  // of the end of its launch, when that is enqueued
    std::int64_t count = 0;             // of the batch
    double weight = 0;                  // of its labels
    std::uint64_t wait_ns = 0;
    std::uint64_t copy_wait_ns = 0;
    std::uint64_t launch_ns = 0;  // of this thread
    bool measured = false;
    std::int64_t before = 0, after = 0;  // steps of the same launch
  };

  Outcome run_to_end(Progress& progress, const std::atomic<bool>& stop);
  void require_programs() const;
  void begin(const Progress& progress);
  void train(Progress& progress, const std::atomic<bool>& stop);
  bool launch(const Progress& progress);  // whether all of its steps must land
  void take_batch(const Progress& launched);
  void now_at(Activity::Kind kind, std::uint64_t step) const;  // for other ranks
  bool stops(const std::atomic<bool>& stop) const;
  // Whether one of the ranks is to stop; then all do.
  bool agree_to_stop(const std::atomic<bool>& stop);
  // The ranks' sum, with the same agreement. Of a step also whether a gradient of any rank is not
  // finite: a step that only accumulates exchanges none.
  Score of_all_ranks(const Score& own, const std::atomic<bool>& stop,
                     std::uint32_t* overflow = nullptr);
  const Batch& next_batch();
  void land(Progress& progress, const std::atomic<bool>& stop,
            std::span<TrainObserver* const> observers);
  void land_rest(Progress& progress, const std::atomic<bool>& stop);
  StepRecord record_of(const Progress& progress, const Flight& flight,
                       const std::atomic<bool>& stop);
  StepTimes times_of(const StepRecord& record, const StepReport& report,
                     const Flight& flight) const;
  void end_epoch(Progress& progress);
  void share_buffers();
  void collect_sums();
  bool evaluate_now(Progress& progress, const std::atomic<bool>& stop);  // false: abandoned
  void save(const Progress& progress);

  std::uint64_t steps_per_epoch() const;
  std::uint64_t steps_per_launch() const;
  std::size_t most_in_flight() const;  // steps, while a launch takes its batches
  void watch(Progress& progress) const;
  bool out_of_patience(const Progress& progress) const;
  bool at_limit(const Progress& progress) const;
  bool finished(const Progress& progress) const;
  bool epoch_ends(const Progress& progress) const;
  bool ends_a_launch(const Progress& launched) const;
  bool save_due(const Progress& progress) const;
  bool evaluation_due(const Progress& progress) const;
  bool evaluation_step(const Progress& progress) const;
  bool measures(std::uint64_t step) const;

  Parts parts_;
  TrainOptions options_;
  std::unique_ptr<Runner> own_runner_;
  std::vector<Flight> flights_;        // oldest first
  std::string broken_;                 // why there is no next batch
  std::vector<StepVariant> variants_;  // of the launch that is being put together
  bool has_batch_ = false;             // the first one has been taken
  bool scales_loss_ = false, has_trust_ = false;
  std::uint64_t accumulate_ = 1;        // steps per update
  bool saved_ = false;                  // the last checkpoint has all of the progress
  std::uint64_t unsaved_step_ = 0;      // at which an exception ended the run
  std::uint64_t torn_step_ = 0;         // of which only some calls were enqueued
  std::int64_t first_step_ = 0;         // of the step state when the run's was 0
  std::uint64_t begun_ = 0;             // steps, counted from one whose gradients are summed afresh
  std::uint64_t skipped_in_a_row_ = 0;  // steps without an update, up to the last one
  EpochRecord epoch_;
  std::uint64_t last_step_end_ns_ = 0;
  bool agreed_to_stop_ = false;    // all ranks, after the same step
  std::uint64_t taken_ns_ = 0;     // when the last batch was there
  std::uint64_t landed_ns_ = 0;    // when the last launch was done
  std::uint64_t observed_ns_ = 0;  // in observers since then
};

// Whether a run can continue after the result of a step or an evaluation.

// Throws NumericError naming the step when the loss or a gradient is not finite: without a loss
// scale at once, with one when it is below least_loss_scale. `skipped` counts the steps in a row,
// this one included, whose update was skipped because gradients overflowed. `has_trust`: LARS makes
// the updates, so that --trust is to be lowered, too.
void require_sound(const StepRecord& record, bool scales_loss, std::uint64_t skipped,
                   bool has_trust = false);
void require_sound(const EvaluationRecord& record, bool has_trust = false);

}  // namespace warpstep
