#include "profiler/analysis/loader_replay.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>

namespace warpstep::profiler {
namespace {

enum class Need : std::uint8_t { latency, transfer, core, none };

struct Worker {
  Need need = Need::none;
  double left = 0;      // ns, or bytes while it transfers
  double slowness = 1;  // of all that it does
  double began = 0;     // its sample
  std::size_t sample = 0, batch = 0;
};

class Simulation {
 public:
  Simulation(std::span<const SampleWork> samples, std::span<const double> steps_ns,
             std::span<const double> pauses_ns, const ReplaySetting& setting, std::size_t steps)
      : samples_(samples),
        steps_ns_(steps_ns),
        pauses_ns_(pauses_ns),
        setting_(setting),
        steps_(steps),
        prefetch_(static_cast<std::size_t>(std::max(1, setting.prefetch))),
        first_counted_(std::min(steps - 1, prefetch_)),
        batch_(static_cast<std::size_t>(setting.batch)),
        workers_(static_cast<std::size_t>(std::max(1, setting.workers))),
        unfinished_(steps + prefetch_, batch_) {
    for (std::size_t w = 0; w < std::min(workers_.size(), setting.slowness.size()); ++w)
      workers_[w].slowness = std::max(1e-3, setting.slowness[w]);
    result_.waits_ns.reserve(steps);
  }

  ReplayResult run() {
    while (taken_ < steps_ || computes_) {
      if (!computes_ && pause_ <= 0 && unfinished_[taken_] == 0) take_batch();
      bool working = computes_ || pause_ > 0;
      for (Worker& worker : workers_) {
        while (worker.need == Need::none && claim(worker)) {
        }
        working |= worker.need != Need::none;
      }
      if (working) advance();
    }
    const auto counted = static_cast<double>(steps_ - first_counted_);
    result_.step_ns = (now_ - counted_from_ - paused_) / counted;
    result_.wait_ns = waited_ / counted;
    if (made_ > 0)
      result_.busy_ns = making_ns_ / static_cast<double>(made_) * static_cast<double>(batch_);
    return std::move(result_);
  }

 private:
  void take_batch() {
    if (taken_ == first_counted_) {
      counted_from_ = now_ - wait_;
      waited_ = paused_ = 0;
    }
    result_.waits_ns.push_back(static_cast<std::uint64_t>(wait_));
    waited_ += wait_;
    wait_ = 0;
    left_of_step_ = steps_ns_[taken_ % steps_ns_.size()];
    ++taken_;
    computes_ = true;
  }

  // Gives it the next sample; false when there is no room for one.
  bool claim(Worker& worker) {
    const std::size_t batch = claimed_ / batch_;
    if (batch >= prefetch_ + taken_ || batch >= unfinished_.size()) return false;
    worker.batch = batch;
    worker.sample = claimed_++ % samples_.size();
    worker.began = now_;
    enter(worker, Need::latency);
    return true;
  }

  // The sample needs this next, or what follows it and takes time.
  void enter(Worker& worker, Need need) {
    const SampleWork& work = samples_[worker.sample];
    const std::array<double, 3> parts{work.latency_ns, setting_.ns_per_byte > 0 ? work.bytes : 0,
                                      work.cpu_ns};
    auto next = static_cast<std::size_t>(need);
    while (next < parts.size() && parts[next] <= 0) ++next;
    worker.need = static_cast<Need>(next);
    if (worker.need != Need::none) {
      worker.left = parts[next] * worker.slowness;
      return;
    }
    --unfinished_[worker.batch];
    making_ns_ += now_ - worker.began;
    ++made_;
  }

  struct Rates {
    double transfer = 0, cpu = 1, kernels = 1;
  };

  Rates rates() const {
    const auto in = [&](Need need) {
      return static_cast<double>(std::ranges::count(workers_, need, &Worker::need));
    };
    Rates rates;
    if (setting_.ns_per_byte > 0)
      rates.transfer = 1 / (setting_.ns_per_byte * std::max(1.0, in(Need::transfer)));
    const double making = in(Need::core), threads = computes_ ? setting_.kernel_threads : 0;
    const double wanting = threads + setting_.others;
    if (setting_.cores <= 0 || making + wanting <= setting_.cores) return rates;
    const double share =
        std::min(1.0, setting_.cores / (wanting + making * setting_.worker_weight));
    if (threads > 0) rates.kernels = share;  // a device needs no core
    if (making > 0) rates.cpu = std::min(1.0, (setting_.cores - wanting * share) / making);
    return rates;
  }

  // To the next event.
  void advance() {
    const Rates rate = rates();
    const std::array<double, 3> of_need{1, rate.transfer, rate.cpu};
    double until = std::numeric_limits<double>::infinity();
    if (computes_) until = left_of_step_ / rate.kernels;
    if (pause_ > 0) until = pause_;
    for (const Worker& worker : workers_) {
      if (worker.need == Need::none) continue;
      until = std::min(until, worker.left / of_need[static_cast<std::size_t>(worker.need)]);
    }
    now_ += until;
    constexpr double rounding = 1e-6;  // ns, or bytes
    if (pause_ > 0) {
      paused_ += until;
      pause_ = pause_ - until > rounding ? pause_ - until : 0;
    } else if (!computes_) {
      wait_ += until;
    }
    for (Worker& worker : workers_) {
      if (worker.need == Need::none) continue;
      worker.left -= until * of_need[static_cast<std::size_t>(worker.need)];
      if (worker.left <= rounding)
        enter(worker, static_cast<Need>(static_cast<int>(worker.need) + 1));
    }
    if (!computes_) return;
    left_of_step_ -= until * rate.kernels;
    computes_ = left_of_step_ > rounding;
    if (!computes_ && taken_ < steps_ && !pauses_ns_.empty())
      pause_ = pauses_ns_[taken_ % pauses_ns_.size()];
  }

  std::span<const SampleWork> samples_;
  std::span<const double> steps_ns_, pauses_ns_;
  const ReplaySetting& setting_;
  std::size_t steps_, prefetch_;
  std::size_t first_counted_;  // the first batches are made while nothing is trained
  std::size_t batch_;
  std::vector<Worker> workers_;
  std::vector<std::size_t> unfinished_;  // samples, by batch
  std::size_t claimed_ = 0;              // samples
  std::size_t taken_ = 0;                // batches
  bool computes_ = false;
  double now_ = 0, left_of_step_ = 0, wait_ = 0;
  double pause_ = 0;  // left of it
  double counted_from_ = 0, waited_ = 0, paused_ = 0;
  double making_ns_ = 0;  // of all samples that were made
  std::size_t made_ = 0;
  ReplayResult result_;
};

}  // namespace

ReplayResult replay(std::span<const SampleWork> samples, std::span<const double> steps_ns,
                    const ReplaySetting& setting, std::size_t steps,
                    std::span<const double> pauses_ns) {
  if (samples.empty() || steps_ns.empty() || setting.batch < 1 || steps == 0) return {};
  return Simulation(samples, steps_ns, pauses_ns, setting, steps).run();
}

}  // namespace warpstep::profiler
