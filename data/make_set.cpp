// Writes the synthetic data set as a folder of PNG files.
#include <filesystem>
#include <mutex>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>
#include <vector>

#include "data/file.h"
#include "data/parallel.h"
#include "data/pickle.h"
#include "data/png.h"
#include "data/synthetic.h"
#include "engine/core/error.h"
#include "engine/core/file.h"

namespace warpstep::data {
namespace {

constexpr std::uint64_t max_files = 10'000'000;
constexpr int drawing_version = 1;  // of the pixels: raise it when they change

using Progress = std::function<void(std::uint64_t, std::uint64_t)>;

// The mark that a folder was made here, and whether it is whole.
nlohmann::json mark(const SyntheticOptions& options, bool whole) {
  return {{"made_by", "warpstep data make"},
          {"version", drawing_version},
          {"train", options.train},
          {"test", options.test},
          {"seed", options.seed},
          {"whole", whole}};
}

nlohmann::json read_mark(const std::string& path) {
  if (!exists(path)) return {};
  std::vector<std::uint8_t> file;
  read_into(file, path, 65536);
  return nlohmann::json::parse(file.begin(), file.end(), nullptr, false);
}

std::string file_name(std::uint64_t index, std::int32_t label) {
  return fmt::format("{:06d}_{}.png", index, synthetic_classes[static_cast<std::size_t>(label)]);
}

void write_split(const std::string& folder, Split split, const SyntheticOptions& options,
                 const std::function<void()>& written) {
  std::filesystem::create_directories(folder);
  const std::uint64_t count = split == Split::train ? options.train : options.test;
  std::vector<std::pair<std::string, std::int32_t>> labels(count);
  parallel_for(count, options.workers, [&](int, std::uint64_t index) {
    const Shape shape{synthetic_side, synthetic_side, 3};
    std::array<std::uint8_t, 3 * synthetic_side * synthetic_side> pixels;
    draw_synthetic(options.seed, split, index, pixels);
    const std::int32_t label = synthetic_label(options.seed, split, index);
    labels[index] = {file_name(index, label), label};
    write_quickly(folder + "/" + labels[index].first, encode_png(shape, pixels));
    written();
  });
  const std::vector<std::uint8_t> pickle = write_pickle(labels);
  write_atomically(folder + "/labels.pkl",
                   std::string_view(reinterpret_cast<const char*>(pickle.data()), pickle.size()));
}

void check_options(const SyntheticOptions& options) {
  if (options.train < 1 || options.test < 1 || options.train > max_files ||
      options.test > max_files) {
    fail<UsageError>("{} train and {} test images: each must be from 1 to {}", options.train,
                     options.test, max_files);
  }
}

}  // namespace

bool make_png_dataset(const std::string& folder, const SyntheticOptions& options,
                      const Progress& progress) try {
  check_options(options);
  const std::string mark_path = folder + "/made.json";
  const nlohmann::json found = read_mark(mark_path);
  if (found == mark(options, true)) return false;
  const bool ours = found.is_object() && found.value("made_by", "") == "warpstep data make";
  for (const char* split : {"train", "test"}) {
    const std::string path = folder + "/" + split;
    if (!ours && exists(path)) {
      fail<DataError>("{}: is there already and was not made by this command; name another folder",
                      path);
    }
  }
  std::filesystem::create_directories(folder);
  write_atomically(mark_path, mark(options, false).dump() + "\n");
  std::mutex mutex;
  std::uint64_t done = 0;
  const auto written = [&] {
    if (!progress) return;
    const std::lock_guard lock(mutex);
    progress(++done, options.train + options.test);
  };
  for (const Split split : {Split::train, Split::test}) {
    const std::string path = fmt::format("{}/{}", folder, name(split));
    std::filesystem::remove_all(path + ".part");
    write_split(path + ".part", split, options, written);
    std::filesystem::remove_all(path);
    std::filesystem::rename(path + ".part", path);
  }
  write_atomically(mark_path, mark(options, true).dump() + "\n");
  return true;
} catch (const std::filesystem::filesystem_error& error) {
  fail<DataError>("{}: cannot be written: {}", folder, error.code().message());
}

}  // namespace warpstep::data
