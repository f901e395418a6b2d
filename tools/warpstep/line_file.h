// Files with one JSON object per line. A run appends to them and reads them again when it resumes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

#include "engine/run/trainer.h"
#include "tools/warpstep/json.h"
#include "tools/warpstep/source.h"

namespace warpstep::tools {

// A file for appending lines. Errors are DataErrors with the path and the system's reason.
class LineFile {
 public:
  explicit LineFile(std::filesystem::path path) : path_(std::move(path)) {}  // opens nothing yet
  ~LineFile();
  LineFile(LineFile&& other) noexcept;
  LineFile& operator=(LineFile&&) = delete;

  void open();                         // creates the file if it does not exist
  void append(std::string_view line);  // and a newline; opens the file if necessary
  // Syncs to disk, so that no file written afterwards survives without these lines.
  void sync();
  void close();  // syncs and closes the descriptor; append() opens it again

 private:
  [[noreturn]] void fail_with(int error, const char* doing) const;

  std::filesystem::path path_;
  int descriptor_ = -1;
};

// Keeps only the lines for which `keep` returns true, in their order. Lines that are not a JSON
// object are dropped and counted on stderr: a killed run leaves one, and a user may have edited the
// file. `keep` may throw Json::exception for an object without the expected fields, which is
// dropped too.
void keep_lines(const std::filesystem::path& path, const std::function<bool(const Json&)>& keep);

// Samples that could not be decoded, in RUN/bad_samples.jsonl in the order of steps.

class BadSampleLog final : public TrainObserver {
 public:
  BadSampleLog(const std::filesystem::path& file, const Source& training, const Source& test);
  ~BadSampleLog() override;  // writes the last ones of a run that failed

  void on_step(const StepRecord& record) override;
  void on_evaluation(const EvaluationRecord& record) override;
  void sync() { file_.sync(); }               // before a checkpoint, as metrics.jsonl
  void close() { file_.close(); }             // at the end of the run; throws errors
  std::size_t rows() const { return rows_; }  // of all steps and evaluations of the run so far

 private:
  struct Split {
    std::string name;
    const data::Loader* loader = nullptr;
    std::size_t written = 0;
  };
  // Loaders run ahead: writes only those before `end`.
  void write(Split& split, Position end);

  LineFile file_;
  Split training_, test_;
  std::uint64_t step_ = 0;  // of the run
  std::size_t rows_ = 0;
};

}  // namespace warpstep::tools
