// Where files of the source tree are that tests read: the tree that they were built from, or the
// one that the environment variable WARPSTEP_SOURCE_DIR names, as staged trees lie elsewhere.
#pragma once

#include <cstdlib>
#include <string>

namespace warpstep::testing_support {

inline std::string source_file(const std::string& path) {
  const char* root = std::getenv("WARPSTEP_SOURCE_DIR");
  return (root && *root ? root : WARPSTEP_SOURCE_DIR) + ("/" + path);
}

}  // namespace warpstep::testing_support
