// A folder of small files that replaces /proc, /sys or / in a test.
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

namespace warpstep::profiler::testing {

class Tree {
 public:
  Tree() {
    std::string name = (std::filesystem::temp_directory_path() / "warpstep-tree-XXXXXX").string();
    if (::mkdtemp(name.data())) root_ = name;
  }
  ~Tree() {
    std::error_code ignored;
    if (!root_.empty()) std::filesystem::remove_all(root_, ignored);
  }
  Tree(const Tree&) = delete;
  Tree& operator=(const Tree&) = delete;

  const std::filesystem::path& root() const { return root_; }
  Tree& write(const std::filesystem::path& relative, std::string_view text) {
    const std::filesystem::path path = root_ / relative;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << text;
    return *this;
  }

 private:
  std::filesystem::path root_;
};

// A folder for this process only, removed at its end: tests run in many processes at once.
inline const std::filesystem::path& own_folder() {
  static const Tree tree;
  return tree.root();
}

}  // namespace warpstep::profiler::testing
