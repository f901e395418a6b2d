#include "engine/core/wheels.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <ranges>
#include <set>
#include <string_view>
#include <utility>

namespace warpstep {
namespace {

namespace fs = std::filesystem;
using Paths = std::vector<fs::path>;

// Folders that cannot be read have no entries here.
Paths folders_in(const fs::path& folder) {
  Paths found;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
    if (std::error_code ignored; at->is_directory(ignored)) found.push_back(at->path());
  std::ranges::sort(found);
  return found;
}

fs::path from_environment(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

// The prefixes of the first python3 in PATH: of a virtual environment, whose python3 is a link, and
// of the installation that it links to.
Paths of_python_in_path() {
  const char* value = std::getenv("PATH");
  const std::string_view path = value ? value : "/usr/local/bin:/usr/bin:/bin";
  for (const auto part : path | std::views::split(':')) {
    const fs::path program = fs::path(std::string_view(part.begin(), part.end())) / "python3";
    std::error_code error;
    if (program.is_relative() || !fs::exists(program, error)) continue;
    const fs::path target = fs::canonical(program, error);
    Paths prefixes{program.parent_path().parent_path()};
    if (!error) prefixes.push_back(target.parent_path().parent_path());
    return prefixes;
  }
  return {};
}

Paths site_packages_of(const fs::path& prefix) {
  Paths found;
  for (const fs::path& version : folders_in(prefix / "lib"))
    if (version.filename().string().starts_with("python3"))
      for (const char* name : {"site-packages", "dist-packages"}) found.push_back(version / name);
  return found;
}

// Of which this library is a part, as it is in a wheel of its own.
fs::path own_site_packages() {
  Dl_info self{};
  if (dladdr(reinterpret_cast<void*>(&wheel_folders), &self) == 0) return {};
  for (fs::path at = self.dli_fname; at.has_relative_path(); at = at.parent_path())
    if (at.filename() == "site-packages" || at.filename() == "dist-packages") return at;
  return {};
}

Paths every_site_packages() {
  Paths found;
  const auto add_prefix = [&](const fs::path& prefix) {
    if (prefix.empty()) return;
    for (fs::path& site : site_packages_of(prefix)) found.push_back(std::move(site));
  };
  add_prefix(from_environment("VIRTUAL_ENV"));
  add_prefix(from_environment("CONDA_PREFIX"));
  if (const fs::path own = own_site_packages(); !own.empty()) found.push_back(own);
  for (const fs::path& prefix : of_python_in_path()) add_prefix(prefix);
  if (const fs::path home = from_environment("HOME"); !home.empty()) add_prefix(home / ".local");
  add_prefix("/usr/local");
  add_prefix("/usr");
  for (const fs::path& in_opt : folders_in("/opt")) {
    add_prefix(in_opt);
    for (const fs::path& below : folders_in(in_opt)) add_prefix(below);
  }
  return found;
}

}  // namespace

std::vector<fs::path> wheel_folders() {
  Paths found;
  std::set<fs::path> seen;
  for (const fs::path& site : every_site_packages()) {
    std::error_code error;
    // cuDNN 9 for CUDA 12 has the same name, but needs libraries that CUDA 13 does not have.
    if (!seen.insert(site).second || !fs::is_directory(site / "nvidia" / "cu13" / "lib", error))
      continue;
    for (const fs::path& wheel : folders_in(site / "nvidia"))
      if (fs::is_directory(wheel / "lib", error)) found.push_back(wheel / "lib");
  }
  return found;
}

fs::path in_wheels(const std::string& name) {
  for (const fs::path& folder : wheel_folders())
    if (std::error_code error; fs::exists(folder / name, error)) return folder / name;
  return {};
}

namespace {

std::string loader_error() {
  const char* error = dlerror();
  return error ? error : "the loader gives no reason";
}

}  // namespace

void* open_library(const std::string& name, int flags, std::string* why) {
  if (void* opened = dlopen(name.c_str(), flags)) return opened;
  const std::string reason = loader_error();
  const fs::path of_wheel = name.find('/') == std::string::npos ? in_wheels(name) : fs::path();
  if (!of_wheel.empty()) return open_with_wheels(of_wheel, flags, why);
  if (why) *why = reason;
  return nullptr;
}

void* open_with_wheels(const fs::path& file, int flags, std::string* why) {
  std::set<std::string> tried;
  while (true) {
    if (void* opened = dlopen(file.c_str(), flags)) return opened;
    const std::string reason = loader_error();
    if (why) *why = reason;
    // "libcudnn.so.9: cannot open shared object file: No such file or directory"
    const std::string missing = reason.substr(0, reason.find(':'));
    if (missing == file.string() || !tried.insert(missing).second) return nullptr;
    const fs::path of_wheel = in_wheels(missing);
    // Stays open: the file is linked to it when it is loaded again.
    if (of_wheel.empty() || !open_with_wheels(of_wheel, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE, why))
      return nullptr;
  }
}

}  // namespace warpstep
