#include "engine/runner.h"

#include <chrono>
#include <cmath>
#include <limits>

#include "engine/core/error.h"

namespace warpstep {

CallObserver::~CallObserver() = default;
Runner::~Runner() = default;

namespace {

std::int64_t now_ns() {
  return std::chrono::steady_clock::now().time_since_epoch().count();
}

class Eager final : public Runner {
 public:
  Eager(Program& program, CallObserver* observer) : program_(program), observer_(observer) {}

  void step() override {
    if (!observer_) {
      for (std::size_t i = 0; i < program_.calls().size(); ++i) program_.enqueue(i);
      return;
    }
    std::int64_t begin = now_ns();
    for (std::size_t i = 0; i < program_.calls().size(); ++i) {
      program_.enqueue(i);
      program_.stream().wait();
      const std::int64_t end = now_ns();
      observer_->on_call(program_.calls()[i], begin, end);
      begin = end;
    }
  }

 private:
  Program& program_;
  CallObserver* observer_;
};

class Poisoning final : public Runner {
 public:
  explicit Poisoning(Program& program) : program_(program) {}

  void step() override {
    for (std::size_t i = 0; i < program_.calls().size(); ++i) {
      program_.enqueue(i);
      program_.stream().wait();
      program_.poison_dead_buffers(i);
    }
  }

 private:
  Program& program_;
};

class Check final : public Runner {
 public:
  Check(Program& program, Program& reference) : program_(program), reference_(reference) {}

  void step() override {
    std::size_t theirs = 0;
    for (std::size_t ours = 0; ours < program_.calls().size(); ++ours) {
      const Node& mine = node(program_, ours);
      program_.enqueue(ours);
      if (std::holds_alternative<Reorder>(mine.op)) continue;
      while (std::holds_alternative<Reorder>(node(reference_, theirs).op))
        reference_.enqueue(theirs++);
      reference_.enqueue(theirs);
      compare(mine, node(reference_, theirs), program_.calls()[ours]);
      ++theirs;
    }
  }

 private:
  static const Node& node(const Program& program, std::size_t call) {
    return program.graph().nodes[idx(program.calls()[call].node)];
  }

  void compare(const Node& mine, const Node& theirs, const Call& call) {
    for (std::size_t i = 0; i < mine.out.size(); ++i) {
      const Value& value = program_.graph().value(mine.out[i]);
      if (value.type.dtype != DType::f32 || !program_.address(mine.out[i])) continue;
      total_depth_ += call.cost.depth;
      const double difference =
          relative_difference(program_.read(mine.out[i]), reference_.read(theirs.out[i]));
      const double limit = tolerance(value.type.dtype, total_depth_);
      if (!(difference <= limit))
        fail<NumericError>(
            "{} ({} of {}): {} differs from {} by {:.2e} of its size, {:.2e} is sound", call.title,
            call.kernel->implementation(), program_.backend().name(), value.name,
            reference_.backend().name(), difference, limit);
    }
  }

  Program& program_;
  Program& reference_;
  double total_depth_ = 0;  // of everything that went into the values so far
};

}  // namespace

std::unique_ptr<Runner> eager_runner(Program& program, CallObserver* observer) {
  return std::make_unique<Eager>(program, observer);
}

std::unique_ptr<Runner> poisoning_runner(Program& program) {
  return std::make_unique<Poisoning>(program);
}

std::unique_ptr<Runner> check_runner(Program& program, Program& reference) {
  return std::make_unique<Check>(program, reference);
}

double tolerance(DType dtype, double depth) {
  return 4 * epsilon(dtype) * std::sqrt(std::max(1.0, depth));
}

double relative_difference(std::span<const float> a, std::span<const float> b) {
  double difference = 0, size = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (!std::isfinite(a[i])) return std::numeric_limits<double>::infinity();
    difference += (static_cast<double>(a[i]) - b[i]) * (static_cast<double>(a[i]) - b[i]);
    size += static_cast<double>(b[i]) * b[i];
  }
  if (difference == 0) return 0;
  return size == 0 ? std::numeric_limits<double>::infinity() : std::sqrt(difference / size);
}

}  // namespace warpstep
