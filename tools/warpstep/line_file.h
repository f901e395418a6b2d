// Files of a JSON object a line, which a run adds to as it goes and reads again when it goes on.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "engine/run/trainer.h"
#include "tools/warpstep/source.h"

namespace warpstep::tools {

// A file that lines are added to. Errors are DataErrors with the path and the system's reason.
class LineFile {
 public:
  explicit LineFile(std::filesystem::path path) : path_(std::move(path)) {}  // opens nothing yet
  ~LineFile();
  LineFile(LineFile&& other) noexcept;
  LineFile& operator=(LineFile&&) = delete;

  void open();                         // makes the file where there is none
  void append(std::string_view line);  // and its end; opens the file if need be
  // Brings all to the disk: what is written elsewhere afterwards does not outlive it.
  void sync();
  void close();  // the same, and the descriptor is given back; append() opens it again

 private:
  [[noreturn]] void fail_with(int error, const char* doing) const;

  std::filesystem::path path_;
  int descriptor_ = -1;
};

// Keeps those lines of the file that `keep` says yes to, in their order, and nothing else. Lines
// that are no JSON object are dropped with a note of how many on stderr: a killed run leaves one,
// and anybody may have edited the file. `keep` may throw Json::exception of an object that lacks
// what it looks for: that is such a line too.
void keep_lines(const std::filesystem::path& path,
                const std::function<bool(const nlohmann::ordered_json&)>& keep);

// The rows of a run that could not be decoded, in RUN/bad_samples.jsonl as they are met.

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
