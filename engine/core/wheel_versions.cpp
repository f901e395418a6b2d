#include "engine/core/wheel_versions.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <ranges>
#include <string_view>
#include <utility>

#include "engine/core/wheels.h"

namespace warpstep {
namespace {

namespace fs = std::filesystem;
using Paths = std::vector<fs::path>;

// "9.19.0.56" -> {9, 19, 0, 56}; up to what is no number.
LibraryVersion numbers(std::string_view text) {
  LibraryVersion found;
  while (!text.empty()) {
    int number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc{}) break;
    found.push_back(number);
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
    if (!text.starts_with('.')) break;
    text.remove_prefix(1);
  }
  return found;
}

LibraryVersion version_in_name(const fs::path& file) {
  const std::string name = file.filename().string();
  const std::size_t at = name.find(".so.");
  LibraryVersion found = at == std::string::npos ? LibraryVersion{} : numbers(name.substr(at + 4));
  if (found.size() < 2) found.clear();  // libcudnn.so.9 says nothing
  return found;
}

// Of site-packages/nvidia/cudnn/lib/libcudnn.so.9.
LibraryVersion version_of_wheel(const fs::path& file) {
  const fs::path wheel = file.parent_path().parent_path();
  const std::string begin = "nvidia_" + wheel.filename().string() + "_cu13-";
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(wheel.parent_path().parent_path(), error)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(begin) && name.ends_with(".dist-info"))
      return numbers(std::string_view(name).substr(begin.size()));
  }
  return {};
}

Paths folders_of_path(std::string_view path, const fs::path& origin) {
  Paths found;
  for (const auto part : path | std::views::split(':')) {
    std::string folder(part.begin(), part.end());
    constexpr std::string_view variable = "$ORIGIN";
    if (folder.starts_with(variable)) folder.replace(0, variable.size(), origin.string());
    if (!folder.empty()) found.emplace_back(std::move(folder));
  }
  return found;
}

Paths library_path() {
  const char* value = std::getenv("LD_LIBRARY_PATH");
  return folders_of_path(value ? value : "", {});
}

// The text at `offset` of a file up to its first zero byte.
std::string text_at(std::ifstream& file, std::uint64_t offset) {
  std::string text;
  file.seekg(static_cast<std::streamoff>(offset));
  std::getline(file, text, '\0');
  return text;
}

// The folders that the file itself names for its libraries (DT_RUNPATH); none of a file that is not
// for this machine's loader.
Paths run_path(const fs::path& module) {
  std::ifstream file(module, std::ios::binary);
  const auto read = [&file](auto& to, std::uint64_t offset) {
    file.seekg(static_cast<std::streamoff>(offset));
    return static_cast<bool>(file.read(reinterpret_cast<char*>(&to), sizeof to));
  };
  ElfW(Ehdr) header{};
  if (!read(header, 0) || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
      header.e_ident[EI_CLASS] != (sizeof(void*) == 8 ? ELFCLASS64 : ELFCLASS32))
    return {};
  std::vector<ElfW(Phdr)> segments(header.e_phnum);
  for (std::size_t i = 0; i < segments.size(); ++i)
    if (!read(segments[i], header.e_phoff + i * header.e_phentsize)) return {};
  std::uint64_t strings = 0, path = 0;
  for (const auto& segment : segments) {
    if (segment.p_type != PT_DYNAMIC) continue;
    for (std::uint64_t at = 0; at < segment.p_filesz; at += sizeof(ElfW(Dyn))) {
      ElfW(Dyn) entry{};
      if (!read(entry, segment.p_offset + at) || entry.d_tag == DT_NULL) break;
      if (entry.d_tag == DT_STRTAB) strings = entry.d_un.d_ptr;
      if (entry.d_tag == DT_RUNPATH) path = entry.d_un.d_val;
    }
  }
  if (path == 0) return {};
  for (const auto& segment : segments)
    if (segment.p_type == PT_LOAD && strings >= segment.p_vaddr &&
        strings < segment.p_vaddr + segment.p_filesz)
      return folders_of_path(text_at(file, strings - segment.p_vaddr + segment.p_offset + path),
                             fs::absolute(module).parent_path());
  return {};
}

// What the loader finds in its cache and its own folders. Opening and closing runs the library's
// constructors alone.
fs::path file_of_cache(const std::string& name) {
  void* opened = dlopen(name.c_str(), RTLD_LAZY | RTLD_LOCAL);
  if (!opened) return {};
  link_map* map = nullptr;
  fs::path found;
  if (dlinfo(opened, RTLD_DI_LINKMAP, &map) == 0 && map) found = map->l_name;
  dlclose(opened);
  return found;
}

bool is_loaded(const std::string& name) {
  void* loaded = dlopen(name.c_str(), RTLD_LAZY | RTLD_NOLOAD);
  if (loaded) dlclose(loaded);
  return loaded != nullptr;
}

// Of libcudnn.so.9: libcudnn_graph.so.9 and so on, which it opens by these names, and which are
// linked to each other: those that are linked to none first.
Paths parts_of(const fs::path& file) {
  const std::string name = file.filename().string();
  const std::size_t at = name.find(".so.");
  const std::string begin = name.substr(0, at) + "_", end = name.substr(at);
  Paths found;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(file.parent_path(), error))
    if (const std::string part = entry.path().filename().string();
        part.starts_with(begin) && part.ends_with(end))
      found.push_back(entry.path());
  const auto place = [&](const fs::path& part) {
    const std::string which = part.filename().string().substr(begin.size());
    return which.starts_with("graph") ? 0 : which.starts_with("ops") ? 1 : 2;
  };
  std::ranges::sort(found, {}, [&](const fs::path& part) { return std::pair(place(part), part); });
  return found;
}

}  // namespace

LibraryVersion library_version(const fs::path& file) {
  std::error_code error;
  const fs::path target = fs::canonical(file, error);
  if (error) return {};
  LibraryVersion found = version_in_name(target);
  return found.empty() ? version_of_wheel(file) : found;
}

fs::path file_of_loader(const std::string& name, const fs::path& module) {
  if (is_loaded(name)) return {};
  for (const Paths& folders : {library_path(), run_path(module)})
    for (const fs::path& folder : folders)
      if (std::error_code error; fs::exists(folder / name, error)) return folder / name;
  return file_of_cache(name);
}

fs::path newer_in_wheels(const fs::path& found, const LibraryVersion& needed) {
  LibraryVersion newest = library_version(found);
  if (newest.empty() || newest >= needed) return {};
  fs::path file;
  for (const fs::path& folder : wheel_folders()) {
    const fs::path candidate = folder / found.filename();
    if (LibraryVersion version = library_version(candidate); version > newest) {
      newest = std::move(version);
      file = candidate;
    }
  }
  return file;
}

void prefer_newer_in_wheels(const std::string& name, const LibraryVersion& needed,
                            const fs::path& module) {
  const fs::path found = file_of_loader(name, module);
  const fs::path newer = found.empty() ? found : newer_in_wheels(found, needed);
  constexpr int flags = RTLD_LAZY | RTLD_LOCAL | RTLD_NODELETE;
  if (newer.empty() || is_loaded(name) || !open_with_wheels(newer, flags, nullptr)) return;
  // The loader looks for its parts in LD_LIBRARY_PATH before the wheel's own folder.
  const bool hides_them = std::ranges::any_of(library_path(), [&](const fs::path& folder) {
    std::error_code error;
    return fs::exists(folder / name, error);
  });
  if (hides_them)
    for (const fs::path& part : parts_of(newer)) open_with_wheels(part, flags, nullptr);
}

}  // namespace warpstep
