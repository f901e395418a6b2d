// Training steps of the zoo's models, and the time of each of their calls by itself.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bench/cpu_roofs.h"
#include "engine/run/program.h"
#include "models/zoo.h"
#include "tests/golden_batch.h"

namespace warpstep::bench {

struct ModelSize {
  const models::Model* model = nullptr;
  std::int64_t image = 0, batch = 0;    // image: height and width
  std::int64_t sequence = 0;            // of a model of text: tokens
  std::vector<std::string> settings{};  // of a model of text: "layers=6"

  std::string name() const;  // "resnet50@224", "gpt2@256"
};
// Every model of images of the zoo at its own image size; the residual networks also at 32x32. And
// the sizes of GPT-2 that are trained on CPUs.
std::vector<ModelSize> zoo_sizes();

struct TimedCall {
  std::string title, phase, implementation;
  Cost cost;
  double seconds = 0;
};

// A training step on the cpu backend, as `warpstep train` runs it on batches that its loader has
// prepared: with Adam, of text with AdamW and clipped gradients. Parameters are initialised, the
// batch is that of the goldens.
class TimedStep {
 public:
  TimedStep(const ModelSize& size, const std::shared_ptr<Backend>& backend, Precision precision);

  // Median seconds of each call, by itself: its inputs are those that the calls before it have
  // computed, its second-level caches are cold.
  std::vector<TimedCall> time_calls(int repetitions);
  // Times those for which `again` returns true once more, and keeps the better median: other
  // programs can slow a pass.
  void time_again(std::vector<TimedCall>& calls, int repetitions,
                  const std::function<bool(const TimedCall&)>& again);

 private:
  double median_s(const Call& call, int repetitions);

  Program program_;
  GoldenBatch batch_;
  ColdCaches caches_;
};

}  // namespace warpstep::bench
