// The checkpoints in a run directory: their names, the newest one and the best one.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string_view>
#include <vector>

#include "engine/run/trainer.h"
#include "tools/warpstep/json.h"
#include "tools/warpstep/progress.h"

namespace warpstep::tools {

// The checkpoint with the best evaluation.
inline constexpr std::string_view best_name = "best.safetensors";
// Checkpoints after the one that a run resumes from are renamed: NAME.old, or NAME.old-2 and so on
// where that exists. This is the first name of them that is free.
std::filesystem::path free_aside(const std::filesystem::path& path);
std::string_view name_before_aside(std::string_view name);  // NAME of NAME.old-2; others unchanged

bool is_checkpoint_name(std::string_view name);  // "checkpoint-00000624.safetensors"
std::filesystem::path checkpoint_path(const std::filesystem::path& run, std::uint64_t step);
std::uint64_t step_of(const std::filesystem::path& checkpoint);  // by its name

// The checkpoints of steps, oldest first.
std::vector<std::filesystem::path> checkpoints(const std::filesystem::path& run);

// The newest checkpoint of a run directory, or the best one if there is no other. DataError if
// there is none.
std::filesystem::path newest_checkpoint(const std::filesystem::path& run);

// `which` is "last", "best", the name of a file in the run directory or a path. UsageError or
// DataError that lists the existing ones.
std::filesystem::path chosen_checkpoint(const std::filesystem::path& run, std::string_view which);

// Whether a file is a checkpoint of a run, with its options.
bool is_checkpoint(const std::filesystem::path& path);

// For what is written as safetensors. UsageError when a run's checkpoint is there.
void require_no_checkpoint(const std::filesystem::path& path);

// The scores of a checkpoint's weights on the test split.
struct Scored {
  std::uint64_t step = 0;
  std::uint64_t epoch = 0;
  double accuracy = 0;
  double loss = 0;

  // More accurate; as accurate with a lower loss; or as good in both and made earlier. Of text the
  // loss counts first.
  bool better_than(const Scored& other, Items items = Items::images) const;
  bool operator==(const Scored&) const = default;
};

// The checkpoint of a run with the best evaluation, kept as best.safetensors.
class BestCheckpoint {
 public:
  // Of a new run in this directory.
  explicit BestCheckpoint(std::filesystem::path run, Items items = Items::images)
      : run_(std::move(run)), items_(items) {}
  // Of a run that continues after `step`: finds its best checkpoint. One of a later step, or one
  // that cannot be read, is renamed to *.old with a message, as later checkpoints are. Then, or if
  // the run was killed before it was written, the best of the other evaluated checkpoints replaces
  // it, unless `keep` is false.
  static BestCheckpoint reopen(const std::filesystem::path& run, std::uint64_t step, bool keep,
                               Items items = Items::images);

  // `checkpoint` was just written at `progress`: it is kept if its weights were evaluated and are
  // the best so far. If the disk refuses, a message goes to stderr and the checkpoint waits: it
  // must not be removed, and the next offer tries again.
  void offer(const std::filesystem::path& checkpoint, const Progress& progress);

  const std::optional<Scored>& best() const { return best_; }
  const std::filesystem::path& waiting() const { return waiting_; }  // empty: none
  Json json() const;  // for summary.json; null without one

 private:
  void keep(const std::filesystem::path& checkpoint, const Scored& scored);

  std::filesystem::path run_;
  Items items_;
  std::optional<Scored> best_;
  std::filesystem::path waiting_;
};

}  // namespace warpstep::tools
