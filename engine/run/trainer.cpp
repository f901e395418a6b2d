#include "engine/run/trainer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include "engine/core/clock.h"
#include "engine/core/error.h"
#include "engine/core/phase.h"
#include "engine/core/record.h"

namespace warpstep {
namespace {

using record::Kind;

const record::Name wait_name{"wait for data", Kind::wait}, step_name{"step"},
    report_name{"read back", Kind::sync}, observers_name{"observers"},
    evaluation_name{"evaluation"}, checkpoint_name{"checkpoint"}, steps_name{"steps"},
    first_batch_name{"first batch"}, agree_name{"all_reduce scores"};

Clock clock_of(const Graph& graph) {
  for (const Node& node : graph.nodes)
    if (const auto* clock = std::get_if<Clock>(&node.op)) return *clock;
  return {};
}

// LARS multiplies gradients by its trust coefficient before the learning rate sees them.
bool has_trust(const Graph& graph) {
  return std::ranges::any_of(
      graph.nodes, [](const Node& node) { return std::holds_alternative<LarsScale>(node.op); });
}

}  // namespace

TrainObserver::~TrainObserver() = default;

StepTimes& StepTimes::operator+=(const StepTimes& other) {
  data_ns += other.data_ns;
  copies_ns += other.copies_ns;
  kernels_ns += other.kernels_ns;
  cpu_ns += other.cpu_ns;
  other_ns += other.other_ns;
  return *this;
}

Trainer::Trainer(Parts parts, const TrainOptions& options)
    : parts_(std::move(parts)), options_(options) {
  if (options_.epochs == 0 && options_.max_steps == 0)
    fail<UsageError>("a run needs a limit: a number of epochs or of steps");
  if (options_.steps_per_launch == 0 || options_.steps_per_launch > most_per_launch)
    fail<UsageError>("a launch runs 1 to {} steps, not {}", most_per_launch,
                     options_.steps_per_launch);
  for (const TrainObserver* observer : parts_.observers)
    if (!observer) fail<UsageError>("an observer of the trainer is a null pointer");
  if (parts_.evaluation_data == &parts_.data)
    fail<UsageError>(
        "an evaluation reads its data from the start, so it cannot read the source of the steps; "
        "make a second one");
  const Clock clock = clock_of(parts_.step.graph());
  scales_loss_ = clock.scaling.enabled;
  has_trust_ = has_trust(parts_.step.graph());
  accumulate_ = static_cast<std::uint64_t>(clock.accumulate);
  if (!parts_.runner) {
    own_runner_ = graph_runner(parts_.step);
    parts_.runner = own_runner_.get();
  }
}

Outcome Trainer::run(Progress& progress, const std::atomic<bool>& stop) {
  try {
    const Outcome outcome = run_to_end(progress, stop);
    now_at(Activity::Kind::end, progress.step);
    return outcome;
  } catch (const RankError& error) {
    parts_.step.backend().give_up_exchanges(error);
    throw;
  }
}

// Between two calls of train() no step is in flight. Only the progress decides what is due there,
// so a run that was stopped before or during an evaluation makes it when it continues. Weights that
// an evaluation is due for are saved after it, which may find that they have diverged.
Outcome Trainer::run_to_end(Progress& progress, const std::atomic<bool>& stop) {
  begin(progress);
  while (!stops(stop)) {
    if (evaluation_due(progress) && !evaluate_now(progress, stop)) break;
    if (!saved_ && progress.step > 0) save(progress);
    if (at_limit(progress)) return Outcome::finished;
    if (out_of_patience(progress)) return Outcome::stopped_early;
    train(progress, stop);
    if (epoch_ends(progress))
      end_epoch(progress);
    else if (save_due(progress) && !evaluation_due(progress))
      save(progress);
  }
  if (!saved_) save(progress);
  return Outcome::interrupted;
}

// What would train nothing, or compute figures that mean nothing.
void Trainer::require_programs() const {
  const auto require_set = [](const Store& store, std::string_view whose) {
    if (const int unset = store.first_unset(); unset >= 0)
      fail<UsageError>(
          "{} was never set and is all zeros: before Trainer::run(), call store().initialize(seed) "
          "of the {} program, or load weights (engine/files/weights.h)",
          store.parameters()[idx(unset)].name, whose);
  };
  if (parts_.step.graph().report < 0)
    fail<UsageError>("the step's program does not train; compile it with StepOptions::training");
  const Store& trained = parts_.step.store();
  require_set(trained, "step's");
  if (!parts_.evaluation) return;
  if (parts_.evaluation->graph().report >= 0)
    fail<UsageError>(
        "the evaluation's program would train on its data; compile it without "
        "StepOptions::training");
  if (const Store& evaluated = parts_.evaluation->store();
      &evaluated != &trained && trained.section_bytes(Store::Section::average) == 0)
    require_set(evaluated, "evaluation's");
}

void Trainer::begin(const Progress& progress) {
  require_programs();
  if (torn_step_ > 0)
    fail<UsageError>(
        "step {} ended within its calls, by an exception, so that some weights are those of the "
        "step before it and some are not; load a checkpoint and make another Trainer",
        torn_step_);
  if (steps_per_epoch() == 0) fail<DataError>("the training data have no batches");
  if (progress.next.step > 0 && epoch_ends(progress))
    fail<DataError>(
        "the run stopped after {} steps of epoch {}, but an epoch of this data has {}: the data "
        "set, --batch or --limit-batches changed, or the checkpoint is damaged; resume from a "
        "checkpoint at the end of an epoch",
        progress.next.step, progress.next.epoch + 1, steps_per_epoch());
  if (parts_.data.position() != progress.next) parts_.data.seek(progress.next);
  epoch_ = {};
  flights_.clear();
  broken_.clear();
  parts_.step.store().keep_own_moments();
  const StepState state = parts_.step.store().step_state();
  first_step_ = state.step - static_cast<std::int64_t>(progress.step);
  begun_ = state.update != 0 ? 0 : static_cast<std::uint64_t>(state.micro_step) + 1;
  saved_ = progress.step > 0 && std::exchange(unsaved_step_, 0) != progress.step;
}

// Runs steps to the next one after which the epoch or the run ends or a checkpoint is due, or until
// *stop; waits for all of them. The first step's time begins here. Broken data must not cost the
// steps before it; ranks do not save alone.
void Trainer::train(Progress& progress, const std::atomic<bool>& stop) {
  const record::Phase phase(steps_name, progress.step + 1);
  last_step_end_ns_ = now_ns();
  observed_ns_ = 0;
  saved_ = false;
  bool due = false;
  try {
    do {
      due = launch(progress);
      const std::size_t most = due ? 0 : most_in_flight();
      while (flights_.size() > most) land(progress, stop, parts_.observers);
    } while (!due && !stops(stop));
    while (!flights_.empty()) land(progress, stop, parts_.observers);
  } catch (...) {
    land_rest(progress, stop);
    throw;
  }
  if (broken_.empty()) return;
  if (progress.step > 0 && !parts_.communicator) save(progress);
  throw BrokenData(broken_);
}

bool Trainer::ends_a_launch(const Progress& launched) const {
  return epoch_ends(launched) || finished(launched) || save_due(launched) ||
         evaluation_step(launched);
}

bool Trainer::launch(const Progress& progress) {
  Progress launched = progress;
  launched.step += flights_.size();
  launched.next.step += flights_.size();
  const std::size_t first = flights_.size();
  variants_.clear();
  bool due = false;
  try {
    do {
      ++launched.step;
      ++launched.next.step;
      take_batch(launched);
      due = ends_a_launch(launched);
    } while (!due && launched.next.step % steps_per_launch() != 0);
  } catch (const DataError& error) {
    broken_ = error.what();
    flights_.resize(first);  // the batches of this launch are not trained on
    return true;
  } catch (...) {
    flights_.resize(first);
    throw;
  }
  now_at(Activity::Kind::step, launched.step);
  const std::uint64_t begin = taken_ns_;
  record::Span span(step_name, 0, begin);
  parts_.runner->steps(variants_);
  const std::uint64_t mark = parts_.step.stream().mark();
  const std::uint64_t end = now_ns();
  span.end(end);
  for (std::size_t i = first; i < flights_.size(); ++i) {
    Flight& flight = flights_[i];
    flight.mark = mark;
    // By the device's clock the first step of a launch lasts from the launch before it: the waits
    // for all batches are in its time.
    flight.launch_ns = i == first ? end - begin : 0;
    if (i > first) {
      flights_[first].wait_ns += std::exchange(flight.wait_ns, 0);
      flights_[first].copy_wait_ns += std::exchange(flight.copy_wait_ns, 0);
    }
    flight.before = static_cast<std::int64_t>(i - first);
    flight.after = static_cast<std::int64_t>(flights_.size() - 1 - i);
  }
  return due;
}

// For the last step of `launched`.
void Trainer::take_batch(const Progress& launched) {
  now_at(Activity::Kind::loading, launched.step);
  // All of taking the batch is waiting, as in the span: also where it was ready and only taking it
  // lasted, because this thread did not have the CPU.
  const std::uint64_t asked = now_ns();
  const Position position = parts_.data.position();
  record::Span wait(wait_name, position.epoch * parts_.data.steps_per_epoch() + position.step,
                    asked);
  const Batch& batch = next_batch();
  taken_ns_ = now_ns();
  wait.end(taken_ns_);
  give_batch(parts_.step, batch);
  ++begun_;
  parts_.step.measure(measures(launched.step));
  parts_.step.accumulate(begun_ % accumulate_ != 0);
  variants_.push_back(parts_.step.variant());
  flights_.push_back({.count = batch.count,
                      .weight = batch.loss_weight(),
                      .wait_ns = taken_ns_ - asked,
                      .copy_wait_ns = batch.copy_wait_ns,
                      .measured = parts_.step.measures()});
}

const Batch& Trainer::next_batch() {
  if (std::exchange(has_batch_, true)) return parts_.data.next();
  const record::Phase phase(first_batch_name);
  return parts_.data.next();
}

// After an exception: the device runs what was enqueued. A job of ranks is over, and its steps may
// wait for one that has left. A step of which only some calls were enqueued spoils the weights.
void Trainer::land_rest(Progress& progress, const std::atomic<bool>& stop) {
  if (parts_.communicator) return;
  try {
    parts_.step.stream().wait();
    while (!flights_.empty() && flights_.front().mark) land(progress, stop, {});
    if (flights_.empty())
      unsaved_step_ = progress.step;
    else
      torn_step_ = progress.step + 1;
    if (epoch_ends(progress)) {
      progress.next = {progress.next.epoch + 1, 0};
      progress.epoch_score = {};
    }
  } catch (const Error&) {  // a step that has diverged, or the device: the first exception counts
  }
}

// Waits for the oldest step in flight, and records and reports its results.
void Trainer::land(Progress& progress, const std::atomic<bool>& stop,
                   std::span<TrainObserver* const> observers) {
  const Flight flight = flights_.front();
  now_at(Activity::Kind::results, progress.step + 1);
  record::Span report(report_name);
  parts_.step.stream().wait_for(*flight.mark);
  const StepRecord record = record_of(progress, flight, stop);
  if (flight.before == 0) observed_ns_ = 0;  // it has those since the launch before
  const std::uint64_t read_ns = flight.before == 0 ? landed_ns_ : now_ns();
  report.end(read_ns);
  skipped_in_a_row_ = record.overflow ? skipped_in_a_row_ + 1 : 0;
  require_sound(record, scales_loss_, skipped_in_a_row_, has_trust_);
  flights_.erase(flights_.begin());
  last_step_end_ns_ = record.end_ns;

  progress.step = record.step;
  progress.next.step = record.step_in_epoch;
  progress.epoch_score = record.epoch_score;
  epoch_.times += record.times;
  ++epoch_.steps;
  epoch_.count += record.count;
  record::Span span(observers_name, 0, read_ns);
  for (TrainObserver* observer : observers) observer->on_step(record);
  const std::uint64_t observed = now_ns();
  span.end(observed);
  observed_ns_ += observed - read_ns;
}

void Trainer::now_at(Activity::Kind kind, std::uint64_t step) const {
  if (parts_.communicator) parts_.communicator->set_activity({kind, step});
}

bool Trainer::stops(const std::atomic<bool>& stop) const {
  return parts_.communicator ? agreed_to_stop_ : stop.load();
}

bool Trainer::agree_to_stop(const std::atomic<bool>& stop) {
  const record::Span span(agree_name);
  double stopping = stop ? 1 : 0;
  parts_.communicator->sum(std::span(&stopping, 1));
  return agreed_to_stop_ = stopping > 0;
}

Score Trainer::of_all_ranks(const Score& own, const std::atomic<bool>& stop,
                            std::uint32_t* overflow) {
  const record::Span span(agree_name);
  std::array<double, 6> sums{own.loss_sum,
                             static_cast<double>(own.correct),
                             static_cast<double>(own.count),
                             own.weight,
                             stop ? 1.0 : 0.0,
                             overflow && *overflow != 0 ? 1.0 : 0.0};
  parts_.communicator->sum(std::span(sums));
  if (sums[4] > 0) agreed_to_stop_ = true;
  if (overflow) *overflow = sums[5] > 0 ? 1 : 0;
  return {sums[0], std::llround(sums[1]), std::llround(sums[2]), sums[3]};
}

StepRecord Trainer::record_of(const Progress& progress, const Flight& flight,
                              const std::atomic<bool>& stop) {
  const std::int64_t at = first_step_ + static_cast<std::int64_t>(progress.step) + 1;
  StepReport report = parts_.step.store().report(at);
  Score score =
      score_of(static_cast<double>(report.loss), report.correct, flight.count, flight.weight);
  if (parts_.communicator) score = of_all_ranks(score, stop, &report.overflow);
  if (parts_.communicator || (flight.weight == 0 && std::isfinite(report.loss)))
    report.loss = static_cast<float>(score.loss());
  if (flight.before == 0) landed_ns_ = std::max(now_ns(), last_step_end_ns_);
  // The steps of a launch are done when the host learns of it; how long before the last of them
  // this one was, only the device's clock tells.
  const std::uint64_t last_ns = parts_.step.store().report(at + flight.after).end_ns;
  const std::uint64_t earlier_ns = last_ns - std::min(last_ns, report.end_ns);
  StepRecord record{.step = progress.step + 1,
                    .epoch = progress.next.epoch + 1,
                    .step_in_epoch = progress.next.step + 1,
                    .steps_per_epoch = steps_per_epoch(),
                    .loss = report.loss,
                    .loss_scale = report.loss_scale,
                    .overflow = report.overflow != 0,
                    .skipped = report.skipped + (report.overflow != 0 ? 1 : 0),
                    .gradient_norm = report.gradient_norm,
                    .count = score.count,
                    .score = {},
                    .epoch_score = progress.epoch_score,
                    .learning_rate = report.learning_rate,
                    .blocks = flight.measured ? block_statistics(parts_.step, at)
                                              : std::vector<BlockStatistics>(),
                    .times = {},
                    .begin_ns = last_step_end_ns_,
                    .end_ns = std::max(landed_ns_ - earlier_ns, last_step_end_ns_)};
  if (std::isfinite(report.loss))  // a skipped step with an infinite or NaN loss counts in no score
    record.score = score;
  record.epoch_score += record.score;
  record.times = times_of(record, report, flight);
  return record;
}

// Kernels are timed by the device's own clock: with steps in flight the host waits for other steps.
StepTimes Trainer::times_of(const StepRecord& record, const StepReport& report,
                            const Flight& flight) const {
  const std::uint64_t kernels = report.end_ns - report.begin_ns;
  // A backend that computes at once does so inside the launch.
  const bool at_once = parts_.step.backend().steps_in_flight() == 0;
  const std::uint64_t launch =
      flight.launch_ns - (at_once ? std::min(kernels, flight.launch_ns) : 0);
  const std::uint64_t copy_wait = std::min(flight.wait_ns, flight.copy_wait_ns);
  std::uint64_t left = record.end_ns - record.begin_ns;
  const auto take = [&](std::uint64_t ns) {
    const std::uint64_t taken = std::min(left, ns);
    left -= taken;
    return taken;
  };
  StepTimes times;
  times.kernels_ns = take(kernels);
  times.data_ns = take(flight.wait_ns - copy_wait);
  times.copies_ns = take(copy_wait);
  times.cpu_ns = take(launch + (flight.before == 0 ? observed_ns_ : 0));
  times.other_ns = left;
  return times;
}

void Trainer::end_epoch(Progress& progress) {
  progress.next = {progress.next.epoch + 1, 0};
  epoch_.epoch = progress.next.epoch;
  epoch_.step = unsaved_step_ = progress.step;  // an observer may throw
  epoch_.score = std::exchange(progress.epoch_score, {});
  for (TrainObserver* observer : parts_.observers) observer->on_epoch(epoch_);
  unsaved_step_ = 0;
  epoch_ = {};
  if (parts_.data.position() != progress.next)
    parts_.data.seek(progress.next);  // an epoch cut short by limit_batches
}

// Each rank has statistics of its own batches; those of rank 0 are saved.
void Trainer::share_buffers() {
  Store& store = parts_.evaluation->store();
  for (std::size_t b = 0; b < store.buffers().size(); ++b) {
    std::vector<float> values = store.read_buffer(b);
    parts_.communicator->broadcast(std::as_writable_bytes(std::span(values)));
    store.write_buffer(b, values);
  }
}

// A checkpoint in between two updates has the gradients that all ranks have summed so far: rank 0
// takes over the others' sums, which are 0 from then on, as in a job that continues from the file.
void Trainer::collect_sums() {
  Store& store = parts_.step.store();
  if (!parts_.communicator || store.step_state().update != 0) return;
  for (std::size_t p = 0; p < store.parameters().size(); ++p) {
    std::vector<float> sums = store.read(p, Store::Section::accumulator);
    parts_.communicator->sum(std::span(sums));
    if (parts_.communicator->world().rank > 0) std::ranges::fill(sums, 0.0F);
    store.write(p, sums, Store::Section::accumulator);
  }
}

// Broken validation data, or an op of the user's own, must not cost the steps before it. Ranks do
// not save alone.
bool Trainer::evaluate_now(Progress& progress, const std::atomic<bool>& stop) {
  const record::Span span(evaluation_name);
  const record::Phase phase(evaluation_name, progress.step);
  now_at(Activity::Kind::evaluation, progress.step);
  const std::uint64_t begin = now_ns();
  const Store &trained = parts_.step.store(), &evaluated = parts_.evaluation->store();
  if (&trained != &evaluated && trained.section_bytes(Store::Section::average) > 0)
    take_average(trained, parts_.evaluation->store());
  // All ranks evaluate as many batches, and stop together.
  constexpr std::uint64_t batches_between_asking = 16;
  const auto stops = [&, batch = std::uint64_t{0}]() mutable {
    if (!parts_.communicator) return stop.load();
    return batch++ % batches_between_asking == 0 && agree_to_stop(stop);
  };
  std::optional<Score> score;
  if (parts_.communicator) share_buffers();
  const auto save_steps = [&] {
    if (!saved_ && progress.step > 0 && !parts_.communicator) save(progress);
  };
  try {
    score = evaluate_until(*parts_.evaluation, *parts_.evaluation_data, options_.limit_batches,
                           stops, parts_.evaluation_runner);
  } catch (const DataError& error) {
    save_steps();
    throw BrokenData(error.what());
  } catch (const NumericError&) {  // the weights are not worth it
    throw;
  } catch (const DeviceError&) {  // nor can they be read
    throw;
  } catch (...) {
    save_steps();
    throw;
  }
  if (!score) return false;
  if (parts_.communicator) score = of_all_ranks(*score, stop);
  const double part =
      static_cast<double>(progress.next.step) / static_cast<double>(steps_per_epoch());
  const EvaluationRecord record{progress.next.epoch, progress.step, *score, now_ns() - begin,
                                static_cast<double>(progress.next.epoch) + part};
  require_sound(record, has_trust_);
  progress.evaluation = record;
  watch(progress);
  saved_ = false;
  for (TrainObserver* observer : parts_.observers) observer->on_evaluation(*progress.evaluation);
  return true;
}

void Trainer::save(const Progress& progress) {
  saved_ = true;
  if (!parts_.save) return;
  const record::Span span(checkpoint_name);
  const record::Phase phase(checkpoint_name, progress.step);
  now_at(Activity::Kind::checkpoint, progress.step);
  collect_sums();
  if (parts_.communicator) parts_.step.store().gather_moments(*parts_.communicator);
  const std::filesystem::path path = parts_.save(progress);
  parts_.step.store().keep_own_moments();
  for (TrainObserver* observer : parts_.observers) observer->on_checkpoint(path);
}

std::uint64_t Trainer::steps_per_epoch() const {
  const std::uint64_t all = parts_.data.steps_per_epoch();
  return options_.limit_batches == 0 ? all : std::min(all, options_.limit_batches);
}

std::uint64_t Trainer::steps_per_launch() const {
  if (parts_.step.backend().steps_in_flight() == 0) return 1;
  std::uint64_t steps = std::min(options_.steps_per_launch, std::uint64_t(parts_.data.held()));
  while (parts_.data.group() % steps != 0) --steps;  // a launch lies within a group
  return steps;
}

std::size_t Trainer::most_in_flight() const {
  const std::size_t steps = steps_per_launch(), held = idx(parts_.data.held());
  return std::min(idx(parts_.step.backend().steps_in_flight()) * steps, held - steps);
}

// Ranks have the same scores, so they stop alike.
void Trainer::watch(Progress& progress) const {
  if (options_.patience == 0) progress.watch.reset();
  // The one at the end of --steps, in mid-epoch, is none of an uninterrupted run.
  const std::uint64_t every = options_.evaluate_every_epochs;
  const bool ends_epochs = every > 0 && progress.next.step == 0 && progress.next.epoch % every == 0;
  if (options_.patience == 0 || progress.step == 0 || !(evaluation_step(progress) || ends_epochs))
    return;
  const Score& score = progress.evaluation->score;
  const bool loss = options_.watch_loss;
  const double now = loss ? score.loss() : score.accuracy();
  std::optional<Watch>& seen = progress.watch;
  if (seen && seen->loss == loss &&
      !(loss ? now < seen->best - options_.min_delta : now > seen->best + options_.min_delta))
    ++seen->worse;
  else
    seen = Watch{loss, now, progress.step, 0};
}

bool Trainer::out_of_patience(const Progress& progress) const {
  return options_.patience > 0 && progress.watch && progress.watch->loss == options_.watch_loss &&
         progress.watch->worse >= options_.patience;
}

bool Trainer::finished(const Progress& progress) const {
  return at_limit(progress) || out_of_patience(progress);
}

bool Trainer::at_limit(const Progress& progress) const {
  return (options_.epochs > 0 && progress.next.epoch >= options_.epochs) ||
         (options_.max_steps > 0 && progress.step >= options_.max_steps);
}

bool Trainer::epoch_ends(const Progress& progress) const {
  return progress.next.step >= steps_per_epoch();
}

bool Trainer::save_due(const Progress& progress) const {
  return options_.save_every_steps > 0 && progress.step % options_.save_every_steps == 0;
}

bool Trainer::evaluation_due(const Progress& progress) const {
  if (!parts_.evaluation || !parts_.evaluation_data) return false;
  if (progress.evaluation && progress.evaluation->step == progress.step) return false;
  if (progress.step == 0) return options_.evaluate_first && !finished(progress);
  const std::uint64_t every = options_.evaluate_every_epochs;
  return finished(progress) || evaluation_step(progress) ||
         (every > 0 && progress.next.step == 0 && progress.next.epoch % every == 0);
}

bool Trainer::evaluation_step(const Progress& progress) const {
  return parts_.evaluation && options_.evaluate_every_steps > 0 &&
         progress.step % options_.evaluate_every_steps == 0;
}

bool Trainer::measures(std::uint64_t step) const {
  const std::uint64_t every = options_.measure_every_steps;
  if (every == 0 || begun_ % accumulate_ != 0) return false;
  return step <= accumulate_ || step / every > (step - accumulate_) / every;
}

std::vector<BlockStatistics> block_statistics(const Program& step, std::int64_t at) {
  const Graph& graph = step.graph();
  const std::span<const BlockSums> sums = step.store().block_sums(at);
  std::vector<BlockStatistics> all;
  for (std::size_t b = 0; b < sums.size(); ++b) {
    constexpr double none = std::numeric_limits<double>::quiet_NaN();
    BlockStatistics block{graph.blocks[b].name, none, none, none, none, none, none, none};
    if (graph.blocks[b].has_parameters) {
      block.gradient_norm = std::sqrt(sums[b].gradient_squares);
      block.parameter_norm = std::sqrt(sums[b].parameter_squares);
      block.update_norm = std::sqrt(sums[b].update_squares);
    }
    if (const int output = graph.blocks[b].output; output >= 0) {
      const auto count = static_cast<double>(graph.value(output).type.shape.count());
      block.mean = sums[b].sum / count;
      block.rms = std::sqrt(sums[b].squares / count);
      block.largest = sums[b].largest;
      block.zeros = 1 - sums[b].nonzero / count;
    }
    all.push_back(std::move(block));
  }
  return all;
}

}  // namespace warpstep
