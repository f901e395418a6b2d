#include "profiler/analysis/loader_model.h"

#include <algorithm>
#include <functional>
#include <vector>

#include "profiler/analysis/loading.h"
#include "profiler/analysis/scope.h"

namespace warpstep::profiler {
namespace {

// A replay costs a heap operation per sample: 40 settings of this many take about 0.1 s.
constexpr std::size_t most_samples = 60'000;
constexpr std::size_t least_replayed = 64, most_replayed = 1024;
constexpr int most_for_disk = 64;  // workers

int kernel_threads(const View& source, int cores) {
  const Session& session = source.session;
  if (!session.computes_on_host()) return 0;
  const auto given = static_cast<int>(std::clamp<std::int64_t>(
      fields::whole(session.loader, "kernel_threads", fields::whole(source.options, "threads")), 0,
      4096));
  return std::max(1, given > 0 ? given : cores);
}

std::vector<std::uint64_t> scaled(const std::vector<std::uint64_t>& times, double scale) {
  std::vector<std::uint64_t> result;
  result.reserve(times.size());
  for (const std::uint64_t time : times)
    result.push_back(static_cast<std::uint64_t>(static_cast<double>(time) * scale));
  return result;
}

}  // namespace

LoaderModel::LoaderModel(const LoaderView& view, const View& source, bool waits_for_disk)
    : service_ns_(view.service_ns),
      batch_(std::max<std::int64_t>(1, view.batch)),
      workers_(std::max(1, view.workers)),
      prefetch_(view.prefetch > 0 ? view.prefetch : 3),
      cores_(view.cores),
      threads_(kernel_threads(source, view.cores)),
      waits_for_disk_(waits_for_disk),
      step_ns_(view.step_ns),
      wait_ns_(view.wait_ns) {
  if (service_ns_.empty() && view.work_ns > 0)
    service_ns_ = {static_cast<std::uint64_t>(view.work_ns / static_cast<double>(batch_))};
  for (const std::size_t i : source.counted) {
    const Step& step = source.session.steps[i];
    const std::uint64_t all = step.end_ns - step.begin_ns;
    steps_ns_.push_back(all - std::min(all, step.data_ns));
  }
  steps_ =
      std::clamp(most_samples / static_cast<std::size_t>(batch_), least_replayed, most_replayed);
  // While it is too slow, the loader works all the time: its time is its share of the cores.
  const double r = share(workers_);
  const bool is_too_slow = wait_ns_ > 0.02 * step_ns_;
  const double alone = running(workers_) / workers_;
  const double speed = is_too_slow ? (r * step_ns_ + alone * wait_ns_) / measured_step_ns() : r;
  w_ = view.work_ns * speed;
  if (threads_ == 0 || waits_for_disk_) {
    s_ = step_ns_;
  } else {
    s_ =
        is_too_slow ? step_ns_ * r : std::max(step_ns_ * r, step_ns_ - w_ / workers_ * (1 / r - 1));
  }
}

double LoaderModel::share(int workers) const {
  if (waits_for_disk_ || cores_ < 1) return 1;
  return std::min(1.0, static_cast<double>(cores_) / (threads_ + workers));
}

double LoaderModel::running(int workers) const {
  return waits_for_disk_ || cores_ < 1 ? workers : std::min(workers, cores_);
}

double LoaderModel::work_hidden() const {
  return workers_ * s_ * (threads_ > 0 ? 1 : share(workers_));
}

int LoaderModel::most_workers() const {
  if (waits_for_disk_) return std::min(most_for_disk, std::max(8, 4 * std::max(1, cores_)));
  if (cores_ < 1) return std::max(8, 2 * workers_);
  return std::max(1, threads_ > 0 ? cores_ : cores_ - 1);
}

Scales LoaderModel::scales(int workers, double work_scale) const {
  const auto at = [&](int k, double w) {
    const double r = share(k);
    const double slowed = threads_ > 0 ? s_ / r : s_;  // a device's step is not
    const double missing = w - k * r * slowed;
    if (missing > 0) return Scales{slowed, k * (slowed + missing / running(k)) / w};
    return Scales{threads_ > 0 ? s_ + w / k * (1 / r - 1) : s_, 1 / r};
  };
  const Scales now = at(workers_, w_), then = at(workers, w_ * work_scale);
  Scales result{.step = now.step > 0 ? then.step / now.step : 1,
                .service = now.service > 0 ? then.service / now.service : 1};
  result.service *= work_scale;
  return result;
}

Predicted LoaderModel::predict(const Remedy& remedy) const {
  const int workers = remedy.workers > 0 ? remedy.workers : workers_;
  const int prefetch = remedy.prefetch > 0 ? remedy.prefetch : prefetch_;
  const Scales change = scales(workers, remedy.work_scale);
  const ReplayResult played = replay(
      service_ns_, batch_, scaled(steps_ns_, change.step),
      {.workers = workers, .prefetch = std::max(1, prefetch - 1), .stage_scale = change.service},
      steps_);
  return {.step_ns = step_ns_ * change.step + played.mean_wait_ns, .wait_ns = played.mean_wait_ns};
}

namespace {

// Workers by the time at which they are free, the earliest first.
class Workers {
 public:
  explicit Workers(std::size_t count) : free_(count, 0.0) {}

  // Gives each sample to the first free worker, none before `gate`; returns when the last is done.
  template <class NextService>
  double make(std::size_t samples, double gate, NextService next_service) {
    for (double& at : free_) at = std::max(at, gate);
    // Raising the early ones to the gate keeps the order of the others, but not of the heap.
    std::make_heap(free_.begin(), free_.end(), std::greater<>());
    double end = 0;
    for (std::size_t i = 0; i < samples; ++i) {
      std::pop_heap(free_.begin(), free_.end(), std::greater<>());
      free_.back() += next_service();
      end = std::max(end, free_.back());
      std::push_heap(free_.begin(), free_.end(), std::greater<>());
    }
    return end;
  }

 private:
  std::vector<double> free_;
};

}  // namespace

ReplayResult replay(const std::vector<std::uint64_t>& service_ns, std::int64_t batch,
                    const std::vector<std::uint64_t>& steps_ns, const ReplaySetting& setting,
                    std::size_t steps) {
  ReplayResult result;
  if (service_ns.empty() || steps_ns.empty() || batch < 1) return result;
  const std::size_t prefetch = static_cast<std::size_t>(std::max(1, setting.prefetch));
  const int count = std::max(1, setting.workers);
  const double slow =
      setting.stage_scale *
      (setting.cores > 0 && count > setting.cores ? static_cast<double>(count) / setting.cores : 1);
  Workers workers(static_cast<std::size_t>(count));
  std::vector<double> taken(steps, 0.0);
  std::size_t sample = 0;
  double now = 0, sum = 0;
  for (std::size_t b = 0; b < steps; ++b) {
    const double ready = workers.make(
        static_cast<std::size_t>(batch), b >= prefetch ? taken[b - prefetch] : 0.0,
        [&] { return static_cast<double>(service_ns[sample++ % service_ns.size()]) * slow; });
    const double wait = std::max(0.0, ready - now);
    result.waits_ns.push_back(static_cast<std::uint64_t>(wait));
    if (b >= prefetch) sum += wait;
    now += wait;
    taken[b] = now;
    now += static_cast<double>(steps_ns[b % steps_ns.size()]);
  }
  if (steps > prefetch) result.mean_wait_ns = sum / static_cast<double>(steps - prefetch);
  return result;
}

}  // namespace warpstep::profiler
