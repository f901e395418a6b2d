#include "kernels/cuda/plan_cache.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <system_error>

#include "engine/core/error.h"
#include "engine/core/file.h"

namespace warpstep::cuda {
namespace {

constexpr std::string_view format_name = "warpstep plan 1";
constexpr std::uint64_t max_bytes = std::uint64_t{16} << 20;  // plans have 4 to 74 KiB

// FNV-1a: names files and detects damage. It does not protect against forgery: anyone who may write
// to the folder can put any plan there, so only the user may have that right.
std::uint64_t hash(std::string_view text) {
  std::uint64_t value = 0xcbf29ce484222325u;
  for (const char c : text) value = (value ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return value;
}

// The part of a file before the plan: equal only for the same key and the same plan.
std::string header(std::string_view key, std::string_view plan) {
  return fmt::format("{}\n{}\n{:016x}\n", format_name, key, hash(plan));
}

// Whether it is a regular file of the user that no other user may change.
bool is_ours(const std::filesystem::path& path) {
  struct stat status = {};
  return ::lstat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode) &&
         status.st_uid == ::geteuid() && (status.st_mode & 022) == 0;
}

std::optional<std::string> read_plan(const std::filesystem::path& path, std::string_view key) {
  if (!is_ours(path)) return std::nullopt;
  std::string content;
  try {
    content = read_file(path, max_bytes);
  } catch (const DataError&) {
    return std::nullopt;
  }
  const std::size_t header_bytes = header(key, {}).size();
  if (content.size() <= header_bytes) return std::nullopt;
  const std::string_view plan = std::string_view(content).substr(header_bytes);
  if (!std::string_view(content).starts_with(header(key, plan))) return std::nullopt;
  return std::string(plan);
}

}  // namespace

PlanCache::PlanCache(const Settings& settings, std::string_view library)
    : folder_(settings.cache),
      device_and_settings_(fmt::format(
          "{} | {}{} | {} multiprocessors | sm_{} | tf32 {:d} | exact {:d} | deterministic {:d} | "
          "workspace {}",
          library, settings.has_device() ? "" : "assumed ", settings.device_name,
          settings.multiprocessors, settings.compute_capability, settings.tf32, settings.exact_math,
          settings.deterministic, settings.workspace_cap)),
      choice_(settings.autotune && settings.has_device() ? Choice::measured : Choice::heuristic) {}

std::string PlanCache::key(std::string_view subject, Choice choice) const {
  return fmt::format("{} | {} | {}", device_and_settings_,
                     choice == Choice::measured ? "measured" : "heuristic", subject);
}

std::filesystem::path PlanCache::file(std::string_view subject, Choice choice) const {
  return folder_ / fmt::format("{:016x}.plan", hash(key(subject, choice)));
}

bool PlanCache::is_safe() const {
  return !folder_.empty() && folder_problem(folder_, 022).empty();
}

std::optional<std::string> PlanCache::find(std::string_view subject) const {
  const auto found = kept_.find(std::string(subject));
  if (found != kept_.end()) return found->second;
  if (!is_safe()) return std::nullopt;
  const auto look_up = [&](Choice choice) {
    return read_plan(file(subject, choice), key(subject, choice));
  };
  std::optional<std::string> plan = look_up(Choice::measured);
  if (!plan && choice_ == Choice::heuristic) plan = look_up(Choice::heuristic);
  return plan;
}

void PlanCache::keep(std::string_view subject, std::string_view plan, Choice choice) {
  kept_[std::string(subject)] = plan;
  if (folder_.empty()) return;
  try {
    if (folder_.has_parent_path()) std::filesystem::create_directories(folder_.parent_path());
    if (::mkdir(folder_.c_str(), 0700) != 0 && !is_safe()) return;
    const std::filesystem::path path = file(subject, choice);
    write_atomically(path, header(key(subject, choice), plan) + std::string(plan));
    std::filesystem::permissions(path, std::filesystem::perms(0600));  // whatever the umask is
  } catch (const DataError&) {  // a full disk, a read-only folder: planned again next time
  } catch (const std::filesystem::filesystem_error&) {
  }
}

}  // namespace warpstep::cuda
