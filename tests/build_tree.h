// The build that a test program belongs to, found at run time: tests are compiled once for the
// release and the sanitizer builds.
#pragma once

#include <filesystem>
#include <string>

extern "C" {
[[gnu::weak]] void __asan_init();
[[gnu::weak]] void __tsan_init();
}

namespace warpstep::testing_support {

// Programs are in its bin, libraries in its lib.
inline std::string binary_dir() {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path().parent_path().string();
}

// Whether the build's libraries and programs are compiled with a sanitizer.
inline bool sanitized() {
  return &__asan_init != nullptr || &__tsan_init != nullptr;
}

}  // namespace warpstep::testing_support
