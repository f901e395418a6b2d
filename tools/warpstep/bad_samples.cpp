#include "tools/warpstep/bad_samples.h"

#include <fmt/format.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "engine/core/error.h"
#include "tools/warpstep/say.h"

namespace warpstep::tools {

BadSampleLog::BadSampleLog(std::filesystem::path file, const Source& training, const Source& test)
    : file_(std::move(file)),
      training_{"train", training.loader.get(), 0},
      test_{"test", test.loader.get(), 0} {}

BadSampleLog::~BadSampleLog() {
  if (std::uncaught_exceptions() == 0) return;
  try {
    constexpr Position all{std::numeric_limits<std::uint64_t>::max(), 0};
    write(training_, all);
    write(test_, all);
  } catch (const std::exception& error) {
    say("{}\n", error.what());
  }
}

void BadSampleLog::on_step(const StepRecord& record) {
  step_ = record.step;
  write(training_, {record.epoch - 1, record.step_in_epoch});
}

void BadSampleLog::on_evaluation(const EvaluationRecord& record) {
  step_ = record.step;
  write(test_, {1, 0});
  test_.written = test_.loader->bad_count();  // those that it met beyond the evaluation's end
}

void BadSampleLog::write(Split& split, Position end) {
  if (split.loader->bad_count() == split.written) return;
  for (const data::BadSample& sample : split.loader->bad_samples(split.written)) {
    const Position& at = sample.position;
    if (at.epoch > end.epoch || (at.epoch == end.epoch && at.step >= end.step)) break;
    const nlohmann::ordered_json line{{"run_step", step_},      {"split", split.name},
                                      {"sample", sample.index}, {"epoch", at.epoch + 1},
                                      {"step", at.step + 1},    {"row", sample.row},
                                      {"error", sample.message}};
    file_.append(line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
    ++split.written;
    ++rows_;
  }
}

}  // namespace warpstep::tools
