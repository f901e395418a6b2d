// Small data sets and run directories, for tests of the whole program.
#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/data_testing.h"

namespace warpstep::system_test {

using Json = nlohmann::ordered_json;
using data::testing::put;
using data::testing::TemporaryFolder;

// train/ and test/ of 8x8 RGB files with labels.pkl: each class has its own colour under noise, and
// file names begin with the class, as in a folder per class. 3 classes, 192 training files.
void make_set(const std::string& folder, int test_files = 64);

inline constexpr int set_classes = 3;
std::string file_name(int index);  // of the training files, in their order

// The options of a short run on such a set: two epochs of 6 steps.
std::vector<std::string> short_run(const std::string& data, const std::string& out,
                                   const std::string& model = "mlp");

// The same for as long as a test needs it.
std::vector<std::string> endless_run(const std::string& data, const std::string& out);

template <class... More>
std::vector<std::string> with(std::vector<std::string> arguments, const More&... more) {
  (arguments.emplace_back(more), ...);
  return arguments;
}

// The files of a run.
using Tensors = std::map<std::string, std::vector<std::byte>>;
Tensors tensors(const std::filesystem::path& checkpoint);
std::string checkpoint_metadata(const std::filesystem::path& checkpoint, const std::string& key);
// The checkpoints of steps, oldest first.
std::vector<std::filesystem::path> checkpoints(const std::string& run);
Json read_json(const std::string& path);
std::vector<Json> metrics(const std::string& run);
// Without times.
std::vector<Json> timeless_metrics(const std::string& run);
Json timeless_summary(const std::string& run);
// The same weights, moments, progress, metrics and summary, bit for bit; `names` identifies the
// runs.
void expect_equal_runs(const std::string& a, const std::string& b);

}  // namespace warpstep::system_test
