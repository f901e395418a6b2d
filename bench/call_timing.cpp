#include "bench/call_timing.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstring>

#include "engine/core/error.h"
#include "engine/passes/compile.h"
#include "engine/run/runner.h"
#include "models/build.h"

namespace warpstep::bench {
namespace {

struct OtherSize {
  std::string_view model;
  std::int64_t image, batch;
};
// Besides or instead of a model's own image size with the batch of default_batch().
constexpr std::array<OtherSize, 4> other_sizes{{
    {"resnet18", 32, 128},
    {"resnet34", 32, 128},
    {"resnet50", 32, 128},
    {"toynet", 256, 32},
}};

struct TextSize {
  std::string_view model, settings;
  std::int64_t sequence, batch;
};
// nanoGPT's recipes for a CPU and, with a smaller batch, for a GPU; and GPT-2 with a CPU's batch.
constexpr std::array<TextSize, 3> text_sizes{{
    {"gpt2-nano", "vocabulary=65", 64, 12},
    {"gpt2-nano", "layers=6,heads=6,width=384,context=256,vocabulary=65", 256, 8},
    {"gpt2", "", 256, 1},
}};

std::int64_t default_batch(std::int64_t image) {
  return image <= 64 ? 128 : 8;
}

// Small enough that calls which are timed again and again do not change the network.
constexpr double learning_rate = 1e-6;

models::BuildOptions build_options(const ModelSize& size) {
  if (!size.model->is_text())
    return {.batch = size.batch, .image = {size.image, size.image, size.model->image[2]}};
  return {.batch = size.batch,
          .settings = models::resolve_settings(*size.model, size.settings),
          .sequence = size.sequence};
}

GoldenBatch batch_of(const ModelSize& size, std::uint64_t seed) {
  if (!size.model->is_text())
    return golden_batch(seed, 0, size.batch, {size.image, size.image, size.model->image[2]});
  const std::int64_t vocabulary = build_options(size).settings.whole("vocabulary");
  return golden_text(seed, 0, size.batch, size.sequence,
                     vocabulary > 0 ? vocabulary : models::gpt2_vocabulary);
}

Graph training_step(const ModelSize& size, const Backend& backend, Precision precision) {
  StepOptions options{.schedule = {.peak = learning_rate}, .precision = precision};
  if (size.model->is_text()) {
    options.optimizer = {.kind = Optimizer::Kind::adamw, .decays_vectors = false};
    options.update.clip_norm = 1;
  }
  return compile_step(models::build(*size.model, build_options(size)),
                      options_for(backend, options));
}

// The inputs that a call overwrites: without them its second run would compute something else.
class Overwritten {
 public:
  Overwritten(const Graph& graph, const Call& call) {
    const std::vector<int>& ids = graph.nodes[idx(call.node)].in;
    for (std::size_t i = 0; i < ids.size(); ++i) {
      if (std::find(call.out.begin(), call.out.end(), call.in[i]) == call.out.end()) continue;
      const auto* begin = static_cast<const std::byte*>(call.in[i]);
      if (begin) saved_.push_back({call.in[i], {begin, begin + graph.value(ids[i]).layout.bytes}});
    }
  }
  void restore() const {
    for (const Saved& saved : saved_)
      std::memcpy(saved.address, saved.bytes.data(), saved.bytes.size());
  }

 private:
  struct Saved {
    void* address;
    std::vector<std::byte> bytes;
  };
  std::vector<Saved> saved_;
};

}  // namespace

std::string ModelSize::name() const {
  return fmt::format("{}@{}", model->name, model->is_text() ? sequence : image);
}

std::vector<ModelSize> zoo_sizes() {
  std::vector<ModelSize> sizes;
  for (const models::Model& model : models::zoo()) {
    for (const TextSize& text : text_sizes)
      if (text.model == model.name)
        sizes.push_back({.model = &model,
                         .batch = text.batch,
                         .sequence = text.sequence,
                         .settings = models::assignments(text.settings)});
    if (model.is_text()) continue;
    const std::int64_t own = model.image[0];
    bool covers_own = false;
    for (const OtherSize& other : other_sizes)
      if (other.model == model.name) {
        sizes.push_back({&model, other.image, other.batch});
        covers_own = covers_own || other.image == own;
      }
    if (!covers_own) sizes.push_back({&model, own, default_batch(own)});
  }
  return sizes;
}

TimedStep::TimedStep(const ModelSize& size, const std::shared_ptr<Backend>& backend,
                     Precision precision)
    : program_(training_step(size, *backend, precision), backend), caches_(*backend) {
  constexpr std::uint64_t seed = 1;
  program_.store().initialize(seed);
  batch_ = batch_of(size, seed);
  std::vector<const void*> slots;
  for (const std::span<const std::byte> input : batch_.inputs()) slots.push_back(input.data());
  program_.set_inputs(slots);
  // Pages, caches of libraries, moments and running statistics.
  const std::unique_ptr<Runner> runner = eager_runner(program_);
  for (int step = 0; step < 2; ++step) runner->step();
  if (!std::isfinite(program_.loss()))
    fail<NumericError>("{}: the loss is not finite, so the times would mean nothing", size.name());
}

double TimedStep::median_s(const Call& call, int repetitions) {
  const Overwritten overwritten(program_.graph(), call);
  std::vector<double> seconds;
  for (int r = 0; r < repetitions; ++r) {
    overwritten.restore();
    caches_.flush();
    const auto begin = std::chrono::steady_clock::now();
    call.kernel->enqueue(program_.stream(), call.buffers());
    program_.wait();
    seconds.push_back(
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  const auto middle = seconds.begin() + static_cast<std::ptrdiff_t>(seconds.size() / 2);
  std::nth_element(seconds.begin(), middle, seconds.end());
  return *middle;
}

std::vector<TimedCall> TimedStep::time_calls(int repetitions) {
  std::vector<TimedCall> calls;
  for (const Call& call : program_.calls())
    calls.push_back({.title = call.title,
                     .phase = std::string(name(call.phase)),
                     .implementation = call.kernel->implementation(),
                     .cost = call.cost,
                     .seconds = 1e30});
  time_again(calls, repetitions, [](const TimedCall&) { return true; });
  return calls;
}

void TimedStep::time_again(std::vector<TimedCall>& calls, int repetitions,
                           const std::function<bool(const TimedCall&)>& again) {
  const StepScope scope(program_.backend());
  for (std::size_t i = 0; i < calls.size(); ++i) {
    if (again(calls[i]))
      calls[i].seconds = std::min(calls[i].seconds, median_s(program_.calls()[i], repetitions));
    else
      program_.enqueue(i);
  }
}

}  // namespace warpstep::bench
