#include "engine/core/plugin.h"

#include <dlfcn.h>
#include <elf.h>
#include <fmt/format.h>
#include <link.h>

#include <cstring>
#include <span>
#include <string_view>

#include "engine/core/caught.h"
#include "engine/core/error.h"
#include "engine/core/file.h"
#include "engine/core/version.h"

namespace warpstep {
namespace {

template <class Header>
bool read_header(const InputFile& file, std::uint64_t at, Header& header) {
  return file.read_some(at, std::as_writable_bytes(std::span(&header, 1))) == sizeof header;
}

// Whether the file ends within a segment: dlopen() would map it all the same, and a SIGBUS would
// end the program. Of other files dlopen() says what is wrong.
bool is_cut_short(const std::string& path) try {
  const InputFile file(path);
  ElfW(Ehdr) header{};
  ElfW(Phdr) segment{};
  if (!read_header(file, 0, header) || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
      header.e_phentsize != sizeof segment)
    return false;
  for (std::uint64_t i = 0; i < header.e_phnum; ++i) {
    if (header.e_phoff > file.bytes() ||
        !read_header(file, header.e_phoff + i * sizeof segment, segment))
      return true;
    if (segment.p_type == PT_LOAD &&
        (segment.p_offset > file.bytes() || segment.p_filesz > file.bytes() - segment.p_offset))
      return true;
  }
  return false;
} catch (const DataError&) {
  return false;
}

}  // namespace

PluginLibrary::PluginLibrary(const std::filesystem::path& file)
    : path_(std::filesystem::absolute(file).lexically_normal().string()) {
  std::error_code error;
  if (!std::filesystem::exists(path_, error)) fail<UsageError>("{}: there is no such file", path_);
  if (!std::filesystem::is_regular_file(path_, error))  // a pipe would wait for a writer
    fail<UsageError>("{}: it is not a file", path_);
  if (is_cut_short(path_))
    fail<UsageError>("{}: it is cut short; build it or copy it again", path_);
  library_ =
      naming(path_, "initialisation", [&] { return dlopen(path_.c_str(), RTLD_NOW | RTLD_LOCAL); });
  if (!library_) fail<UsageError>("{}: it does not load: {}", path_, dlerror());
}

const void* PluginLibrary::call(const char* entry) const {
  const auto function = reinterpret_cast<const void* (*)()>(dlsym(library_, entry));
  return function ? naming(path_, entry, function) : nullptr;
}

void PluginLibrary::require_interface(std::uint64_t of_plugin, std::uint64_t interface) const {
  if (of_plugin == interface) return;
  fail<UsageError>(
      "{}: it was compiled with the headers of another Warpstep; rebuild it with those of "
      "this one ({}, commit {})",
      path_, version(), commit());
}

void load_plugin(const std::filesystem::path& file, std::initializer_list<AddPlugin> parts) {
  const PluginLibrary library(file);
  bool found = false;
  for (const AddPlugin add : parts) found = add(library) || found;
  if (!found)
    fail<UsageError>(
        "{}: this library has neither WARPSTEP_PLUGIN(...) (models/plugin.h) nor "
        "WARPSTEP_DATA_PLUGIN(...) (data/load/plugin.h): it is not a plugin",
        library.path());
}

std::string other_build(void* module, const std::filesystem::path& path, const std::string& what,
                        const char* entry, std::uint64_t interface) {
  const auto build_of = reinterpret_cast<ModuleBuildEntry>(dlsym(module, entry));
  std::string other = "an earlier Warpstep, which named no version";
  if (build_of) {
    const ModuleBuild& build = *build_of();
    const bool is_same = std::string_view(build.version) == version();
    if (is_same && build.interface == interface) return {};
    other = fmt::format("Warpstep {}{}", build.version, is_same ? ", from other headers" : "");
  }
  return fmt::format(
      "{}: this {} is of {}, but its engine is of Warpstep {} (commit {}); build and install both "
      "together, or remove this file",
      path.string(), what, other, version(), commit());
}

}  // namespace warpstep
