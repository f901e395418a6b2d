// The files of a run: config.json, tokenizer.json, metrics.jsonl, summary.json, bad_samples.jsonl,
// curves.png and its checkpoints (checkpoint_files.h).
#pragma once

#include <array>
#include <deque>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "engine/run/trainer.h"
#include "tools/curves.h"
#include "tools/warpstep/checkpoint_files.h"
#include "tools/warpstep/json.h"
#include "tools/warpstep/line_file.h"
#include "tools/warpstep/progress.h"

namespace warpstep::tools {

inline constexpr std::string_view lock_name = ".lock";  // in the directory, while a run holds it

// Held by the one process that trains into a run directory. The system releases the lock when its
// process ends in any way; a remaining file locks nothing. There is no lock if the file cannot be
// written or its file system has no locks.
class RunLock {
 public:
  RunLock() = default;  // of no directory
  // DataError names the holder: process, host and start time.
  explicit RunLock(const std::filesystem::path& run);
  ~RunLock();
  RunLock(RunLock&& other) noexcept;
  RunLock& operator=(RunLock&& other) noexcept;

 private:
  std::filesystem::path path_;
  int descriptor_ = -1;
};

// The run directory of a training without --out: a new runs/MODEL-DATE-TIME, which no other process
// gets, or with a number. If nothing is written into it, it goes with this object, and so does a
// `runs` that it made.
class DefaultOut {
 public:
  static constexpr const char* parent = "runs";
  explicit DefaultOut(const std::string& model);  // DataError if it cannot be made
  ~DefaultOut();
  DefaultOut(const DefaultOut&) = delete;
  DefaultOut& operator=(const DefaultOut&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  bool made_parent_ = false;
};

// Creates the directory first; if that fails, the lock is of no directory.
RunLock lock_new_run(const std::filesystem::path& run);

// The folders of `warpstep export` in RUN/trace, one for each format.
namespace export_folder {
inline constexpr std::string_view kineto = "kineto", perfetto = "perfetto",
                                  tensorboard = "tensorboard", xplane = "xplane", memory = "memory",
                                  tables = "tables";
inline constexpr std::array all{kineto, perfetto, tensorboard, xplane, memory, tables};
}  // namespace export_folder

// Removes a link in the place of a folder of a run, not what it leads to. False if it is none.
bool remove_link(const std::filesystem::path& path);

// In config.json and summary.json: which process wrote them, "1764377059123456789-4242" of its
// start there and its number. The times of files would not survive a copy of the run.
inline constexpr const char* started_key = "started";
// Of one of these files; empty where it is missing, broken, or of a version without it.
std::string started_in(const std::filesystem::path& file);

class RunDirectory final : public TrainObserver {
 public:
  // Creates the directory and checks that it can be written. It must be empty or not exist, unless
  // `overwrite`, which removes the files of an earlier run. DataError and UsageError name it.
  static RunDirectory create(const std::filesystem::path& path, bool overwrite);
  // The directory of an earlier run. Removes the metrics of steps after `progress`, which will run
  // again, and unfinished files; renames later checkpoints, with a message.
  static RunDirectory reopen(const std::filesystem::path& path, const Progress& progress);

  const std::filesystem::path& path() const { return path_; }
  void set_log_every(std::uint64_t steps) { log_every_ = steps; }
  void set_items(Items items) { items_ = items; }  // images until then
  // `log` also receives each record of metrics.jsonl, after it was written.
  void set_log(std::function<void(const Json&)> log) { log_ = std::move(log); }
  void write_config(const Json& config) const;
  // A copy of the tokenizer of the data, with which `sample` reads and writes text.
  void write_tokenizer(const std::string& text) const;
  void write_summary(const Json& summary);  // and closes metrics.jsonl
  void write_curves(const std::string& model, const std::string& data) const;
  // Before a checkpoint is written, so that a power cut cannot leave it without its lines.
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
  void append(Json line);  // with the wall time
  void collect(const Json& line);

  std::filesystem::path path_;
  std::string started_;
  LineFile metrics_;
  std::function<void(const Json&)> log_;
  std::uint64_t log_every_ = 10;
  Items items_ = Items::images;
  CurveData curves_;
  std::shared_ptr<const Json> last_epoch_;  // null before the first
};

}  // namespace warpstep::tools
