#include "tools/warpstep/tensorboard.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <system_error>
#include <utility>

#include "engine/core/file.h"
#include "engine/core/host_name.h"
#include "engine/core/text.h"
#include "profiler/export/scalars.h"
#include "profiler/sources/sampler.h"
#include "profiler/sources/sampler_proc.h"
#include "tools/warpstep/run_directory.h"
#include "tools/warpstep/say.h"

namespace warpstep::tools {
namespace {

namespace fs = std::filesystem;
using profiler::Scalar;

constexpr std::chrono::seconds sampling_period{5};

double wall_time() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// The time in an event file's name; nothing for other files.
std::optional<std::uint64_t> seconds_of(const fs::path& path) {
  const std::string name = path.filename().string();
  if (!name.starts_with(profiler::event_file_prefix)) return std::nullopt;
  std::uint64_t seconds = 0;
  const char* const begin = name.data() + profiler::event_file_prefix.size();
  const auto [end, error] = std::from_chars(begin, name.data() + name.size(), seconds);
  if (error != std::errc() || end == begin) return std::nullopt;
  return seconds;
}

// The times in the names of the event files in a folder, without order.
std::vector<std::uint64_t> times_in(const fs::path& folder) {
  std::vector<std::uint64_t> times;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(folder, none))
    if (const auto seconds = seconds_of(entry.path())) times.push_back(*seconds);
  return times;
}

}  // namespace

// One file.

EventFile::EventFile(fs::path path) : path_(std::move(path)) {
  std::error_code error;
  fs::create_directories(path_.parent_path(), error);
  if (error) {
    failed(error.value(), "create its folder");
    return;
  }
  descriptor_ = open_file(
      path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW, 0666);
  if (descriptor_ >= 0)
    append(profiler::version_event(wall_time()));
  else
    failed(errno, "open it for writing");
}

EventFile::~EventFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
  if (lost_ > 0)
    say("tensorboard: {}: {} could not be written\n", path_.string(), counted(lost_, "record"));
}

void EventFile::failed(int error, const char* doing) {
  if (lost_++ == 0)
    say("tensorboard: {}: cannot {}: {}; the run continues, its curves have a gap\n",
        path_.string(), doing, std::generic_category().message(error));
}

void EventFile::append(std::string_view record) {
  if (descriptor_ < 0) {
    ++lost_;
    return;
  }
  const std::size_t done = write_all(descriptor_, std::as_bytes(std::span(record)));
  if (done == record.size()) {
    bytes_ += record.size();
    return;
  }
  failed(errno, "write");
  // A reader stops at a part of a record; if it cannot be removed, nothing may follow it.
  if (done > 0 && ::ftruncate(descriptor_, static_cast<off_t>(bytes_)) != 0)
    ::close(std::exchange(descriptor_, -1));
}

fs::path next_event_file(const fs::path& folder, std::uint64_t seconds) {
  for (const std::uint64_t other : times_in(folder)) seconds = std::max(seconds, other + 1);
  return folder / profiler::event_file_name(seconds, host_name());
}

void remove_event_files(const fs::path& run) {
  const fs::path folder = run / "tensorboard";
  for (const fs::path& each : {folder, folder / "system"}) remove_link(each);
  std::error_code ignored;
  for (const fs::path& each : {folder / "system", folder}) {
    std::vector<fs::path> files;
    for (const auto& entry : fs::directory_iterator(each, ignored))
      if (seconds_of(entry.path())) files.push_back(entry.path());
    for (const fs::path& file : files) fs::remove(file);
    if (fs::is_directory(each, ignored)) fs::remove(each, ignored);
  }
}

// The machine. The sampler's thread writes its file, so that it also shows a run that waits; the
// file's steps are seconds since the run first began, because several samples may fall into one
// step and TensorBoard keeps one value of each.
struct TensorBoard::System {
  explicit System(const TensorBoardOptions& options)
      : folder(options.run / "tensorboard" / "system"),
        leads(options.leads),
        began(first_time(folder)),
        file(next_event_file(folder, static_cast<std::uint64_t>(wall_time()))),
        sampler({.period = sampling_period,
                 .gpus = options.gpus,
                 .receive = [this](const auto& metrics) { receive(metrics); }}) {}
  ~System() { sampler.look(); }

  static std::uint64_t first_time(const fs::path& folder) {
    const std::vector<std::uint64_t> times = times_in(folder);
    const auto now = static_cast<std::uint64_t>(wall_time());
    return times.empty() ? now : std::min(now, *std::ranges::min_element(times));
  }

  void receive(const std::vector<profiler::Metric>& metrics) {
    const double now = wall_time();
    const auto seconds =
        static_cast<std::uint64_t>(std::max(0.0, now - static_cast<double>(began)));
    step = std::max(seconds, step + 1);
    std::vector<Scalar> scalars;
    for (const profiler::Metric& metric : metrics)
      if (auto scalar = profiler::machine_scalar(metric.name, metric.value);
          scalar && (leads || is_own(scalar->tag)))
        scalars.push_back(*std::move(scalar));
    file.append(profiler::scalars_event(now, step, scalars));
  }

  static bool is_own(const std::string& tag) {  // of a process among others of the machine
    return tag.starts_with("system/process_") || tag.starts_with("system/gpu_");
  }

  fs::path folder;
  bool leads;
  std::uint64_t began;
  std::uint64_t step = 0;
  EventFile file;
  profiler::Sampler sampler;  // the last: it ends before the file
};

TensorBoard::TensorBoard(const TensorBoardOptions& options) {
  const fs::path folder = options.run / "tensorboard";
  for (const fs::path& each : {folder, folder / "system"})
    if (remove_link(each))
      say("tensorboard: {}: was a link, which is not followed: a folder of the run's own replaces "
          "it\n",
          each.string());
  if (options.leads)
    metrics_.emplace(next_event_file(folder, static_cast<std::uint64_t>(wall_time())));
  if (metrics_ && options.steps_done > 0)
    metrics_->append(profiler::restart_event(wall_time(), options.steps_done + 1));
  try {
    system_ = std::make_unique<System>(options);
  } catch (const std::exception& error) {
    say("tensorboard: the machine is not sampled: {}\n", error.what());
  }
}

TensorBoard::~TensorBoard() = default;

void TensorBoard::add(const Json& record) {
  if (!metrics_) return;
  metrics_->append(profiler::scalars_event(record.value("time", wall_time()),
                                           record.value("step", std::uint64_t{0}),
                                           profiler::scalars_of(record)));
}

}  // namespace warpstep::tools
