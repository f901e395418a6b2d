#include "tools/warpstep/run_directory.h"

#include <fcntl.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>
#include <ctime>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <tuple>
#include <utility>

#include "data/io/file.h"
#include "engine/core/error.h"
#include "engine/core/file.h"
#include "engine/core/host_name.h"
#include "engine/core/json_text.h"
#include "engine/core/record.h"
#include "engine/core/text.h"
#include "tools/warpstep/say.h"
#include "tools/warpstep/tensorboard.h"

namespace warpstep::tools {

namespace fs = std::filesystem;

// The lock.

namespace {

std::string this_process() {
  return fmt::format("process {} on {}, since {:%Y-%m-%d %H:%M:%S} UTC", ::getpid(), host_name(),
                     fmt::gmtime(std::time(nullptr)));
}

std::string content(int descriptor) {
  std::array<char, 512> text{};
  const ssize_t bytes = ::pread(descriptor, text.data(), text.size(), 0);
  const std::string_view line(text.data(), bytes > 0 ? static_cast<std::size_t>(bytes) : 0);
  return line.empty() ? "another process" : data::shown(line.substr(0, line.find('\n')));
}

// Whether `path` still names the open file: its last holder may have removed it meanwhile.
bool is_named(const fs::path& path, int descriptor) {
  struct ::stat open {
  }, named{};
  return ::fstat(descriptor, &open) == 0 && ::stat(path.c_str(), &named) == 0 &&
         open.st_dev == named.st_dev && open.st_ino == named.st_ino;
}

}  // namespace

RunLock::RunLock(const fs::path& run) : path_(run / lock_name) {
  const auto without_lock = [&run] {
    say("{}: cannot be locked ({}): make sure that no other process trains into it\n", run.string(),
        std::strerror(errno));
  };
  for (;;) {
    descriptor_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (descriptor_ < 0) {
      without_lock();
      return;
    }
    if (::flock(descriptor_, LOCK_EX | LOCK_NB) != 0) {
      const bool is_held = errno == EWOULDBLOCK;
      const std::string holder = is_held ? content(descriptor_) : "";
      if (!is_held) without_lock();
      ::close(std::exchange(descriptor_, -1));
      if (!is_held) return;
      fail<DataError>(
          "{}: {} trains into this directory; wait for its end, stop it with SIGTERM, which saves, "
          "or choose another --out",
          run.string(), holder);
    }
    if (is_named(path_, descriptor_)) break;
    ::close(descriptor_);
  }
  const std::string text = this_process();
  if (::ftruncate(descriptor_, 0) != 0 || ::pwrite(descriptor_, text.data(), text.size(), 0) <
                                              0)  // a full disk: locked, without a name
    return;
}

RunLock::~RunLock() {
  if (descriptor_ < 0) return;
  ::unlink(path_.c_str());  // while holding it, so that no other process's file is removed
  ::close(descriptor_);
}

RunLock::RunLock(RunLock&& other) noexcept
    : path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, -1)) {}

RunLock& RunLock::operator=(RunLock&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

DefaultOut::DefaultOut(const std::string& model) {
  const std::string first =
      fmt::format("{}/{}-{:%Y%m%d-%H%M%S}", parent, model, fmt::localtime(std::time(nullptr)));
  path_ = first;
  std::error_code error;
  made_parent_ = fs::create_directories(parent, error);
  for (int number = 2; !error && !fs::create_directory(path_, error); ++number)
    path_ = fmt::format("{}-{}", first, number);
  if (error)
    fail<DataError>("{}: cannot make this directory ({}); choose another with --out", path_,
                    error.message());
}

DefaultOut::~DefaultOut() {
  std::error_code not_empty;
  fs::remove(path_, not_empty);
  if (made_parent_) fs::remove(parent, not_empty);
}

RunLock lock_new_run(const fs::path& run) {
  std::error_code error;
  fs::create_directories(run, error);
  return error ? RunLock() : RunLock(run);
}

// The run directory.

bool remove_link(const fs::path& path) {
  return fs::is_symlink(path) && fs::remove(path);
}

namespace {

constexpr std::string_view metrics_name = "metrics.jsonl";
// --overwrite removes only a run's: a folder of tokens, or of a model of transformers, may be given
// by mistake, which have one too.
constexpr std::string_view tokenizer_name = "tokenizer.json";

bool is_one_of_ours(std::string_view name) {
  name = name_before_aside(name);
  return is_checkpoint_name(name) || name == best_name || name == "config.json" ||
         name == metrics_name || name == "summary.json" || name == "bad_samples.jsonl" ||
         name == "curves.png" || name == "report.html" || name == "report-tb.html" ||
         name == "comparison.html" || name == "track-wandb.json" || name == "track-mlflow.json" ||
         (name.starts_with("session") && name.ends_with(".prof"));
}

// ".NAME.tmp-PID-N": an unfinished file of a killed process, see engine/core/file.h.
bool is_leftover(const fs::path& path) {
  const std::string name = path.filename().string();
  const std::size_t end = name.rfind(".tmp-");
  if (!name.starts_with('.') || end == std::string::npos) return false;
  const std::string_view finished = std::string_view(name).substr(1, end - 1);
  return is_one_of_ours(finished) || finished == tokenizer_name;
}

// The files of a run; --overwrite removes only these, and only where there is a run.
bool is_ours(const fs::path& path) {
  return is_one_of_ours(path.filename().string()) || is_leftover(path);
}

bool holds_run(const fs::path& path) {
  return fs::exists(path / "config.json") || fs::exists(path / metrics_name);
}

std::vector<fs::path> entries_of(const fs::path& folder) {
  std::vector<fs::path> entries;
  if (fs::is_directory(folder))
    for (const auto& entry : fs::directory_iterator(folder)) entries.push_back(entry.path());
  return entries;
}

void remove_leftovers(const fs::path& folder) {
  for (const fs::path& entry : entries_of(folder))
    if (is_leftover(entry)) fs::remove(entry);
}

void remove_if_empty(const fs::path& folder) {
  std::error_code ignored;
  fs::remove(folder, ignored);
}

// The files of `warpstep export`, and the folder if nothing else is in it.
void remove_exports(const fs::path& folder) {
  if (remove_link(folder)) return;
  for (const std::string_view format : export_folder::all) fs::remove_all(folder / format);
  for (const fs::path& entry : entries_of(folder))  // of sessions besides session.prof
    if (entry.filename().string().starts_with("session")) remove_exports(entry);
  remove_if_empty(folder);
}

bool is_number(const std::string& name) {
  return name.find_first_not_of("0123456789") == std::string::npos;
}

// What an earlier run has written, also its other ranks. Last what shows that there is a run, so
// that the rest can be removed again after a kill.
void remove_run(const fs::path& run) {
  if (fs::exists(run / "config.json") && fs::exists(run / metrics_name))
    fs::remove(run / tokenizer_name);
  for (const fs::path& entry : entries_of(run))
    if (is_ours(entry) && entry.filename() != "config.json" && entry.filename() != metrics_name)
      fs::remove(entry);
  remove_exports(run / "trace");
  remove_event_files(run);
  remove_link(run / "ranks");
  for (const fs::path& rank : entries_of(run / "ranks")) {
    if (!is_number(rank.filename().string()) || remove_link(rank)) continue;
    remove_run(rank);
    remove_if_empty(rank);
  }
  remove_if_empty(run / "ranks");
  fs::remove(run / "config.json");
  fs::remove(run / metrics_name);
}

// Of a folder that holds no run: what has the name of a file that a run, or a command for runs,
// writes.
std::vector<std::string> names_of_a_run(const fs::path& folder) {
  std::vector<std::string> names;
  for (const fs::path& entry : entries_of(folder))
    if (const std::string name = entry.filename().string();
        is_one_of_ours(name) || name == tokenizer_name || name == "tensorboard")
      names.push_back(name);
  for (const std::string_view format : export_folder::all)
    if (fs::exists(folder / "trace" / format)) names.push_back(fmt::format("trace/{}", format));
  for (const fs::path& rank : entries_of(folder / "ranks"))
    if (const std::string name = rank.filename().string(); is_number(name))
      names.push_back("ranks/" + name);
  std::ranges::sort(names);
  return names;
}

// Later checkpoints would count as the newest; they may be good, so they are renamed.
void set_aside_after(const fs::path& run, std::uint64_t step) {
  for (const fs::path& path : checkpoints(run)) {
    if (step_of(path) <= step) continue;
    const fs::path aside = free_aside(path);
    fs::rename(path, aside);
    say("{} is after the checkpoint resumed from: renamed to {}\n", path.string(),
        aside.filename().string());
  }
}

// Throws Json::exception if there is no such number.
std::uint64_t count_at(const Json& line, const char* key) {
  return line.at(key).get_ref<const Json::number_unsigned_t&>();
}

double milliseconds(std::uint64_t ns) {
  return static_cast<double>(ns) * 1e-6;
}

Json times_json(const StepTimes& times) {
  return {{"data_ms", milliseconds(times.data_ns)},
          {"kernels_ms", milliseconds(times.kernels_ns)},
          {"copies_ms", milliseconds(times.copies_ns)},
          {"cpu_ms", milliseconds(times.cpu_ns)},
          {"other_ms", milliseconds(times.other_ns)}};
}

// JSON has null for what is not measured, or not finite.
Json blocks_json(const std::vector<BlockStatistics>& blocks) {
  Json all = Json::object();
  for (const BlockStatistics& block : blocks)
    all[block.name] = {{"gradient_norm", block.gradient_norm},
                       {"parameter_norm", block.parameter_norm},
                       {"update_ratio", block.update_norm / block.parameter_norm},
                       {"mean", block.mean},
                       {"rms", block.rms},
                       {"largest", block.largest},
                       {"zeros", block.zeros}};
  return all;
}

// Those of later steps, and of an evaluation that is made again, will be found again.
void forget_bad_samples(const fs::path& path, const Progress& progress) {
  if (fs::is_symlink(path)) fs::remove(path);  // its target does not belong to the run
  if (!fs::exists(path)) return;
  keep_lines(path, [&progress](const Json& line) {
    const std::uint64_t run_step = count_at(line, "run_step"), epoch = count_at(line, "epoch"),
                        step = count_at(line, "step");
    count_at(line, "sample");
    const auto& split = line.at("split").get_ref<const std::string&>();
    if (split != "train" && split != "test")
      throw Json::other_error::create(501, "no split of a run", nullptr);
    if (run_step > progress.step) return false;
    if (split == "test")
      return run_step < progress.step ||
             (progress.evaluation && progress.evaluation->step == run_step);
    // Of a step that failed, which is not counted yet.
    return std::tuple(epoch, step) <= std::tuple(progress.next.epoch + 1, progress.next.step);
  });
}

}  // namespace

std::string started_in(const fs::path& file) try {
  const Json json = parse_json<Json>(read_file(file));
  const auto found = json.find(started_key);
  return found != json.end() && found->is_string() ? found->get<std::string>() : std::string();
} catch (const DataError&) {
  return {};
}

RunDirectory::RunDirectory(fs::path path)
    : path_(std::move(path)),
      started_(fmt::format("{}-{}",
                           std::chrono::duration_cast<std::chrono::nanoseconds>(
                               std::chrono::system_clock::now().time_since_epoch())
                               .count(),
                           ::getpid())),
      metrics_(path_ / metrics_name) {}

namespace {

// A model of transformers, among others, has a config.json, too; a damaged one may be a run's.
bool has_foreign_config(const fs::path& path) {
  const fs::path config = path / "config.json";
  if (fs::exists(path / metrics_name) || !fs::exists(config)) return false;
  const Json json = parse_json<Json>(read_file(config));
  return !json.is_discarded() && !(json.is_object() && json.contains("options"));
}

// Of a folder that holds no run: a run's own files would replace them.
void refuse_names_of_a_run(const fs::path& path) {
  if (const std::vector<std::string> names = names_of_a_run(path); !names.empty())
    fail<UsageError>(
        "--out {} holds no run, neither a config.json nor a {}, but has files named like those of "
        "a run: {}; choose another --out, or move {} away",
        path.string(), metrics_name, data::first_few(names), names.size() == 1 ? "it" : "them");
}

[[noreturn]] void refuse_used(const fs::path& path, const fs::path& entry) {
  if (holds_run(path))
    fail<UsageError>(
        "--out {} is not empty; continue it with --resume {}, replace it with --overwrite, or "
        "choose another --out",
        path.string(), shell_word(path.string()));
  refuse_names_of_a_run(path);
  fail<UsageError>(
      "--out {} is not empty and holds no run ({}); choose another --out, or --overwrite to write "
      "the run's files next to those",
      path.string(), data::shown(entry.filename().string()));
}

}  // namespace

RunDirectory RunDirectory::create(const fs::path& path, bool overwrite) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error || !fs::is_directory(path))
    fail<DataError>("--out {}: cannot make this directory ({}); choose another --out",
                    path.string(), error ? error.message() : "it is a file");
  if (has_foreign_config(path))
    fail<UsageError>("--out {}: has a config.json that is not of a run; choose another --out",
                     path.string());
  if (overwrite && holds_run(path)) {
    remove_run(path);
  } else if (overwrite) {
    refuse_names_of_a_run(path);
    remove_leftovers(path);
  }
  for (const fs::path& entry : entries_of(path))
    if (!overwrite && entry.filename() != lock_name) refuse_used(path, entry);  // its own lock
  RunDirectory run(path);
  run.metrics_.open();
  return run;
}

RunDirectory RunDirectory::reopen(const fs::path& path, const Progress& progress) {
  RunDirectory run(path);
  remove_leftovers(path);
  set_aside_after(path, progress.step);
  const auto known = [&](const Json& line) {
    const std::uint64_t step = count_at(line, "step");
    if (line.at("kind") != "evaluation" || step < progress.step) return step <= progress.step;
    // Killed between an evaluation and its checkpoint: the evaluation runs again.
    return progress.evaluation && progress.evaluation->step == step;
  };
  keep_lines(path / metrics_name, [&](const Json& line) {
    if (!known(line)) return false;
    run.collect(line);
    return true;
  });
  forget_bad_samples(path / "bad_samples.jsonl", progress);
  run.metrics_.open();
  return run;
}

const Json& RunDirectory::last_epoch() const {
  static const Json none;
  return last_epoch_ ? *last_epoch_ : none;
}

void RunDirectory::append(Json line) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  line["time"] =
      static_cast<double>(std::chrono::duration_cast<std::chrono::milliseconds>(now).count()) / 1e3;
  {
    static const record::Name name{"metrics.jsonl"};
    const record::Span span(name);
    metrics_.append(printed(line));
  }
  collect(line);
  if (!log_) return;
  static const record::Name name{"tensorboard"};
  const record::Span span(name);
  log_(line);
}

// Throws Json::exception for a foreign line. JSON has null for numbers that are not finite.
void RunDirectory::collect(const Json& line) {
  const auto kind = line.at("kind").get<std::string>();
  const auto number = [&](const char* key) {
    const Json& value = line.at(key);
    return value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.get<double>();
  };
  const bool step = kind == "step", epoch = kind == "epoch";
  if (!step && !epoch && kind != "evaluation") return;
  const auto is_share = [](double share) {
    return std::isnan(share) || (share >= 0 && share <= 1);
  };
  // Evaluations of older runs have none.
  const bool has_fraction = !epoch && (step || line.contains("epochs_done"));
  const double at = number(has_fraction ? "epochs_done" : "epoch"), loss = number("loss");
  const double accuracy = number("accuracy");
  if (std::isnan(at) || at < 0 || !is_share(accuracy))
    throw Json::other_error::create(501, "no figures of a run", nullptr);
  if (step) {
    curves_.step_loss.push_back({at, loss});
    return;
  }
  if (epoch) last_epoch_ = std::make_shared<const Json>(line);
  (epoch ? curves_.train_loss : curves_.validation_loss).push_back({at, loss});
  (epoch ? curves_.train_accuracy : curves_.validation_accuracy).push_back({at, accuracy});
}

void RunDirectory::on_step(const StepRecord& r) {
  if (r.step % log_every_ != 0 && r.step != 1 && r.blocks.empty()) return;
  Json line{{"kind", "step"},
            {"step", r.step},
            {"epoch", r.epoch},
            {"epochs_done",
             static_cast<double>(r.epoch - 1) +
                 static_cast<double>(r.step_in_epoch) / static_cast<double>(r.steps_per_epoch)},
            {"loss", r.loss},
            {"accuracy", r.score.accuracy()},
            {"learning_rate", r.learning_rate},
            {fmt::format("{}_per_second", name(items_)), per_second(r.count, r.times)}};
  if (items_ == Items::tokens) line["perplexity"] = std::exp(static_cast<double>(r.loss));
  if (r.loss_scale != 1 || r.skipped > 0)
    line.update({{"loss_scale", r.loss_scale}, {"skipped_steps", r.skipped}});
  if (r.gradient_norm > 0) line["gradient_norm"] = r.gradient_norm;
  if (!r.blocks.empty()) line["blocks"] = blocks_json(r.blocks);
  line.update(times_json(r.times));
  append(std::move(line));
}

void RunDirectory::on_epoch(const EpochRecord& r) {
  Json line{{"kind", "epoch"},
            {"step", r.step},
            {"epoch", r.epoch},
            {"loss", r.score.loss()},
            {"accuracy", r.score.accuracy()},
            {std::string(name(items_)), r.score.count},
            // fewer when the run was resumed in this epoch
            {fmt::format("timed_{}", name(items_)), r.count},
            {fmt::format("{}_per_second", name(items_)), per_second(r.count, r.times)}};
  if (items_ == Items::tokens) line["perplexity"] = std::exp(r.score.loss());
  line.update(times_json(r.times));
  append(std::move(line));
}

void RunDirectory::on_evaluation(const EvaluationRecord& r) {
  Json line{{"kind", "evaluation"},
            {"step", r.step},
            {"epoch", r.epoch},
            {"epochs_done", r.epochs_done},
            {"loss", r.score.loss()},
            {"accuracy", r.score.accuracy()},
            {std::string(name(items_)), r.score.count},
            {"ms", milliseconds(r.ns)}};
  if (items_ == Items::tokens) line["perplexity"] = std::exp(r.score.loss());
  append(std::move(line));
}

void RunDirectory::write_config(const Json& config) const {
  Json marked = config;
  marked[started_key] = started_;
  write_atomically(path_ / "config.json", printed(marked, 2) + "\n");
}

void RunDirectory::write_tokenizer(const std::string& text) const {
  write_atomically(path_ / tokenizer_name, text);
}

void RunDirectory::write_summary(const Json& summary) {
  metrics_.close();
  const fs::path path = path_ / "summary.json";
  if (std::error_code error; fs::is_other(path, error)) fs::remove(path, error);  // a pipe
  Json marked = summary;
  marked[started_key] = started_;
  write_atomically(path, printed(marked, 2) + "\n");
}

void RunDirectory::write_curves(const std::string& model, const std::string& data) const {
  CurveData curves = curves_;
  curves.model = model;
  curves.data = utf8(data);
  draw_curves(curves, path_ / "curves.png");
}

void RunDirectory::prune_checkpoints(std::uint64_t keep, const fs::path& besides) const {
  if (keep == 0) return;  // all; listing thousands after each would take longer than the steps
  const std::vector<fs::path> all = checkpoints(path_);
  if (all.size() <= keep) return;
  for (auto old = all.begin(); old != all.end() - static_cast<std::ptrdiff_t>(keep); ++old)
    if (*old != besides) fs::remove(*old);
}

}  // namespace warpstep::tools
