// Libraries that the program loads and that must be compiled with its headers: those of a user's
// own, which `--plugin FILE` loads (docs/plugins.md), and Warpstep's modules, the backends and that
// of MPI. Each folder that a user's may add to has an entry point of its own: models/plugin.h and
// data/load/plugin.h.
#pragma once

#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <string>

#include "engine/core/version.h"

namespace warpstep {

// Mixes numbers and names of what a plugin and its program exchange: it differs between builds
// whose headers describe that differently.
constexpr std::uint64_t mix_interface(std::uint64_t mixed, std::uint64_t number) {
  return mixed * 1099511628211ULL + number;
}

// What a plugin's interface begins with: a plugin and its program have the same minor version.
constexpr std::uint64_t interface_of_version(std::uint64_t minor) {
  return mix_interface(version_major, minor);
}

// What a module of Warpstep's own was built from. The engine calls its functions by their places in
// headers, so it refuses a module of another version: one that an earlier installation left, for
// example.
struct ModuleBuild {
  const char* version = nullptr;  // "0.1.0"
  std::uint64_t interface = 0;    // mixed from what the engine and the module exchange
};
using ModuleBuildEntry = const ModuleBuild* (*)();

// Why a module is not of this build, with what to do, by what its function `entry` returns; empty:
// it is. `what`: "backend", for the message.
std::string other_build(void* module, const std::filesystem::path& path, const std::string& what,
                        const char* entry, std::uint64_t interface);

class PluginLibrary {
 public:
  // Throws UsageError naming the file: one that does not exist, is cut short or does not load.
  explicit PluginLibrary(const std::filesystem::path& file);

  const std::string& path() const { return path_; }  // absolute

  // What the library's function `entry` returns, null if it has none. Throws UsageError if its
  // member `interface` is another.
  template <class Part>
  const Part* part(const char* entry, std::uint64_t interface) const {
    const auto* found = static_cast<const Part*>(call(entry));
    if (found) require_interface(found->interface, interface);
    return found;
  }

 private:
  const void* call(const char* entry) const;
  void require_interface(std::uint64_t of_plugin, std::uint64_t interface) const;

  std::string path_;
  void* library_ = nullptr;  // never closed: its code and constants are in use
};

// Adds what a library has for one folder; false if it has nothing for it.
using AddPlugin = bool (*)(const PluginLibrary&);

// Loads the library and adds all its parts; a file that is loaded already adds nothing. Not while
// other threads use models, formats or transforms. Throws UsageError naming the file.
void load_plugin(const std::filesystem::path& file, std::initializer_list<AddPlugin> parts);

}  // namespace warpstep
