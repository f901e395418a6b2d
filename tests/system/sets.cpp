#include "tests/system/sets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "engine/files/safetensors.h"

namespace warpstep::system_test {

namespace fs = std::filesystem;

namespace {

void make_split(const std::string& folder, int files, std::uint32_t salt) {
  const Shape shape{8, 8, 3};
  data::testing::Labels labels;
  for (int i = 0; i < files; ++i) {
    const int label = i * set_classes / files;
    auto pixels = data::testing::some_pixels(shape, salt + static_cast<std::uint32_t>(i) * 97);
    for (std::size_t p = 0; p < pixels.size(); ++p)
      pixels[p] =
          static_cast<std::uint8_t>(pixels[p] / 2 + (p % 3 == std::size_t(label) ? 127 : 0));
    put(folder + "/" + file_name(i), data::encode_png(shape, pixels));
    labels.emplace_back(file_name(i), label);
  }
  put(folder + "/labels.pkl", data::write_pickle(labels));
}

}  // namespace

std::string file_name(int index) {
  return fmt::format("{:04}.png", index);
}

void make_set(const std::string& folder, int test_files) {
  make_split(folder + "/train", 192, 0);
  make_split(folder + "/test", test_files, 1'000'000);
}

std::vector<std::string> short_run(const std::string& data, const std::string& out,
                                   const std::string& model) {
  return {"train",     model, "--data",      data,   "--out",    out,
          "--batch",   "32",  "--lr",        "1e-3", "--epochs", "2",
          "--threads", "1",   "--log-every", "1",    "--device", "cpu"};
}

std::vector<std::string> endless_run(const std::string& data, const std::string& out) {
  std::vector<std::string> arguments = short_run(data, out);
  *(std::find(arguments.begin(), arguments.end(), "--epochs") + 1) = "1000000";
  return arguments;
}

Tensors tensors(const fs::path& checkpoint) {
  const SafetensorsFile file(checkpoint);
  Tensors result;
  for (const StoredTensor& tensor : file.tensors()) {
    auto& bytes = result[tensor.name];
    bytes.resize(tensor.bytes);
    file.read(tensor, bytes);
  }
  return result;
}

std::string checkpoint_metadata(const fs::path& checkpoint, const std::string& key) {
  return SafetensorsFile(checkpoint).metadata().at(key);
}

std::vector<fs::path> checkpoints(const std::string& run) {
  std::vector<fs::path> paths;
  if (fs::exists(run))
    for (const auto& entry : fs::directory_iterator(run))
      if (entry.path().filename().string().starts_with("checkpoint-") &&
          entry.path().extension() == ".safetensors")
        paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
  return paths;
}

Json read_json(const std::string& path) {
  std::ifstream file(path);
  return Json::parse(file);
}

std::vector<Json> metrics(const std::string& run) {
  std::ifstream file(run + "/metrics.jsonl");
  std::vector<Json> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(Json::parse(line));
  return lines;
}

std::vector<Json> timeless_metrics(const std::string& run) {
  std::vector<Json> lines = metrics(run);
  for (Json& line : lines)
    for (const char* key : {"data_ms", "copies_ms", "kernels_ms", "cpu_ms", "other_ms", "ms",
                            "timed_images", "time", "images_per_second", "tokens_per_second"})
      line.erase(key);
  return lines;
}

Json timeless_summary(const std::string& run) {
  Json summary = read_json(run + "/summary.json");
  for (const char* key : {"images_per_second", "step_ms", "step_time_share", "compute", "roofline",
                          "machine", "loading", "time_to_first_step_s", "started"})
    summary.erase(key);
  return summary;
}

void expect_equal_runs(const std::string& a, const std::string& b) {
  SCOPED_TRACE(a + " and " + b);
  const auto of_a = checkpoints(a), of_b = checkpoints(b);
  ASSERT_FALSE(of_a.empty());
  ASSERT_FALSE(of_b.empty());
  EXPECT_EQ(of_a.back().filename(), of_b.back().filename());
  EXPECT_EQ(checkpoint_metadata(of_a.back(), "warpstep.progress"),
            checkpoint_metadata(of_b.back(), "warpstep.progress"));
  const Tensors weights = tensors(of_a.back());
  EXPECT_GE(weights.size(), 12U);
  EXPECT_TRUE(weights == tensors(of_b.back())) << "weights or moments differ";
  EXPECT_THAT(timeless_metrics(b), testing::ContainerEq(timeless_metrics(a)));
  EXPECT_EQ(timeless_summary(a), timeless_summary(b));
}

}  // namespace warpstep::system_test
