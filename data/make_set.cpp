// Writes the synthetic data set as a folder of image files.
#include <filesystem>
#include <mutex>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>
#include <vector>

#include "data/file.h"
#include "data/jpeg.h"
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

bool is_large(const SyntheticOptions& options) {
  return options.height != synthetic_side || options.width != synthetic_side || options.jpeg;
}

// The mark that a folder was made here, and whether it is whole.
nlohmann::json mark(const SyntheticOptions& options, bool whole) {
  nlohmann::json mark{{"made_by", "warpstep data make"},
                      {"version", drawing_version},
                      {"train", options.train},
                      {"test", options.test},
                      {"seed", options.seed},
                      {"whole", whole}};
  if (is_large(options)) {
    mark["size"] = {options.height, options.width};
    mark["jpeg"] = options.jpeg;
  }
  return mark;
}

nlohmann::json read_mark(const std::string& path) {
  if (!exists(path)) return {};
  std::vector<std::uint8_t> file;
  read_into(file, path, 65536);
  return nlohmann::json::parse(file.begin(), file.end(), nullptr, false);
}

std::string file_name(std::uint64_t index, std::int32_t label, bool jpeg) {
  return fmt::format("{:06d}_{}.{}", index, synthetic_classes[static_cast<std::size_t>(label)],
                     jpeg ? "jpg" : "png");
}

std::vector<std::uint8_t> image_file(const SyntheticOptions& options, Split split,
                                     std::uint64_t index) {
  const Shape shape{options.height, options.width, 3};
  std::vector<std::uint8_t> pixels(idx(shape.count()));
  if (is_large(options))
    draw_synthetic_large(options.seed, split, index, options.height, options.width, pixels);
  else
    draw_synthetic(options.seed, split, index, pixels);
  return options.jpeg ? encode_jpeg(shape, pixels, 90) : encode_png(shape, pixels);
}

void write_split(const std::string& folder, Split split, const SyntheticOptions& options,
                 const std::function<void()>& written) {
  std::filesystem::create_directories(folder);
  const std::uint64_t count = split == Split::train ? options.train : options.test;
  std::vector<std::pair<std::string, std::int32_t>> labels(count);
  parallel_for(count, options.workers, [&](int, std::uint64_t index) {
    const std::int32_t label = synthetic_label(options.seed, split, index);
    labels[index] = {file_name(index, label, options.jpeg), label};
    write_quickly(folder + "/" + labels[index].first, image_file(options, split, index));
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
  if (options.height < 8 || options.width < 8 || options.height > 4096 || options.width > 4096)
    fail<UsageError>("images of {} x {} pixels: each side must be from 8 to 4096", options.width,
                     options.height);
}

}  // namespace

bool make_dataset(const std::string& folder, const SyntheticOptions& options,
                  const Progress& progress) try {
  check_options(options);
  const std::string mark_path = folder + "/made.json";
  const nlohmann::json found = read_mark(mark_path);
  if (found == mark(options, true)) return false;
  const bool ours =
      found.is_object() && found.contains("made_by") && found.at("made_by") == "warpstep data make";
  if (!ours && exists(folder) && (!is_folder(folder) || !std::filesystem::is_empty(folder)))
    fail<DataError>("{}: is there already and is not an empty folder; name another one", folder);
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
