// TensorBoard's event files in RUN/tensorboard, written while a run trains (--tensorboard):
//   tensorboard/          the records of metrics.jsonl: train/loss, validation/accuracy, ...
//   tensorboard/system/   samples of the machine: system/process_cpu_percent, ...
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "profiler/sources/sampler_nvml.h"
#include "tools/warpstep/json.h"

namespace warpstep::tools {

// Appends whole records, each with one write. An error costs only curves and never the run: the
// first one becomes a message, a record that was cut off is removed, and the next one is tried
// again.
class EventFile {
 public:
  explicit EventFile(std::filesystem::path path);  // creates the file and its folder
  ~EventFile();
  EventFile(const EventFile&) = delete;
  EventFile& operator=(const EventFile&) = delete;

  void append(std::string_view record);
  std::uint64_t lost() const { return lost_; }  // records that could not be written

 private:
  void failed(int error, const char* doing);

  std::filesystem::path path_;
  int descriptor_ = -1;
  std::uint64_t bytes_ = 0;  // of whole records
  std::uint64_t lost_ = 0;
};

// A new file in `folder` whose name is after those of all others: a resumed run adds one.
std::filesystem::path next_event_file(const std::filesystem::path& folder, std::uint64_t seconds);
// Removes event files from RUN/tensorboard, and its folders if nothing else is in them.
void remove_event_files(const std::filesystem::path& run);

struct TensorBoardOptions {
  std::filesystem::path run;
  std::uint64_t steps_done = 0;  // above 0 in a resumed run
  std::vector<profiler::GpuPlace> gpus;
  // Of a job's rank 0. The others have the same records and often the same machine: their files
  // have only their process and their GPUs.
  bool leads = true;
};

class TensorBoard {
 public:
  explicit TensorBoard(const TensorBoardOptions& options);
  ~TensorBoard();  // with a last sample of the machine
  TensorBoard(const TensorBoard&) = delete;
  TensorBoard& operator=(const TensorBoard&) = delete;

  void add(const Json& record);  // of metrics.jsonl

 private:
  struct System;

  std::optional<EventFile> metrics_;
  std::unique_ptr<System> system_;  // null if the machine cannot be sampled
};

}  // namespace warpstep::tools
