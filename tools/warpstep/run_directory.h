// What a run writes: config.json, metrics.jsonl, summary.json, bad_samples.jsonl, curves.png and
// its checkpoints (best_checkpoint.h has the best one).
#pragma once

#include <deque>
#include <filesystem>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string_view>

#include "engine/run/trainer.h"
#include "tools/curves.h"
#include "tools/warpstep/checkpoint_files.h"
#include "tools/warpstep/line_file.h"

namespace warpstep::tools {

// One process at a time trains into a run directory.

inline constexpr std::string_view lock_name = ".lock";  // in the directory, while a run holds it

// The system releases the lock when its process ends, however that ends: a file that is left behind
// locks nothing. Where the file cannot be written, or its file system has no locks, there is none.
class RunLock {
 public:
  RunLock() = default;  // of no directory
  // Throws DataError that names who trains there: process, host, and since when.
  explicit RunLock(const std::filesystem::path& run);
  ~RunLock();
  RunLock(RunLock&& other) noexcept;
  RunLock& operator=(RunLock&& other) noexcept;

 private:
  std::filesystem::path path_;
  int descriptor_ = -1;
};

// Makes the directory first; where it cannot be made, it is of no directory.
RunLock lock_new_run(const std::filesystem::path& run);

using Json = nlohmann::ordered_json;

class RunDirectory final : public TrainObserver {
 public:
  // Makes the directory and proves that it can be written. A new run wants it empty or not there,
  // unless `overwrite`, which removes what an earlier run left. Throws DataError or UsageError that
  // name it.
  static RunDirectory create(const std::filesystem::path& path, bool overwrite);
  // An earlier run's directory. What its metrics say of steps after `progress` is forgotten: they
  // will come again. Later checkpoints are renamed, with a message; unfinished files are removed.
  static RunDirectory reopen(const std::filesystem::path& path, const Progress& progress);

  const std::filesystem::path& path() const { return path_; }
  void set_log_every(std::uint64_t steps) { log_every_ = steps; }
  void write_config(const Json& config) const;
  void write_summary(const Json& summary);  // and closes metrics.jsonl
  void write_curves(const std::string& model, const std::string& data) const;
  // Before a checkpoint is written, so that it does not outlive a power cut without its lines.
  void sync_metrics() { metrics_.sync(); }
  // Of metrics.jsonl; null before the first epoch has ended.
  const Json& last_epoch() const;
  // Removes all but the newest `keep` checkpoints and `besides`; 0 keeps all.
  void prune_checkpoints(std::uint64_t keep, const std::filesystem::path& besides = {}) const;

  void on_step(const StepRecord& record) override;
  void on_epoch(const EpochRecord& record) override;
  void on_evaluation(const EvaluationRecord& record) override;

 private:
  explicit RunDirectory(std::filesystem::path path);
  void append(const Json& line);
  void collect(const Json& line);

  std::filesystem::path path_;
  LineFile metrics_;
  std::uint64_t log_every_ = 10;
  CurveData curves_;
  std::shared_ptr<const Json> last_epoch_;  // null before the first
};

}  // namespace warpstep::tools
