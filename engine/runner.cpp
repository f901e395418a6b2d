#include "engine/runner.h"

#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include "engine/core/clock.h"
#include "engine/core/error.h"
#include "engine/core/record.h"

namespace warpstep {

CallObserver::~CallObserver() = default;
Runner::~Runner() = default;

void Runner::step() {
  const StepScope scope(backend_);
  run();
}

namespace {

class Eager final : public Runner {
 public:
  Eager(Program& program, CallObserver* observer)
      : Runner(program), program_(program), observer_(observer) {
    // Calls of a step are told by their index; an evaluation's are another program's.
    const bool trains = program.graph().report >= 0;
    for (const Call& call : program.calls())
      names_.emplace_back(fmt::format("{}/{}", name(call.phase), call.title),
                          trains ? record::Kind::call : record::Kind::range);
  }

  void run() override {
    std::int64_t begin = observer_ ? static_cast<std::int64_t>(now_ns()) : 0;
    for (std::size_t i = 0; i < program_.calls().size(); ++i) {
      const record::Span span(names_[i], i);
      program_.enqueue(i);
      if (!observer_) continue;
      program_.wait();
      const std::int64_t end = static_cast<std::int64_t>(now_ns());
      observer_->on_call(program_.calls()[i], begin, end);
      begin = end;
    }
  }

 private:
  Program& program_;
  CallObserver* observer_;
  std::vector<record::Name> names_;
};

class GraphReplay final : public Runner {
 public:
  explicit GraphReplay(Program& program)
      : Runner(program), program_(program), eager_(program, nullptr) {}

  void run() override {
    if (!std::exchange(warm_, true)) return eager_.run();
    const std::vector<const void*> slots(program_.inputs().begin(), program_.inputs().end());
    auto found = recordings_.find(slots);
    if (found == recordings_.end()) {
      static const record::Name name{"capture"};
      const record::Span span(name);
      found = recordings_
                  .emplace(slots,
                           program_.backend().record(program_.stream(), [this] { eager_.run(); }))
                  .first;
    }
    if (!found->second) return eager_.run();
    static const record::Name name{"launch"};
    const record::Span span(name);
    found->second->launch(program_.stream());
  }

 private:
  Program& program_;
  Eager eager_;
  bool warm_ = false;
  std::map<std::vector<const void*>, std::unique_ptr<Recording>> recordings_;
};

class Poisoning final : public Runner {
 public:
  explicit Poisoning(Program& program) : Runner(program), program_(program) {}

  void run() override {
    for (std::size_t i = 0; i < program_.calls().size(); ++i) {
      program_.enqueue(i);
      program_.wait();
      program_.poison_dead_buffers(i);
    }
  }

 private:
  Program& program_;
};

class Check final : public Runner {
 public:
  Check(Program& program, Program& reference)
      : Runner(program), program_(program), reference_(reference) {}

  void run() override {
    std::size_t theirs = 0;
    for (std::size_t ours = 0; ours < program_.calls().size(); ++ours) {
      const Node& mine = node(program_, ours);
      program_.enqueue(ours);
      if (is_move(mine.op)) continue;
      while (is_move(node(reference_, theirs).op)) reference_.enqueue(theirs++);
      reference_.enqueue(theirs);
      compare(mine, node(reference_, theirs), program_.calls()[ours]);
      ++theirs;
    }
  }

 private:
  static const Node& node(const Program& program, std::size_t call) {
    return program.graph().nodes[idx(program.calls()[call].node)];
  }

  // What a backend put between the calls of the step.
  static bool is_move(const AnyOp& op) {
    return std::holds_alternative<Reorder>(op) || std::holds_alternative<Upload>(op);
  }

  void compare(const Node& mine, const Node& theirs, const Call& call) {
    for (std::size_t i = 0; i < mine.out.size(); ++i) {
      const Value& value = program_.graph().value(mine.out[i]);
      if (!is_float(value.type.dtype) || !program_.address(mine.out[i])) continue;
      total_depth_ += call.cost.depth;
      const double difference =
          relative_difference(program_.read(mine.out[i]), reference_.read(theirs.out[i]));
      if (epsilon(value.type.dtype) > epsilon(coarsest_)) coarsest_ = value.type.dtype;
      const double limit = tolerance(coarsest_, total_depth_);
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
  DType coarsest_ = DType::f32;
};

}  // namespace

std::unique_ptr<Runner> eager_runner(Program& program, CallObserver* observer) {
  return std::make_unique<Eager>(program, observer);
}

std::unique_ptr<Runner> graph_runner(Program& program) {
  return std::make_unique<GraphReplay>(program);
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
