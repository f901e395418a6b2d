#include "engine/core/module_build.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <string_view>

#include "engine/core/version.h"

namespace warpstep {

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
