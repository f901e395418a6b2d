// The rows of a run that could not be decoded, in RUN/bad_samples.jsonl as they are met.
#pragma once

#include <filesystem>
#include <string>

#include "engine/trainer.h"
#include "tools/warpstep/line_file.h"
#include "tools/warpstep/source.h"

namespace warpstep::tools {

class BadSampleLog final : public TrainObserver {
 public:
  BadSampleLog(std::filesystem::path file, const Source& training, const Source& test);
  ~BadSampleLog() override;  // what a run that failed had met last

  void on_step(const StepRecord& record) override;
  void on_evaluation(const EvaluationRecord& record) override;
  void sync() { file_.sync(); }               // before a checkpoint, as metrics.jsonl
  void close() { file_.close(); }             // at the run's end; errors are thrown
  std::size_t rows() const { return rows_; }  // of all steps and evaluations so far

 private:
  struct Split {
    std::string name;
    const data::Loader* loader = nullptr;
    std::size_t written = 0;
  };
  // Loaders run ahead: of what they met, that before `end`.
  void write(Split& split, Position end);

  LineFile file_;
  Split training_, test_;
  std::uint64_t step_ = 0;  // of the run
  std::size_t rows_ = 0;
};

}  // namespace warpstep::tools
