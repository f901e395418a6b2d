#include "tools/warpstep/checkpoint_files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "engine/core/error.h"
#include "engine/core/file.h"
#include "engine/core/phase.h"
#include "engine/files/checkpoint.h"
#include "tools/warpstep/say.h"

namespace warpstep::tools {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view prefix = "checkpoint-", suffix = ".safetensors", set_aside = ".old";

// The step in a name that checkpoint_path() gives, and in no other: a file that a user put there
// must not count as the newest.
std::optional<std::uint64_t> step_in(std::string_view name) {
  if (!name.starts_with(prefix) || !name.ends_with(suffix) ||
      name.size() <= prefix.size() + suffix.size())
    return std::nullopt;
  const char* end = name.data() + name.size() - suffix.size();
  std::uint64_t step = 0;
  const auto [at, error] = std::from_chars(name.data() + prefix.size(), end, step);
  if (error != std::errc() || at != end || checkpoint_path({}, step) != name) return std::nullopt;
  return step;
}

}  // namespace

bool is_checkpoint_name(std::string_view name) {
  return step_in(name).has_value();
}

fs::path checkpoint_path(const fs::path& run, std::uint64_t step) {
  return run / fmt::format("{}{:08}{}", prefix, step, suffix);
}

std::uint64_t step_of(const fs::path& checkpoint) {
  return step_in(checkpoint.filename().string()).value_or(0);
}

std::vector<fs::path> checkpoints(const fs::path& run) {
  std::vector<std::pair<std::uint64_t, fs::path>> found;
  for (const auto& entry : fs::directory_iterator(run))
    if (const auto step = step_in(entry.path().filename().string()))
      found.emplace_back(*step, entry.path());
  std::ranges::sort(found);
  std::vector<fs::path> paths;
  for (auto& [step, path] : found) paths.push_back(std::move(path));
  return paths;
}

fs::path free_aside(const fs::path& path) {
  const std::string name = path.string() + std::string(set_aside);
  fs::path aside = name;
  for (int number = 2; fs::exists(fs::symlink_status(aside)); ++number)
    aside = fmt::format("{}-{}", name, number);
  return aside;
}

std::string_view name_before_aside(std::string_view name) {
  const std::size_t end = name.rfind(set_aside);
  if (end == name.npos) return name;
  const std::string_view rest = name.substr(end + set_aside.size());
  const bool is_number =
      rest.size() > 1 && rest[0] == '-' && rest.find_first_not_of("0123456789", 1) == rest.npos;
  return rest.empty() || is_number ? name.substr(0, end) : name;
}

fs::path newest_checkpoint(const fs::path& run) {
  if (!fs::exists(run))
    fail<DataError>("{}: there is no such run directory or checkpoint{}", run.string(),
                    nearest_folder(run));
  if (!fs::is_directory(run))
    fail<DataError>("{}: is neither a run directory nor a checkpoint", run.string());
  const std::vector<fs::path> all = checkpoints(run);
  if (!all.empty()) return all.back();
  if (fs::exists(run / best_name)) return run / best_name;
  if (!fs::exists(run / "config.json"))
    fail<DataError>("{}: is not a run directory: it has no checkpoint and no config.json",
                    run.string());
  const fs::path whole = fs::weakly_canonical(run), ranks = whole.parent_path();
  if (ranks.filename() == "ranks" && fs::exists(ranks.parent_path() / "config.json"))
    fail<DataError>("{}: is what one rank of a job wrote; the job's checkpoints are in {}",
                    run.string(), ranks.parent_path().string());
  fail<DataError>(
      "{}: no {}*{} in it; restart a run that was stopped before it saved one with --overwrite, "
      "and save earlier with --checkpoint-every N",
      run.string(), prefix, suffix);
}

fs::path chosen_checkpoint(const fs::path& run, std::string_view which) {
  if (which == "last") return newest_checkpoint(run);
  if (!fs::is_directory(run))
    fail<UsageError>("--checkpoint {}: needs a run directory, but {} is not one", which,
                     run.string());
  if (which == "best") {
    if (fs::exists(run / best_name)) return run / best_name;
    fail<DataError>(
        "{}: no {} in it; a run writes it at its first evaluation after training began, unless "
        "--no-keep-best; --checkpoint last uses the newest checkpoint",
        run.string(), best_name);
  }
  for (const fs::path& path : {run / which, fs::path(which)})
    if (fs::is_regular_file(path)) return path;
  fail<DataError>(
      "--checkpoint {}: there is no such file, nor one of that name in {}; give best, last or a "
      "file",
      which, run.string());
}

// The best checkpoint.

bool is_checkpoint(const fs::path& path) try {
  return fs::exists(path) && SafetensorsFile(path).metadata().contains("warpstep.config");
} catch (const Error&) {
  return false;
}

namespace {

Scored scored_of(const EvaluationRecord& evaluation) {
  return {evaluation.step, evaluation.epoch, evaluation.score.accuracy(), evaluation.score.loss()};
}

// The step of a checkpoint, and its score if its own weights were evaluated. DataError if it cannot
// be read.
std::pair<std::uint64_t, std::optional<Scored>> read_score(const fs::path& checkpoint) {
  const Progress progress = read_progress(checkpoint);
  if (!progress.evaluation || progress.evaluation->step != progress.step)
    return {progress.step, std::nullopt};
  return {progress.step, scored_of(*progress.evaluation)};
}

void copy_bytes(const fs::path& from, const fs::path& to) {
  const InputFile source(from);
  AtomicFile copy(to, source.bytes());
  std::vector<std::byte> part(std::size_t{16} << 20);
  for (std::uint64_t at = 0; at < source.bytes(); at += part.size()) {
    part.resize(std::min<std::uint64_t>(part.size(), source.bytes() - at));
    source.read(at, part);
    copy.write(part);
  }
  copy.commit();
}

// A hard link that replaces `to` atomically and needs no space on the disk. On a file system
// without links the bytes are copied.
void link_or_copy(const fs::path& from, const fs::path& to) {
  const fs::path aside =
      to.parent_path() / fmt::format(".{}.tmp-{}-0", to.filename().string(), ::getpid());
  std::error_code error;
  fs::remove(aside, error);
  fs::create_hard_link(from, aside, error);
  if (error) return copy_bytes(from, to);
  {
    static const record::Name name{"remove"};  // the file that `to` was until now
    const record::PhasePart time(name);
    std::error_code ignored;
    fs::rename(aside, to, error);
    fs::remove(aside, ignored);  // it failed, or both were names of one file
  }
  if (error) fail<DataError>("{}: cannot rename into place: {}", to.string(), error.message());
  sync_name(to);
}

void rename_aside(const fs::path& path, std::string_view why) {
  const fs::path aside = free_aside(path);
  fs::rename(path, aside);
  say("{}: renamed to {}\n", why, aside.filename().string());
}

// The score of best.safetensors. If it no longer belongs to the run, it is renamed and has none.
std::optional<Scored> score_or_rename(const fs::path& best, std::uint64_t step) {
  try {
    const auto [made_at, scored] = read_score(best);
    if (made_at <= step && scored) return scored;
    rename_aside(best, fmt::format("{} is {}", best.string(),
                                   scored ? "after the checkpoint resumed from"
                                          : "of weights that were not evaluated"));
  } catch (const DataError& error) {
    rename_aside(best, error.what());
  }
  return std::nullopt;
}

}  // namespace

void require_no_checkpoint(const fs::path& path) {
  if (is_checkpoint(path))
    fail<UsageError>("{}: is a checkpoint of a run, which would be replaced; choose another name",
                     path.string());
}

bool Scored::better_than(const Scored& other, Items items) const {
  if (items == Items::tokens)
    return std::tuple(loss, -accuracy, step) < std::tuple(other.loss, -other.accuracy, other.step);
  return std::tuple(-accuracy, loss, step) < std::tuple(-other.accuracy, other.loss, other.step);
}

BestCheckpoint BestCheckpoint::reopen(const fs::path& run, std::uint64_t step, bool keep,
                                      Items items) {
  BestCheckpoint result(run, items);
  if (fs::exists(run / best_name)) result.best_ = score_or_rename(run / best_name, step);
  for (const fs::path& checkpoint : checkpoints(run)) {
    if (!keep) break;
    try {
      const auto [made_at, scored] = read_score(checkpoint);
      if (made_at <= step && made_at > 0 && scored &&
          (!result.best_ || scored->better_than(*result.best_, items)))
        result.keep(checkpoint, *scored);
    } catch (const DataError&) {
      // An older checkpoint that is broken is none.
    }
  }
  return result;
}

void BestCheckpoint::offer(const fs::path& checkpoint, const Progress& progress) {
  if (!waiting_.empty()) keep(waiting_, *best_);
  if (!progress.evaluation || progress.evaluation->step != progress.step || progress.step == 0)
    return;
  const Scored scored = scored_of(*progress.evaluation);
  if (!best_ || scored.better_than(*best_, items_)) keep(checkpoint, scored);
}

// The checkpoint itself is intact, so a disk that refuses the link does not end the run.
void BestCheckpoint::keep(const fs::path& checkpoint, const Scored& scored) {
  best_ = scored;
  try {
    link_or_copy(checkpoint, run_ / best_name);
    waiting_.clear();
  } catch (const DataError& error) {
    if (waiting_ != checkpoint)
      say("{}; {} is kept, and tried again with each checkpoint\n", error.what(),
          checkpoint.filename().string());
    waiting_ = checkpoint;
  }
}

Json BestCheckpoint::json() const {
  if (!best_) return {};
  return {{"checkpoint", waiting_.empty() ? std::string(best_name) : waiting_.filename().string()},
          {"step", best_->step},
          {"epoch", best_->epoch},
          {"accuracy", best_->accuracy},
          {"loss", best_->loss}};
}

}  // namespace warpstep::tools
