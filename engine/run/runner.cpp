#include "engine/run/runner.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "engine/core/clock.h"
#include "engine/core/error.h"
#include "engine/core/record.h"
#include "engine/graph/model_line.h"
#include "engine/passes/precision.h"

namespace warpstep {

CallObserver::~CallObserver() = default;
Runner::~Runner() = default;

void Runner::step() {
  program_.require_ready(program_.inputs());
  const StepScope scope(program_.backend());
  run();
}

void Runner::steps(std::span<const StepVariant> variants) {
  for (const StepVariant& variant : variants) program_.require_ready(variant.slots);
  const StepScope scope(program_.backend());
  run_all(variants);
}

void Runner::run_all(std::span<const StepVariant> variants) {
  for (const StepVariant& variant : variants) {
    program_.set_variant(variant);
    run();
  }
}

NumberKinds number_kinds(std::span<const float> values) {
  NumberKinds kinds{.count = static_cast<std::int64_t>(values.size())};
  for (const float value : values) {
    if (std::isnan(value))
      ++kinds.nan;
    else if (std::isinf(value))
      ++(value > 0 ? kinds.plus_infinity : kinds.minus_infinity);
    else
      kinds.largest = std::max(kinds.largest, std::abs(value));
  }
  return kinds;
}

std::string text(const NumberKinds& kinds) {
  return fmt::format(
      "{} NaN, {} +inf and {} -inf of {} elements, the largest finite magnitude is {:.3g}",
      kinds.nan, kinds.plus_infinity, kinds.minus_infinity, kinds.count, kinds.largest);
}

namespace {

class Eager final : public Runner {
 public:
  Eager(Program& program, CallObserver* observer) : Runner(program), observer_(observer) {
    // The calls of a training step are recorded with their index; an evaluation has other calls,
    // but as many of them.
    const bool trains = program.graph().report >= 0;
    for (const Call& call : program.calls())
      names_.emplace_back(fmt::format("{}/{}", name(call.phase), call.title),
                          trains ? record::Kind::call : record::Kind::range, true);
  }

  void run() override {
    std::int64_t begin = observer_ ? static_cast<std::int64_t>(now_ns()) : 0;
    for (std::size_t i = 0; i < program_.calls().size(); ++i) {
      if (!program_.runs(i)) continue;
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
  CallObserver* observer_;
  std::vector<record::Name> names_;
};

class GraphReplay final : public Runner {
 public:
  explicit GraphReplay(Program& program) : Runner(program), eager_(program, nullptr) {}

  void run() override { run_all(std::array{program_.variant()}); }

  void run_all(std::span<const StepVariant> variants) override {
    // A kernel's first launch may load code, which a capture does not allow.
    bool is_warm = true;
    for (const StepVariant& variant : variants)
      if (warm_.emplace(variant.measures, variant.accumulates).second) is_warm = false;
    if (!is_warm) return run_eagerly(variants);
    std::vector<StepVariant> key(variants.begin(), variants.end());
    auto found = recordings_.find(key);
    if (found == recordings_.end()) {
      if (!records_ || recordings_.size() == most_recordings) return run_eagerly(variants);
      static const record::Name name{"capture"};
      const record::Span span(name);
      std::unique_ptr<Recording> made =
          program_.backend().record(program_.stream(), [&] { run_eagerly(variants); });
      records_ = made != nullptr;
      if (!records_) return run_eagerly(variants);
      found = recordings_.emplace(std::move(key), std::move(made)).first;
    }
    program_.set_variant(variants.back());
    static const record::Name name{"launch"};
    const record::Span span(name);
    found->second->launch(program_.stream());
  }

 private:
  void run_eagerly(std::span<const StepVariant> variants) {
    for (const StepVariant& variant : variants) {
      program_.set_variant(variant);
      eager_.run();
    }
  }

  Eager eager_;
  bool records_ = true;                   // until the backend makes no recording; the others stay
  std::set<std::pair<bool, bool>> warm_;  // which calls a step had: measures, accumulates
  std::map<std::vector<StepVariant>, std::unique_ptr<Recording>> recordings_;
};

// The outputs, and the inputs that the call changes.
std::vector<int> written_by(const Node& node, const Graph& graph) {
  std::vector<int> written = node.out;
  for (const int id : node.in)
    if (changes(node.op, graph.value(id).role)) written.push_back(id);
  return written;
}

// Values that the loss scale multiplies: the gradient of the loss and all values computed from it,
// up to the updates, which divide by it.
std::vector<bool> scaled_values(const Graph& graph) {
  std::vector<bool> scaled(graph.values.size());
  for (const Node& node : graph.nodes) {
    if (is_update(node.op)) continue;
    bool depends = is_scaled(node.op);
    for (const int id : node.in) depends = depends || scaled[idx(id)];
    if (!depends) continue;
    for (const int id : written_by(node, graph)) scaled[idx(id)] = id != graph.loss;
  }
  return scaled;
}

// Whether the op treats each parameter by itself: of its many inputs only those of one parameter
// matter for what becomes of it.
bool is_of_parameters(const AnyOp& op) {
  return kind(op) == OpKind::update || kind(op) == OpKind::state;
}

std::string after_comma(const std::string& text) {
  return text.empty() ? text : ", " + text;
}

class Numerics final : public Runner {
 public:
  explicit Numerics(Program& program)
      : Runner(program),
        graph_(program.graph()),
        scaled_(scaled_values(graph_)),
        kinds_(graph_.values.size()) {}

  void run() override {
    begin();
    for (std::size_t i = 0; i < program_.calls().size(); ++i) {
      program_.enqueue(i);
      program_.wait();
      const Call& call = program_.calls()[i];
      std::vector<std::pair<int, NumberKinds>> found;
      for (const int id : written_by(graph_.nodes[idx(call.node)], graph_)) {
        if (!is_checked(id)) continue;
        found.emplace_back(id, number_kinds(program_.read(id)));
        if (!found.back().second.finite() && !may_overflow(id))
          blame(call, id, found.back().second);
      }
      for (const auto& [id, kinds] : found) kinds_of(id) = kinds;
    }
  }

 private:
  // The inputs of the step must be finite, too; no call checks them.
  void begin() {
    const std::int64_t step = program_.store().step_state().step;
    const bool first = std::exchange(last_step_, step) != step || batch_ == 0;
    if (first) batch_ = 0;
    ++batch_;
    for (const int id : graph_.inputs) require_given(id, "input");
    if (trains() ? std::exchange(begun_, true) : !first) return;
    for (const Parameter& parameter : graph_.parameters) {
      require_given(parameter.value, "parameter");
      if (parameter.copy >= 0) require_given(parameter.copy, "the 16-bit");
      for (const int id : parameter.moments) require_given(id, "the optimiser's");
      if (parameter.average >= 0) require_given(parameter.average, "the average");
      if (const int sum = parameter.accumulator; sum >= 0 && is_checked(sum))
        kinds_of(sum) = number_kinds(program_.read(sum));  // with fp16 it may have overflowed
    }
    for (const Buffer& buffer : graph_.buffers) require_given(buffer.value, "buffer");
  }

  void require_given(int id, std::string_view what) {
    if (!is_checked(id)) return;
    const NumberKinds& kinds = kinds_of(id) = number_kinds(program_.read(id));
    if (!kinds.finite())
      fail<NumericError>(
          "{}: {} {} holds {} before the first call: this is an input of the step, not a result",
          moment(1), what, graph_.value(id).name, text(kinds));
  }

  [[noreturn]] void blame(const Call& call, int id, const NumberKinds& kinds) {
    const Node& node = graph_.nodes[idx(call.node)];
    fail<NumericError>("{}: {} ({}{}; {} of {}) wrote {}: {}; {}", moment(0), call.title,
                       name(call.phase), after_comma(model_line(node)),
                       call.kernel->implementation(), program_.backend().name(),
                       graph_.value(id).name, text(kinds), origin(node, graph_.value(id)));
  }

  // Whether the call produced the numbers in `bad` or received them.
  std::string origin(const Node& node, const Value& bad) {
    std::string sizes;
    bool knows_all = true;
    for (const int id : node.in) {
      const Value& value = graph_.value(id);
      if (!is_checked(id) || (is_of_parameters(node.op) && value.owner != bad.owner)) continue;
      const NumberKinds& kinds = kinds_of(id);
      if (kinds.count == 0) {
        knows_all = false;
        continue;
      }
      if (!kinds.finite())
        return fmt::format("the call received them: its input {} had {}", value.name, text(kinds));
      sizes +=
          fmt::format("{}{} (to {:.3g})", sizes.empty() ? "" : ", ", value.name, kinds.largest);
    }
    if (!knows_all)
      return fmt::format("those of its inputs that were checked were finite: {}", sizes);
    if (sizes.empty()) return "the call produced them: it reads no floating-point numbers";
    const std::string rate =
        is_update(node.op)
            ? fmt::format("; learning rate {}", program_.store().step_state().learning_rate)
            : "";
    return fmt::format("its inputs were all finite, so the call produced them: {}{}", sizes, rate);
  }

  // "step 7", or "batch 2 of the evaluation after step 12"; the clock, a step's first call,
  // advances the step.
  std::string moment(std::int64_t until_clock) const {
    const std::int64_t step = program_.store().step_state().step;
    if (trains()) return fmt::format("step {}", step + until_clock);
    return fmt::format("batch {} of the evaluation{}", batch_,
                       step > 0 ? fmt::format(" after step {}", step) : "");
  }

  bool may_overflow(int id) const {
    return scaled_[idx(id)] && program_.store().step_state().loss_scale >= least_loss_scale;
  }
  bool trains() const { return graph_.state >= 0; }
  bool is_checked(int id) const {
    const Value& value = graph_.value(id);
    return is_float(value.type.dtype) && value.role != Role::mask && program_.address(id);
  }
  int storage(int id) const { return program_.plan().storage_of_value[idx(id)]; }
  NumberKinds& kinds_of(int id) { return kinds_[idx(storage(id))]; }

  const Graph& graph_;
  std::vector<bool> scaled_;
  std::vector<NumberKinds> kinds_;  // of each value when it was last checked
  std::int64_t last_step_ = 0;
  std::int64_t batch_ = 0;  // of this evaluation, from 1
  bool begun_ = false;
};

}  // namespace

std::unique_ptr<Runner> eager_runner(Program& program, CallObserver* observer) {
  return std::make_unique<Eager>(program, observer);
}

std::unique_ptr<Runner> graph_runner(Program& program) {
  return std::make_unique<GraphReplay>(program);
}

std::unique_ptr<Runner> numerics_runner(Program& program) {
  return std::make_unique<Numerics>(program);
}

}  // namespace warpstep
