// The rows of a run that could not be decoded, in RUN/bad_samples.jsonl as they are met.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "engine/trainer.h"
#include "tools/warpstep/source.h"

namespace warpstep::tools {

class BadSampleLog final : public TrainObserver {
 public:
  BadSampleLog(std::filesystem::path file, const Source& training, const Source& test);
  ~BadSampleLog() override;  // what a run that failed had met last

  void on_step(const StepRecord&) override { write_new(); }
  void on_evaluation(const EvaluationRecord&) override { write_new(); }

 private:
  struct Split {
    std::string name;
    const data::Loader* loader = nullptr;
    std::size_t written = 0;
  };
  void write_new();

  std::filesystem::path file_;
  std::vector<Split> splits_;
  std::ofstream out_;  // opened with the first line
};

}  // namespace warpstep::tools
