#include "data/write/synthetic.h"

#include <fcntl.h>
#include <sys/file.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <filesystem>
#include <mutex>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>
#include <vector>

#include "data/decode/jpeg.h"
#include "data/decode/png.h"
#include "data/formats/pickle.h"
#include "data/io/file.h"
#include "data/io/parallel.h"
#include "engine/core/error.h"
#include "engine/core/file.h"
#include "engine/core/json_text.h"
#include "engine/core/random.h"

namespace warpstep::data {
namespace {

constexpr int side = static_cast<int>(synthetic_side);
constexpr float middle = 15.5F;  // pixels

// Chosen so that a small CNN classifies nine of ten test images correctly after two epochs of
// 10,000 images, and so that a file has 2.3 KB, like CIFAR-10's.
constexpr float most_shift = 2.5F;       // pixels off the centre, in each direction
constexpr float most_turn = 0.12F;       // tangent of half the angle: 14 degrees
constexpr float least_contrast = 80;     // between figure and background, of 255
constexpr float lighter_figure = 0.95F;  // probability
constexpr float cloud_height = 20;       // of 255
constexpr float grain_height = 9;        // of 255, uniform per channel
constexpr float most_slope = 0.012F;     // of the light, per pixel

// The sequence of random words of one image.
class Words {
 public:
  // Sets of different `kind` have independent words under one seed. An image uses at most 2^bits
  // draws.
  Words(std::uint64_t seed, std::uint32_t kind, std::uint64_t image, unsigned bits)
      : seed_(seed), kind_(kind), next_(image << bits) {}

  std::uint32_t word() {
    if (used_ == words_.size()) {
      words_ = draw(seed_, Purpose::synthetic, kind_, next_++);
      used_ = 0;
    }
    return words_[used_++];
  }
  float between(float low, float high) { return low + (high - low) * uniform(word()); }
  bool coin() { return (word() >> 31) != 0; }

 private:
  std::uint64_t seed_;
  std::uint32_t kind_;
  std::uint64_t next_;
  std::array<std::uint32_t, 4> words_{};
  std::size_t used_ = words_.size();
};

struct Point {
  float x = 0;
  float y = 0;
};

// Position, size and rotation of the figure in the image.
struct Placement {
  Point centre;
  float size = 8;    // pixels: half extent of a shape
  float period = 8;  // pixels of a texture
  Point direction;   // unit vector: the rotated x axis
  float phase_x = 0;
  float phase_y = 0;
};

Placement place(Words& words) {
  Placement p;
  p.centre = {middle + words.between(-most_shift, most_shift),
              middle + words.between(-most_shift, most_shift)};
  p.size = words.between(8, 12);
  p.period = words.between(5, 10);
  // A rational parametrisation of the unit circle: no sine, so the same bits with every C library.
  const float t = words.between(-most_turn, most_turn);
  p.direction = {(1 - t * t) / (1 + t * t), 2 * t / (1 + t * t)};
  p.phase_x = words.between(0, p.period);
  p.phase_y = words.between(0, p.period);
  return p;
}

// Distance to the nearest line of a grid of lines, period apart, in [0, period / 2].
float to_line(float x, float period) {
  const float cycles = x / period;
  const float rest = cycles - std::floor(cycles);
  return std::min(rest, 1 - rest) * period;
}

// Signed distance in pixels to the edge of the figure, negative inside.
float distance(std::int32_t label, const Placement& p, Point at) {
  const Point d{at.x - p.centre.x, at.y - p.centre.y};
  const Point u{d.x * p.direction.x + d.y * p.direction.y,
                d.y * p.direction.x - d.x * p.direction.y};
  const float ax = std::abs(u.x);
  const float ay = std::abs(u.y);
  const float radius = std::sqrt(d.x * d.x + d.y * d.y);
  const float quarter = p.period / 4;
  switch (label) {
    case 0: return radius - p.size * 0.8F;
    case 1: return std::max(ax, ay) - p.size * 0.9F;
    case 2: return std::max(0.866F * ax + 0.5F * u.y, -u.y) - p.size * 0.55F;
    case 3: return std::abs(radius - p.size * 0.8F) - p.size * 0.22F;
    case 4: return std::max(std::min(ax, ay) - p.size * 0.27F, std::max(ax, ay) - p.size);
    case 5: return to_line(u.y + p.phase_y, p.period) - quarter;
    case 6: return to_line(u.x + p.phase_x, p.period) - quarter;
    case 7: return to_line((u.x + u.y) * 0.70710678F + p.phase_x, p.period) - quarter;
    case 8: {
      const float x = to_line(u.x + p.phase_x, p.period * 1.5F) - quarter * 1.5F;
      const float y = to_line(u.y + p.phase_y, p.period * 1.5F) - quarter * 1.5F;
      return x * y < 0 ? -std::min(std::abs(x), std::abs(y)) : std::min(std::abs(x), std::abs(y));
    }
    default: {
      const float x = to_line(u.x + p.phase_x, p.period * 1.3F);
      const float y = to_line(u.y + p.phase_y, p.period * 1.3F);
      return std::sqrt(x * x + y * y) - p.period * 0.3F;
    }
  }
}

using Colour = std::array<float, 3>;

// Two colours whose brightness differs by at least least_contrast.
void choose_colours(Words& words, Colour& back, Colour& fore) {
  float difference = 0;
  do {
    for (float& c : back) c = words.between(30, 225);
    for (float& c : fore) c = words.between(30, 225);
    difference = (fore[0] + fore[1] + fore[2] - back[0] - back[1] - back[2]) / 3;
  } while (std::abs(difference) < least_contrast);
  const bool light = words.between(0, 1) < lighter_figure;
  if (light != (difference > 0)) std::swap(back, fore);
}

// Cloudy background: 5 x 5 random heights, interpolated.
struct Clouds {
  std::array<std::array<float, 6>, 6> height;

  explicit Clouds(Words& words) {
    for (auto& row : height) {
      for (float& h : row) h = words.between(-1, 1);
    }
  }
  float at(Point in_image) const {  // both in [0, 1)
    const float gx = in_image.x * 5;
    const float gy = in_image.y * 5;
    const auto ix = static_cast<std::size_t>(gx);
    const auto iy = static_cast<std::size_t>(gy);
    const float fx = gx - static_cast<float>(ix);
    const float fy = gy - static_cast<float>(iy);
    const float top = height[iy][ix] + (height[iy][ix + 1] - height[iy][ix]) * fx;
    const float low = height[iy + 1][ix] + (height[iy + 1][ix + 1] - height[iy + 1][ix]) * fx;
    return top + (low - top) * fy;
  }
};

// All that the pixels of one image share.
struct Scene {
  Words words;
  std::int32_t label;
  Placement placement;
  Colour back{}, fore{};
  Clouds clouds;
  Point light;

  Scene(Words from, std::int32_t of)
      : words(from), label(of), placement(place(words)), clouds(colours_then_clouds()), light{} {
    light.x = words.between(-most_slope, most_slope);
    light.y = words.between(-most_slope, most_slope);
  }

  // `at` in the figure's 32 x 32 coordinates, `in_image` in [0, 1); `sharp` is pixels a coordinate.
  void paint(Point at, Point in_image, float sharp, std::uint8_t* pixel) {
    const float cover = std::clamp(0.5F - distance(label, placement, at) * sharp, 0.0F, 1.0F);
    const float shade = 1 + light.x * (at.x - middle) + light.y * (at.y - middle);
    const float cloud = cloud_height * clouds.at(in_image);
    const std::uint32_t noise = words.word();
    for (std::size_t c = 0; c < 3; ++c) {
      const float grain = static_cast<float>((noise >> (8 * c)) & 0xff) / 127.5F - 1;
      const float value =
          (back[c] + (fore[c] - back[c]) * cover) * shade + cloud + grain_height * grain;
      pixel[c] = static_cast<std::uint8_t>(std::clamp(value, 0.0F, 255.0F) + 0.5F);
    }
  }

 private:
  Clouds colours_then_clouds() {
    choose_colours(words, back, fore);
    return Clouds(words);
  }
};

}  // namespace

std::int32_t synthetic_label(std::uint64_t seed, Split split, std::uint64_t index, int classes) {
  // The shift changes every ten images: classes stay balanced, and an index does not give away its
  // class.
  const auto shift =
      draw(seed, Purpose::synthetic, static_cast<std::uint32_t>(split) + 2, index / 10);
  const auto count = static_cast<std::uint32_t>(classes);
  return static_cast<std::int32_t>((index + below(shift[0], count)) % count);
}

void draw_synthetic(std::uint64_t seed, Split split, std::uint64_t index,
                    std::span<std::uint8_t> pixels, int classes) {
  Scene scene(Words(seed, static_cast<std::uint32_t>(split), index, 16),
              synthetic_label(seed, split, index, classes));
  for (int y = 0; y < side; ++y)
    for (int x = 0; x < side; ++x) {
      const Point at{static_cast<float>(x), static_cast<float>(y)};
      scene.paint(at, {at.x / side, at.y / side}, 1,
                  pixels.data() + static_cast<std::size_t>(3 * (y * side + x)));
    }
}

void draw_synthetic_large(std::uint64_t seed, Split split, std::uint64_t index, std::int64_t height,
                          std::int64_t width, std::span<std::uint8_t> pixels, int classes) {
  Scene scene(Words(seed, static_cast<std::uint32_t>(split) + 4, index, 32),
              synthetic_label(seed, split, index, classes));
  const float tile = static_cast<float>(std::min<std::int64_t>({height, width, 256}));
  const float sharp = tile / side;
  const auto coordinate = [&](std::int64_t pixel) {
    const float tiles = (static_cast<float>(pixel) + 0.5F) / tile;
    return (tiles - std::floor(tiles)) * side - 0.5F;
  };
  for (std::int64_t y = 0; y < height; ++y)
    for (std::int64_t x = 0; x < width; ++x)
      scene.paint({coordinate(x), coordinate(y)},
                  {static_cast<float>(x) / static_cast<float>(width),
                   static_cast<float>(y) / static_cast<float>(height)},
                  sharp, pixels.data() + static_cast<std::size_t>(3 * (y * width + x)));
}

namespace {

constexpr std::uint64_t max_files = 10'000'000;
constexpr int drawing_version = 1;  // raise it when the pixels change

bool is_large(const SyntheticOptions& options) {
  return options.height != synthetic_side || options.width != synthetic_side || options.jpeg;
}

// The training split defines the classes of a set, so a smaller one has fewer: the test split must
// not have a class that the training split lacks.
int class_count(const SyntheticOptions& options) {
  return static_cast<int>(std::min<std::uint64_t>(options.train, synthetic_class_count));
}

// The content of made.json: which set the folder holds, and whether it is complete.
nlohmann::json mark(const SyntheticOptions& options, bool whole) {
  nlohmann::json mark{{"made_by", "warpstep data make"},
                      {"version", drawing_version},
                      {"train", options.train},
                      {"test", options.test},
                      {"seed", options.seed},
                      {"whole", whole}};
  if (class_count(options) < synthetic_class_count) mark["classes"] = class_count(options);
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
  return parse_json<nlohmann::json>({reinterpret_cast<const char*>(file.data()), file.size()});
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
    draw_synthetic_large(options.seed, split, index, options.height, options.width, pixels,
                         class_count(options));
  else
    draw_synthetic(options.seed, split, index, pixels, class_count(options));
  return options.jpeg ? encode_jpeg(shape, pixels, 90) : encode_png(shape, pixels);
}

void write_split(const std::string& folder, Split split, const SyntheticOptions& options,
                 const std::function<void()>& written) {
  std::filesystem::create_directories(folder);
  const std::uint64_t count = split == Split::train ? options.train : options.test;
  std::vector<std::pair<std::string, std::int32_t>> labels(count);
  parallel_for(count, options.workers, [&](int, std::uint64_t index) {
    const std::int32_t label = synthetic_label(options.seed, split, index, class_count(options));
    labels[index] = {file_name(index, label, options.jpeg), label};
    write_quickly(folder + "/" + labels[index].first, image_file(options, split, index));
    written();
  });
  const std::vector<std::uint8_t> pickle = write_pickle(labels);
  write_atomically(folder + "/labels.pkl",
                   std::string_view(reinterpret_cast<const char*>(pickle.data()), pickle.size()));
}

bool is_drawn(std::string_view name) {
  const std::size_t digits = std::min(name.find_first_not_of("0123456789"), name.size());
  return digits >= 6 && name[digits] == '_' &&
         std::ranges::any_of(synthetic_classes, [&](std::string_view of) {
           const std::string_view rest = name.substr(digits + 1);
           return rest.starts_with(of) &&
                  (rest.substr(of.size()) == ".png" || rest.substr(of.size()) == ".jpg");
         });
}

// A split is replaced with its folder: DataError for what else is in it.
void require_drawn(const std::string& split) {
  if (!exists(split)) return;
  for (const auto& entry : std::filesystem::directory_iterator(split)) {
    const std::string name = entry.path().filename().string();
    if (entry.is_directory() ||
        (!is_drawn(name) && name != "labels.pkl" && !name.starts_with(".labels.pkl.tmp-")))
      fail<DataError>(
          "{}: does not belong to the generated set, which would be replaced with its folder; move "
          "it away, or name another OUT",
          entry.path().string());
  }
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

// Of two processes that make the same set, each would remove what the other has written. The lock
// ends with the process; a file system without locks has none.
Descriptor locked(const std::string& folder) {
  Descriptor file(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (file.number() >= 0 && ::flock(file.number(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
    fail<DataError>("{}: another process generates a set there; wait for it, or name another OUT",
                    folder);
  return file;
}

}  // namespace

Made make_dataset(const std::string& folder, const SyntheticOptions& options,
                  const std::function<void(std::uint64_t, std::uint64_t)>& progress) try {
  check_options(options);
  if (!exists(folder)) std::filesystem::create_directories(folder);
  const Descriptor own = locked(folder);
  const std::string mark_path = folder + "/made.json";
  const nlohmann::json found = read_mark(mark_path);
  if (found == mark(options, true)) return Made::already_there;
  const bool ours =
      found.is_object() && found.contains("made_by") && found.at("made_by") == "warpstep data make";
  if (!ours && exists(folder) && (!is_folder(folder) || !std::filesystem::is_empty(folder)))
    fail<DataError>("{}: exists and is not an empty folder; name another one", folder);
  const bool was_whole = ours && found.contains("whole") && found.at("whole") == true;
  if (was_whole && !options.overwrite)
    fail<UsageError>(
        "{}: holds a generated set of other options, as its made.json says; give --overwrite or "
        "another OUT",
        folder);
  for (const char* split : {"/train", "/train.part", "/test", "/test.part"})
    require_drawn(folder + split);
  write_atomically(mark_path, printed(mark(options, false)) + "\n");
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
  sync_files_in(folder);  // before the mark says that they are all there
  write_atomically(mark_path, printed(mark(options, true)) + "\n");
  return was_whole ? Made::replaced : Made::made;
} catch (const std::filesystem::filesystem_error& error) {
  fail<DataError>("{}: cannot be written: {}", folder, error.code().message());
}

}  // namespace warpstep::data
