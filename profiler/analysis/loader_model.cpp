#include "profiler/analysis/loader_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "engine/core/text.h"
#include "profiler/analysis/compare_statistics.h"
#include "profiler/analysis/contention.h"

namespace warpstep::profiler {
namespace {

// A replay costs some operations per sample and worker: 90 settings of this many take 0.2 s.
constexpr std::size_t most_samples = 8'000;
constexpr std::int64_t most_rows = 512;  // of a replayed batch: those of a larger one are merged
constexpr std::size_t least_replayed = 48, most_replayed = 400;  // steps
constexpr int most_threads = 4096;                               // more are damage
constexpr int most_for_reads = 64;                               // workers
constexpr double least_asleep = 0.2;                             // of the workers' time
constexpr double most_of_blocked = 0.5;                          // what few reads may have
constexpr double misfit = 0.1;                                   // of the step
constexpr double hardly_waits = 0.02;                            // of the step
constexpr double fits_within = 0.005;                            // a calibration is done

// A worker's nice value is 5 above that of the threads that compute: Linux's scheduler weighs it
// 335 where they have 1024 (sched_prio_to_weight).
constexpr double nice_weight = 335.0 / 1024;

// Times of workers differ by chance; of a slow one by more.
constexpr double uneven_from = 1.5;

// A thread that waits for a core delays the others of its team at their next barrier: at most the
// sum of their waits, where they wait at different times. Other programs and ranks have their part
// of it; what the hypervisor takes is no run delay.
double core_wait_ns(const Contention& found, double step_ns) {
  const double from_outside = std::min(1.0, found.others_share.value_or(0) + found.siblings_share);
  double per_second = 0;
  if (found.trainer) per_second += found.trainer->delay_ns;
  if (found.kernels) per_second += found.kernels->threads * found.kernels->delay_ns;
  return std::min(0.5, (1 - from_outside) * per_second / 1e9) * step_ns;
}

// So many samples are replayed as one, with which a batch has at most `most_rows`.
std::int64_t merged_rows(const LoaderView& view) {
  return std::max<std::int64_t>(1, (view.batch + most_rows - 1) / most_rows);
}

void scale(std::vector<double>& values, double factor) {
  for (double& value : values) value *= factor;
}

}  // namespace

LoaderModel::LoaderModel(const LoaderView& view, const View& source)
    : view_(view),
      setting_{.workers = std::clamp(view.workers, 1, most_threads),
               .prefetch = 0,
               .batch = std::clamp<std::int64_t>(view.batch / merged_rows(view), 1, most_rows),
               .cores = static_cast<double>(view.cores),
               .kernel_threads = kernel_threads(source),
               .worker_weight = nice_weight,
               .ns_per_byte = view.source.ns_per_byte} {
  has_copier_ = !source.session.computes_on_host() &&
                std::ranges::any_of(source.session.spans, [&](const Span& span) {
                  return source.session.kind(span) == Kind::copy;
                });
  setting_.prefetch = ahead(view.prefetch > 0 ? view.prefetch : 3);
  const Contention found = contention(source);
  if (found.quota_cores) setting_.cores = std::min(setting_.cores, *found.quota_cores);
  core_wait_ns_ = core_wait_ns(found, view.step_ns + view.wait_ns);
  setting_.others = found.taken_cores(view.cores);
  for (std::size_t n = 0; n < source.counted.size(); ++n) {
    const std::size_t i = source.counted[n];
    const Step& step = source.session.steps[i];
    const std::uint64_t all = step.end_ns - step.begin_ns,
                        wait = n < view.waits_ns.size() ? view.waits_ns[n] : step.data_ns;
    steps_ns_.push_back(static_cast<double>(all - std::min(all, wait)));
    const bool follows = n > 0 && source.counted[n - 1] + 1 == i;
    const std::uint64_t before = follows ? source.session.steps[i - 1].end_ns : step.begin_ns;
    pauses_ns_.push_back(static_cast<double>(step.begin_ns - std::min(step.begin_ns, before)));
  }
  steps_ = std::clamp(most_samples / static_cast<std::size_t>(setting_.batch), least_replayed,
                      most_replayed);
  take_samples();
  calibrate();
}

// The batches beyond the one in use: on a host that one is one of the option's; a device has two
// buffers of its own besides.
int LoaderModel::ahead(int prefetch) const {
  return std::max(1, has_copier_ ? prefetch + 1 : prefetch - 1);
}

void LoaderModel::take_samples() {
  for (const WorkerRow& worker : view_.by_worker)
    setting_.slowness.push_back(worker.slowness >= uneven_from ? worker.slowness : 1);
  for (const SampleTime& sample : view_.samples) {
    const double slowness =
        sample.worker < setting_.slowness.size() ? setting_.slowness[sample.worker] : 1;
    // Where the system does not say what kept a thread off its core, a wait for a core is part of
    // what calibrate() scales.
    const double cpu = view_.knows_cpu ? sample.cpu_ns : sample.cpu_ns + sample.delay_ns;
    cpu_ns_.push_back(cpu / slowness);
    blocked_ns_.push_back(sample.blocked_ns / slowness);
    asleep_ns_.push_back(sample.asleep_ns / slowness);
    bytes_.push_back(sample.bytes);
    readers_.push_back(sample.readers);
  }
  merge_samples();
  if (!cpu_ns_.empty() || view_.work_ns <= 0) return;
  const auto batch = static_cast<double>(setting_.batch);
  cpu_ns_ = {(view_.work_ns - view_.blocked_ns) / batch};
  blocked_ns_ = {view_.blocked_ns / batch};
  asleep_ns_ = {0};
  bytes_ = {0};
  readers_ = {1};
}

void LoaderModel::merge_samples() {
  const auto merge = static_cast<std::size_t>(merged_rows(view_));
  if (merge == 1 || cpu_ns_.size() < 2 * merge) return;
  const auto each = static_cast<double>(merge);
  for (std::vector<double>* const values :
       {&cpu_ns_, &blocked_ns_, &asleep_ns_, &bytes_, &readers_}) {
    const std::size_t count = values->size() / merge;
    for (std::size_t i = 0; i < count; ++i) {
      const auto from = values->begin() + static_cast<std::ptrdiff_t>(i * merge);
      const double sum = std::accumulate(from, from + static_cast<std::ptrdiff_t>(merge), 0.0);
      (*values)[i] = values == &readers_ ? sum / each : sum;
    }
    values->resize(count);
  }
}

void LoaderModel::calibrate() {
  const bool shares_cores = computes_on_host();
  for (int tries = 0; tries < 8; ++tries) {
    double busy_ns = 0;
    const Predicted now = replayed({}, setting_.ns_per_byte, &busy_ns);
    const double own = now.step_ns - now.wait_ns;
    const double step = shares_cores && own > 0 ? view_.step_ns / own : 1;
    const double work = !view_.knows_cpu && busy_ns > 0 ? view_.work_ns / busy_ns : 1;
    if (std::abs(step - 1) < fits_within && std::abs(work - 1) < fits_within) break;
    scale(steps_ns_, step);
    scale(cpu_ns_, work);
  }
  std::vector<double> all_ns;
  for (std::size_t i = 0; i < cpu_ns_.size(); ++i)
    all_ns.push_back(cpu_ns_[i] + blocked_ns_[i] + asleep_ns_[i]);
  usual_ns_ = median(std::move(all_ns));
  for (const double step : steps_ns_) free_step_ns_ += step / static_cast<double>(steps_ns_.size());
  as_it_was_ = predict({});
}

double LoaderModel::work_ns() const {
  double sum = 0;
  for (std::size_t i = 0; i < cpu_ns_.size(); ++i)
    sum += cpu_ns_[i] + blocked_ns_[i] + asleep_ns_[i];
  return cpu_ns_.empty()
             ? 0
             : sum / static_cast<double>(cpu_ns_.size()) * static_cast<double>(setting_.batch);
}

bool LoaderModel::has_pauses() const {
  return std::ranges::any_of(pauses_ns_, [](double ns) { return ns > 0; });
}

bool LoaderModel::fits() const {
  return std::abs(unexplained_ns()) <= misfit * measured_step_ns();
}

// A replay that takes longer than the run did has no batches that were made before its steps, or
// gives the workers less of the cores than they had: steps that all wait have nothing made ahead.
std::string LoaderModel::misfit_text() const {
  const double off = unexplained_ns();
  const std::string ns = quantity(std::abs(off), Unit::ns);
  if (off > 0) return fmt::format("{} of a step are not explained by the loader's work", ns);
  const double usual_wait = median({view_.waits_ns.begin(), view_.waits_ns.end()});
  const bool ahead = has_pauses() || usual_wait < hardly_waits * measured_step_ns();
  return fmt::format("by the loader's work alone a step would take {} longer: {}", ns,
                     ahead ? "batches were made ahead of these steps"
                           : "workers got more of the cores than the replay gives them");
}

int most_workers(const LoaderView& view, bool on_host) {
  constexpr int most = 256;  // that --workers takes
  const int cores = view.cores;
  // Workers that are blocked in reads, or asleep, leave their cores to others.
  if (view.blocked_ns + view.asleep_ns > 0.2 * view.work_ns)
    return std::min(most_for_reads, std::max(8, 4 * std::max(1, cores)));
  if (cores < 1) return std::clamp(2 * std::min(view.workers, most), 8, most);
  return std::clamp(on_host ? cores : cores - 1, 1, most);
}

Predicted LoaderModel::replayed(const Remedy& remedy, double ns_per_byte, double* busy_ns) const {
  ReplaySetting setting = setting_;
  if (remedy.workers > 0) setting.workers = remedy.workers;
  if (remedy.prefetch > 0) setting.prefetch = ahead(remedy.prefetch);
  if (remedy.even_workers) setting.slowness.clear();
  setting.ns_per_byte = view_.source.busy_per_blocked * ns_per_byte;
  std::vector<SampleWork> samples(cpu_ns_.size());
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const double blocked = blocked_ns_[i], shared = ns_per_byte * readers_[i] * bytes_[i],
                 all = blocked + asleep_ns_[i] + cpu_ns_[i],
                 usual = remedy.even_samples && all > usual_ns_ ? usual_ns_ / all : 1;
    samples[i] = {.latency_ns = usual * (remedy.latency * std::max(0.0, blocked - shared) +
                                         remedy.asleep * asleep_ns_[i]),
                  .bytes = remedy.bytes * bytes_[i] * (shared > blocked ? blocked / shared : 1),
                  .cpu_ns = usual * remedy.cpu * cpu_ns_[i]};
  }
  const std::span<const double> pauses =
      remedy.steady ? std::span<const double>() : std::span<const double>(pauses_ns_);
  const ReplayResult result = replay(samples, steps_ns_, setting, steps_, pauses);
  if (busy_ns != nullptr) *busy_ns = result.busy_ns;
  return {.step_ns = result.step_ns,
          .wait_ns = result.wait_ns,
          .least_ns = result.step_ns,
          .most_ns = result.step_ns,
          .least_wait_ns = result.wait_ns};
}

Predicted LoaderModel::predict(const Remedy& remedy) const {
  Predicted predicted = replayed(remedy, setting_.ns_per_byte);
  if (view_.blocked_ns < 0.05 * view_.work_ns || view_.source.most_ns_per_byte <= 0)
    return predicted;
  for (const double ns : {view_.source.least_ns_per_byte, view_.source.most_ns_per_byte}) {
    const Predicted other = replayed(remedy, ns);
    if (other.step_ns < predicted.least_ns) {
      predicted.least_ns = other.step_ns;
      predicted.least_wait_ns = other.wait_ns;
    }
    predicted.most_ns = std::max(predicted.most_ns, other.step_ns);
  }
  return predicted;
}

Gain LoaderModel::gain(const Remedy& remedy) const {
  const Predicted then = predict(remedy);
  const double now = as_it_was_.step_ns, off = unexplained_ns();
  double saved_work_ns = 0, after_waits_ns = 0;
  Gain gain{
      .ns = now - then.step_ns, .least_ns = now - then.most_ns, .most_ns = now - then.least_ns};
  if (computes_on_host()) {
    double before_ns = 0, after_ns = 0;
    replayed({}, setting_.ns_per_byte, &before_ns);
    replayed(remedy, setting_.ns_per_byte, &after_ns);
    const double work = before_ns > 0 ? after_ns / before_ns : 1;
    const double waited_ns = std::max(0.0, as_it_was_.wait_ns - then.least_wait_ns);
    const double wait = as_it_was_.wait_ns > 0 ? then.least_wait_ns / as_it_was_.wait_ns : 1;
    // A team waits for a core no longer than a worker has it, in the replay and as it was measured.
    const double on_cores = std::max(0.0, view_.work_ns - view_.blocked_ns - view_.asleep_ns);
    saved_work_ns = std::min(before_ns - after_ns, std::max(0.0, 1 - work) * on_cores);
    // A team that slept while it waited for data waits for its cores then, perhaps as long.
    after_waits_ns = std::min(waited_ns, core_wait_ns_ * std::max(0.0, 1 - wait));
    const double taken = saved_work_ns + as_it_was_.wait_ns - then.least_wait_ns + after_waits_ns;
    const double most = gain.most_ns + core_wait_ns_ * std::max(0.0, 1 - std::min(work, wait));
    gain.most_ns = std::max(gain.most_ns, std::min(most, taken));
    gain.ns = (gain.least_ns + gain.most_ns) / 2;
  }
  // Reads of as many workers all the time do not show what they would be with more. Nor do a few
  // that all others hardly waited beside, as with a source that serves some at once and then none.
  const SourceFit& source = view_.source;
  const bool may_be_shared =
      view_.blocked_ns >= least_asleep * view_.work_ns && !source.tells_apart();
  const bool are_few =
      view_.blocked_ns >= least_asleep * view_.work_ns && source.left_out_share >= most_of_blocked;
  const bool may_be_a_lock = view_.asleep_ns >= least_asleep * view_.work_ns;
  const bool is_open = view_.workers > 1 && (may_be_a_lock || may_be_shared);
  if (remedy.workers > view_.workers && (is_open || are_few)) {
    gain.least_ns = std::min(gain.least_ns, 0.0);
    gain.ns = (gain.least_ns + gain.most_ns) / 2;
  }
  if (!fits()) {
    // What is not explained may go with the wait, or stay.
    gain.least_ns = std::min(gain.least_ns, gain.least_ns + off);
    const double all = view_.wait_ns + after_waits_ns +
                       std::max(0.0, saved_work_ns);  // nothing else is the loader's
    gain.most_ns = std::clamp(gain.most_ns + off, gain.most_ns, std::max(gain.most_ns, all));
    gain.ns = (gain.least_ns + gain.most_ns) / 2;
  }
  // More batches ahead leave the work as it is, and workers that are all as fast make the same
  // samples: both save waits alone.
  const bool is_queue = remedy.prefetch > 0 && remedy.workers == 0;
  if ((is_queue || remedy.even_workers) && remedy.cpu == 1 && remedy.latency == 1)
    for (double* const ns : {&gain.ns, &gain.least_ns, &gain.most_ns})
      *ns = std::min(*ns, view_.wait_ns);
  return gain;
}

}  // namespace warpstep::profiler
