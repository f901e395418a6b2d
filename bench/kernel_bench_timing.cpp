#include "bench/kernel_bench_timing.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "engine/core/error.h"
#include "engine/core/random.h"
#include "engine/run/runner.h"

namespace warpstep::bench {
namespace {

using SteadyClock = std::chrono::steady_clock;

double seconds_since(SteadyClock::time_point begin) {
  return std::chrono::duration<double>(SteadyClock::now() - begin).count();
}

// Four times the largest second-level cache of any device, 60 MiB of an H200.
constexpr double device_rotation_bytes = 240.0 * (1 << 20);
constexpr int recorded_calls = 20;
// A launch and the wait for it cost about 10 us of host time: a thousandth of this.
constexpr double launched_s = 10e-3;

double host_rotation_bytes() {
  const long cache = sysconf(_SC_LEVEL3_CACHE_SIZE);
  return 2 * (cache > 0 ? static_cast<double>(cache) : 64.0 * (1 << 20));
}

// More sets would make the total larger than the few hundred MiB of a step.
std::size_t wanted_sets(double bytes, const Device& device) {
  const double sets =
      std::ceil((device.queues() ? device_rotation_bytes : host_rotation_bytes()) / bytes);
  return device.queues() ? static_cast<std::size_t>(std::clamp(sets, 4.0, 16.0))
                         : static_cast<std::size_t>(std::clamp(sets, 2.0, 8.0));
}

// The call of node `wanted` of the case: a backend inserts reorders between the case's nodes.
std::size_t find_call(const Program& program, const Graph& graph, std::size_t wanted) {
  std::size_t expected = 0, call = 0;
  for (const Node& node : program.graph().nodes) {
    if (expected < graph.nodes.size() && node.op == graph.nodes[expected].op) {
      if (expected == wanted) return call;
      ++expected;
    }
    if (!is_view(node.op)) ++call;
  }
  fail<Error>("{} has no call for {}", program.backend().name(), graph.nodes[wanted].title());
}

}  // namespace

Rotation::Rotation(const Subject& subject, const Device& device) {
  add_set(subject, device);
  for (std::size_t sets = wanted_sets(cost().bytes, device); calls_.size() < sets;)
    add_set(subject, device);
  stream_ = &trials_[0]->program().stream();
  if (!device.queues()) return;
  // Every set at least once.
  calls_per_launch_ = std::max(recorded_calls, static_cast<int>(sets()));
  recording_ = device.of(subject.precision)->record(*stream_, [this] {
    for (int i = 0; i < calls_per_launch_; ++i) enqueue_one();
  });
  launch();
  stream_->wait();
  const auto begin = SteadyClock::now();
  launch();
  stream_->wait();
  launches_ =
      static_cast<int>(std::clamp(std::ceil(launched_s / seconds_since(begin)), 1.0, 200.0));
}

void Rotation::add_set(const Subject& subject, const Device& device) {
  trials_.push_back(
      std::make_unique<testing_support::Trial>(*subject.c, device.of(subject.precision)));
  const Program& program = trials_.back()->program();
  const std::size_t wanted = find_call(program, subject.c->graph, subject.node);
  for (std::size_t i = 0; i <= wanted; ++i)
    program.calls()[i].kernel->enqueue(program.stream(), program.calls()[i].buffers());
  program.wait();
  calls_.push_back(&program.calls()[wanted]);
}

void Rotation::enqueue_one() {
  const Call& call = *calls_[next_];
  next_ = (next_ + 1) % calls_.size();
  call.kernel->enqueue(*stream_, call.buffers());
}

void Rotation::launch() {
  if (recording_) return recording_->launch(*stream_);
  for (int i = 0; i < calls_per_launch_; ++i) enqueue_one();
}

double Rotation::run() {
  // As in a step: on a CPU denormals are flushed, which some loops would otherwise meet.
  const StepScope scope(trials_[0]->program().backend());
  const auto begin = SteadyClock::now();
  for (int i = 0; i < launches_; ++i) launch();
  stream_->wait();
  return seconds_since(begin);
}

namespace {

// Periodic noise: a device's speed depends on the values it multiplies, not on their period.
std::vector<float> noise(std::int64_t count) {
  constexpr std::size_t period = 1000003;  // a prime: rows of a matrix differ
  std::vector<float> values(idx(count));
  for (std::size_t i = 0; i < std::min(period, values.size()); i += 4) {
    const auto words = draw(1, Purpose::synthetic, 0, i / 4);
    for (std::size_t j = i; j < std::min(i + 4, values.size()); ++j)
      values[j] = 2 * uniform(words[j % 4]) - 1;
  }
  for (std::size_t i = period; i < values.size(); ++i) values[i] = values[i - period];
  return values;
}

// The seconds per call of a program with one input and one call, enqueued `calls` times.
class Ceiling {
 public:
  Ceiling(Graph graph, const std::shared_ptr<Backend>& backend)
      : program_(std::move(graph), backend) {
    const Value& input = program_.graph().value(program_.graph().inputs[0]);
    slot_ = backend->allocate(input.layout.bytes);
    const std::vector<float> values = noise(input.type.shape.count());
    backend->write(input, slot_.get(), std::as_bytes(std::span(values)));
    const void* address = slot_.get();
    program_.set_inputs({&address, 1});
    for (std::size_t p = 0; p < program_.store().parameters().size(); ++p)
      program_.store().write(p, noise(program_.store().torch_shape(p).count()));
    for (std::size_t i = 0; i < program_.calls().size(); ++i) program_.enqueue(i);
    program_.wait();
  }

  // The best of many: other programs on the device only make it slower.
  double seconds(int calls) {
    const StepScope scope(program_.backend());
    double best = 1e30;
    const auto start = SteadyClock::now();
    for (int run = 0; run < 5 || (run < 50 && seconds_since(start) < 0.3); ++run) {
      const auto begin = SteadyClock::now();
      for (int i = 0; i < calls; ++i) program_.enqueue(program_.calls().size() - 1);
      program_.wait();
      best = std::min(best, seconds_since(begin) / calls);
    }
    return best;
  }
  const Cost& cost() const { return program_.calls().back().cost; }

 private:
  Program program_;
  std::shared_ptr<std::byte> slot_;
};

Graph copy_of(std::int64_t count) {
  Graph graph;
  relu(graph.input("x", {DType::f32, {count}}));
  return graph;
}

Graph product_of(std::int64_t size, Precision precision) {
  Graph graph;
  Linear op;
  op.out = size;
  op.bias = false;
  linear("fc", graph.input("x", {DType::f32, {size, size}}), op);
  return apply_precision(std::move(graph), precision);
}

// Sizes grow until a call takes so long that overheads do not matter.
constexpr double long_enough_s = 20e-3;

double copy_peak(const Device& device) {
  const std::int64_t largest = std::int64_t{1} << (device.queues() ? 27 : 24);
  for (std::int64_t count = std::int64_t{1} << 16;; count *= 8) {
    Ceiling copy(copy_of(std::min(count, largest)), device.backend);
    const double seconds = copy.seconds(device.queues() ? 8 : 1);
    if (count >= largest || seconds > long_enough_s) return copy.cost().bytes / seconds;
  }
}

double product_peak(const Device& device, Precision precision) {
  const std::int64_t largest = device.queues() ? 8192 : 2048;
  for (std::int64_t size = 128;; size *= 4) {
    Ceiling product(product_of(std::min(size, largest), precision), device.of(precision));
    const double seconds = product.seconds(device.queues() ? 8 : 1);
    if (size >= largest || seconds > long_enough_s) return product.cost().flops / seconds;
  }
}

}  // namespace

double Peaks::floor_s(const Cost& cost, Precision precision) const {
  return std::max(cost.bytes / copy_bytes_per_s, cost.flops / flops_per_s.at(precision));
}

Peaks measure_peaks(const Device& device, const std::vector<Precision>& precisions) {
  Peaks peaks{.copy_bytes_per_s = copy_peak(device), .flops_per_s = {}};
  for (const Precision precision : precisions)
    peaks.flops_per_s[precision] = product_peak(device, precision);
  return peaks;
}

}  // namespace warpstep::bench
