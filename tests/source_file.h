// Finds files of the source tree that tests read: in the tree of their build, or in the one that
// WARPSTEP_SOURCE_DIR in the environment names, as installed tests have it elsewhere.
#pragma once

#include <cstdlib>
#include <string>

namespace warpstep::testing_support {

inline std::string source_file(const std::string& path) {
  const char* root = std::getenv("WARPSTEP_SOURCE_DIR");
  return (root && *root ? root : WARPSTEP_SOURCE_DIR) + ("/" + path);
}

}  // namespace warpstep::testing_support
