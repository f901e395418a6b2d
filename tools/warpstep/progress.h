// The progress of a run on stderr: a line that overwrites itself on a terminal, and one line per
// epoch. Also the number formats of messages.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "engine/run/trainer.h"
#include "tools/warpstep/throughput.h"

namespace warpstep::tools {

// What a run counts, speaks of and measures its speed in. Of images people read the accuracy, of
// tokens the perplexity: exp(mean loss).
enum class Items : std::uint8_t { images, tokens };
std::string_view name(Items items);  // "images", "tokens"
// "accuracy  48.2 %", "perplexity 6.65": with `width` characters of the number.
std::string quality_text(const Score& score, Items items, int width = 0);

class ProgressLine final : public TrainObserver {
 public:
  // total_steps: of the whole run, for the remaining time.
  ProgressLine(std::uint64_t epochs, std::uint64_t total_steps, Items items, Throughput throughput);
  ~ProgressLine() override;
  void begins_with_loaded_weights() { loaded_ = true; }  // else it calls them untrained
  // With --loss nll: a loss that the outputs of this model should not give is noted, once.
  void expects_log_probabilities_of(std::string model) { raw_loss_of_ = std::move(model); }

  void on_step(const StepRecord& record) override;
  void on_epoch(const EpochRecord& record) override;
  void on_evaluation(const EvaluationRecord& record) override;

  // The line after a step that ended now; empty where none is due. Its speed is that of the steps
  // alone, as in metrics.jsonl; the time that is left includes evaluations and checkpoints. Of a
  // terminal of so many columns (0: any number) it has what fits into one row.
  std::string line_at(const StepRecord& record, std::uint64_t now, std::size_t columns = 0);

 private:
  void clear();
  void note_no_log_probabilities(const StepRecord& record);

  std::uint64_t epochs_, total_steps_;
  Items items_;
  Throughput throughput_;
  bool terminal_;
  bool loaded_ = false;
  std::string raw_loss_of_;
  bool shown_ = false;
  std::uint64_t first_step_ = 0;
  StepTimes times_;         // of the steps after the first
  std::int64_t count_ = 0;  // images or tokens in them
  Score since_line_;        // of the steps since the last line
  Score last_line_;         // of the steps before it
  std::uint64_t begin_ns_ = 0, last_shown_ns_ = 0;
  std::uint64_t epoch_end_step_ = 0;
};

// "200 of 4,000 files": a line that overwrites itself, on a terminal only.
struct CountLine {
  std::string what;
  void operator()(std::uint64_t done, std::uint64_t all) const;
};

// Of train and eval.
inline constexpr const char* check_numerics_help =
    "wait for every call, read back its outputs and stop at the first number that is not finite, "
    "naming the call; slow, for debugging";
inline constexpr const char* slow_check =
    "--check-numerics: waits for every call and checks its outputs; this is slow";

std::string loss_text(double loss);      // four decimals, or four digits of a huge one
std::string percent(double share);       // "48.2 %"
std::string clock_text(double seconds);  // "1:05", "2:03:04"
double per_second(std::int64_t count, const StepTimes& times);

}  // namespace warpstep::tools
